"""A blob's data, properties and blocks, and a container's properties."""

from __future__ import annotations

import base64
import hashlib
import re
from http import HTTPStatus
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from cloudrec_sandbox.azure.blob.data import moment
from cloudrec_sandbox.azure.blob.errors import BlobError, bad_query, no_blob
from cloudrec_sandbox.core.http import Reply

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec_sandbox.azure.blob.data import Blob
    from cloudrec_sandbox.azure.blob.request import BlobRequest

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_MOST_CHECKED = 4 * 2**20  # bytes of a range whose MD5 the service computes


def get(request: BlobRequest) -> Reply:
    """Return a blob's data, or a range of it."""
    blob = _need(request)
    wanted = _RANGE.fullmatch(request.header("x-ms-range") or request.header("range"))
    if wanted is None:
        return Reply(headers=_headers(request, blob, blob.size), body=blob.read(0, blob.size))
    start = int(wanted[1])
    end = min(int(wanted[2]) + 1, blob.size) if wanted[2] else blob.size
    if start >= blob.size or end <= start:
        raise BlobError(
            "InvalidRange",
            "The range specified is invalid for the current size of the resource.",
            status=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            headers=[("Content-Range", f"bytes */{blob.size}")],
        )
    body = blob.read(start, end)
    headers = _headers(request, blob, len(body), is_range=True)
    headers.append(("Content-Range", f"bytes {start}-{end - 1}/{blob.size}"))
    if request.header("x-ms-range-get-content-md5").lower() == "true":
        headers.append(("Content-MD5", _md5(body)))
    return Reply(status=HTTPStatus.PARTIAL_CONTENT, headers=headers, body=body)


def _md5(body: bytes) -> str:
    if len(body) > _MOST_CHECKED:
        raise BlobError(
            "OutOfRangeInput",
            "One of the request inputs is out of range: an MD5 needs a range of at most 4 MiB.",
        )
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


def properties(request: BlobRequest) -> Reply:
    """Return a blob's properties."""
    blob = _need(request)
    return Reply(headers=_headers(request, blob, blob.size))


def metadata(request: BlobRequest) -> Reply:
    """Return a blob's metadata."""
    blob = _need(request)
    return Reply(headers=[*_identity(blob), *_metadata(blob)])


def block_list(request: BlobRequest) -> Reply:
    """Return the blocks of a blob: committed, staged or both."""
    which = request.query.get("blocklisttype", "committed").lower()
    if which not in ("committed", "uncommitted", "all"):
        raise bad_query("blocklisttype", which)
    blob, staged = request.blob, request.data.staged.get(request.place.name)
    if blob is None and staged is None:
        raise no_blob()
    text = '<?xml version="1.0" encoding="utf-8"?><BlockList>'
    if which != "uncommitted":
        rows = [row for row in blob.blocks if row[0]] if blob else []
        text += f"<CommittedBlocks>{_blocks(rows)}</CommittedBlocks>"
    if which != "committed":
        text += f"<UncommittedBlocks>{_blocks((staged or {}).items())}</UncommittedBlocks>"
    headers = [("Content-Type", "application/xml")]
    if blob is not None:
        headers += [*_identity(blob), ("x-ms-blob-content-length", str(blob.size))]
    return Reply(headers=headers, body=f"{text}</BlockList>".encode())


def _blocks(rows: Iterable[tuple[str, bytes]]) -> str:
    return "".join(f"<Block><Name>{escape(id_)}</Name><Size>{len(data)}</Size></Block>" for id_, data in rows)


def _need(request: BlobRequest) -> Blob:
    blob = request.blob
    if blob is None:
        raise no_blob()
    request.check_read(blob)
    return blob


def _headers(
    request: BlobRequest, blob: Blob, length: int, *, is_range: bool = False
) -> list[tuple[str, str]]:
    # Of a range Content-MD5 would be the range's own, so that the blob's has another name.
    md5 = "x-ms-blob-content-md5" if is_range else "Content-MD5"
    found = [
        *_identity(blob),
        *((md5 if name == "Content-MD5" else name, value) for name, value in blob.settings.items()),
        *_metadata(blob),
        ("Content-Length", str(length)),
        ("Accept-Ranges", "bytes"),
        ("x-ms-creation-time", moment(blob.made_at)),
        ("x-ms-blob-type", "BlockBlob"),
        ("x-ms-lease-state", "available"),
        ("x-ms-lease-status", "unlocked"),
        ("x-ms-server-encrypted", "true"),
        ("x-ms-access-tier", "Hot"),
        ("x-ms-access-tier-inferred", "true"),
    ]
    if request.has_folders:
        found.append(("x-ms-resource-type", "directory" if blob.is_folder else "file"))
    return found


def _metadata(blob: Blob) -> list[tuple[str, str]]:
    return [(f"x-ms-meta-{name}", value) for name, value in blob.metadata.items()]


def _identity(blob: Blob) -> list[tuple[str, str]]:
    return [("ETag", blob.etag), ("Last-Modified", moment(blob.changed_at))]
