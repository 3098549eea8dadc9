"""List Blobs: the blobs of a container by name, in pages, and grouped by a delimiter."""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from cloudrec_sandbox.azure.blob.data import Blob, moment
from cloudrec_sandbox.azure.blob.errors import BlobError, bad_query
from cloudrec_sandbox.core.http import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.azure.blob.request import BlobRequest

_MOST = 5000
_INCLUDED = {"metadata", "copy", "snapshots", "uncommittedblobs", "deleted"}


def blobs(request: BlobRequest) -> Reply:
    """Return a page of a container's blobs."""
    included = set(filter(None, request.query.get("include", "").lower().split(",")))
    if unknown := included - _INCLUDED:
        raise BlobError(
            "NotImplemented",
            f"This stand-in's lists include no {', '.join(sorted(unknown))}.",
            status=HTTPStatus.NOT_IMPLEMENTED,
        )
    most, first = _page_size(request), _first(request)
    rows = [row for row in _rows(request, is_complete="uncommittedblobs" in included) if row[0] >= first]
    page, rest = rows[:most], rows[most:]
    shown = "".join(_row(request, name, blob, has_metadata="metadata" in included) for name, blob in page)
    following = base64.b64encode(rest[0][0].encode()).decode() if rest else ""
    given = "".join(
        f"<{tag}>{escape(request.query[name])}</{tag}>"
        for name, tag in (
            ("prefix", "Prefix"),
            ("marker", "Marker"),
            ("maxresults", "MaxResults"),
            ("delimiter", "Delimiter"),
        )
        if request.query.get(name)
    )
    place = request.place
    endpoint, container = f"https://{place.account}.blob.core.windows.net/", quoteattr(place.container)
    text = (
        f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="{endpoint}" '
        f"ContainerName={container}>"
        f"{given}<Blobs>{shown}</Blobs><NextMarker>{following}</NextMarker></EnumerationResults>"
    )
    return Reply(headers=[("Content-Type", "application/xml")], body=text.encode())


def _page_size(request: BlobRequest) -> int:
    text = request.query.get("maxresults", "")
    if not text:
        return _MOST
    if not text.isdigit():
        raise bad_query("maxresults", text)
    if int(text) < 1:
        raise BlobError(
            "OutOfRangeQueryParameterValue",
            "One of the query parameters specified in the request URI is outside the permissible range.",
        )
    return min(int(text), _MOST)


def _first(request: BlobRequest) -> str:
    """Return the name at which the page begins, by the marker."""
    marker = request.query.get("marker", "")
    try:
        return base64.b64decode(marker, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise bad_query("marker", marker) from error


def _rows(request: BlobRequest, *, is_complete: bool) -> list[tuple[str, Blob | None]]:
    """Return names with their blobs, and groups of names with None, in their order."""
    prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
    found: dict[str, Blob | None] = {}
    for blob in _all(request, is_complete=is_complete):
        # A directory of a hierarchical namespace is a group, even if nothing is in it.
        name = f"{blob.name}/" if delimiter and blob.is_folder else blob.name
        if not name.startswith(prefix):
            continue
        head, middle, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
        if middle:
            found[f"{prefix}{head}{middle}"] = None
        elif name != prefix or not blob.is_folder:
            found[name] = blob
    return sorted(found.items(), key=lambda row: row[0])


def _all(request: BlobRequest, *, is_complete: bool) -> Iterator[Blob]:
    yield from request.data.blobs.values()
    if is_complete:
        now = request.world.now()
        for name in request.data.staged.keys() - request.data.blobs.keys():
            yield Blob(name=name, blocks=[], settings={}, metadata={}, etag="", made_at=now, changed_at=now)


def _row(request: BlobRequest, name: str, blob: Blob | None, *, has_metadata: bool) -> str:
    if blob is None:
        return f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"
    rows = {
        "Creation-Time": moment(blob.made_at),
        "Last-Modified": moment(blob.changed_at),
        "Etag": blob.etag.strip('"'),
        **({"ResourceType": "directory" if blob.is_folder else "file"} if request.has_folders else {}),
        "Content-Length": str(blob.size),
        **blob.settings,
        "BlobType": "BlockBlob",
        "AccessTier": "Hot",
        "AccessTierInferred": "true",
        "LeaseStatus": "unlocked",
        "LeaseState": "available",
        "ServerEncrypted": "true",
    }
    listed = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in rows.items())
    more = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in blob.metadata.items())
    known = f"<Metadata>{more}</Metadata>" if has_metadata else ""
    return f"<Blob><Name>{escape(name)}</Name><Properties>{listed}</Properties>{known}</Blob>"
