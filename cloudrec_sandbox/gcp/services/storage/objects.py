"""Objects: read, listed, deleted and copied; a bucket may keep old versions."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import google_crc32c

from cloudrec_sandbox.core.http import Reply
from cloudrec_sandbox.gcp.api import access
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest
from cloudrec_sandbox.gcp.resources import paging
from cloudrec_sandbox.gcp.services.storage import buckets, conditions, folders
from cloudrec_sandbox.gcp.services.storage.times import moment

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.resources.store import Resource

URL = buckets.URL + "/{bucket}/o"
_MOST_NAME = 1024  # bytes
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_LIST = (
    *paging.QUERY,
    "delimiter",
    "endOffset",
    "includeFoldersAsPrefixes",
    "includeTrailingDelimiter",
    "matchGlob",
    "prefix",
    "projection",
    "softDeleted",
    "startOffset",
    "versions",
)
_WRITABLE = (
    "cacheControl",
    "contentDisposition",
    "contentEncoding",
    "contentLanguage",
    "contentType",
    "metadata",
)


@dataclass
class Object:
    """One generation of an object; only one of a name is live."""

    document: dict[str, Any]
    data: bytes
    live: bool = True


def all_of(bucket: Resource) -> list[Object]:
    """Return all objects of a bucket, old versions too."""
    known: list[Object] = bucket.hidden.setdefault("objects", [])
    return known


def find(bucket: Resource, name: str, generation: str | None = None) -> Object | None:
    """Return the live object with a name, or the one of a generation; None if there is none."""
    for each in all_of(bucket):
        if each.document["name"] == name and (
            each.document["generation"] == generation if generation else each.live
        ):
            return each
    return None


def need(call: Call, bucket: Resource) -> Object:
    """Return the object of a call; GcpError if there is none, or a precondition does not hold."""
    found = find(bucket, call.params["object"], call.query.get("generation"))
    if found is None:
        name = f"{call.params['bucket']}/{call.params['object']}"
        raise GcpError("NOT_FOUND", f"No such object: {name}")
    conditions.check(call, found.document)
    return found


def check_permissions(call: Call, bucket: Resource, name: str) -> None:
    """Refuse to write an object without permission; one that exists is deleted, too.

    "IAM permissions for JSON methods": objects.insert.
    """
    access.demand(call, "storage.objects.create", f"{bucket.name}/{name}")
    if find(bucket, name) is not None:
        access.demand(call, "storage.objects.delete", f"{bucket.name}/{name}")


def put(call: Call, bucket: Resource, wishes: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Write an object: the live one with its name is replaced, or stays as an old version."""
    world, name = call.world, str(wishes.get("name", ""))
    if not name or len(name.encode()) > _MOST_NAME or name in (".", "..") or re.search(r"[\r\n]", name):
        raise buckets.invalid(f"Invalid object name: '{name}'")
    sums = {
        "crc32c": base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode(),
        "md5Hash": base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode(),
    }
    for field, value in sums.items():
        if wishes.get(field) not in (None, value):
            raise buckets.invalid(
                f'Provided {field} "{wishes[field]}" doesn\'t match calculated {field} "{value}".'
            )
    retire(bucket, name)
    last = bucket.hidden.get("generation", 0)
    # Generations grow even if two writes have the same virtual moment.
    generation = bucket.hidden["generation"] = max(last + 1, int(world.now() * 1e6))
    now = moment(world)
    # Clients download from the document's link, so it must lead to this server.
    where = f"{bucket.path}/o/{quote(name, safe='')}"
    document = {
        "kind": "storage#object",
        "id": f"{bucket.name}/{name}/{generation}",
        "selfLink": f"https://www.googleapis.com/storage/v1/{where}",
        "mediaLink": f"http://{call.raw.lower['host']}/download/storage/v1/{where}?generation={generation}&alt=media",
        "name": name,
        "bucket": bucket.name,
        "generation": str(generation),
        "metageneration": "1",
        "contentType": "application/octet-stream",
        "storageClass": bucket.document["storageClass"],
        "size": str(len(data)),
        **sums,
        "etag": base64.b64encode(str(generation).encode()).decode(),
        "timeCreated": now,
        "updated": now,
        **{field: wishes[field] for field in _WRITABLE if wishes.get(field)},
    }
    all_of(bucket).append(Object(document, data))
    folders.make_parents(bucket, name)
    return dict(document)


def retire(bucket: Resource, name: str) -> None:
    """Remove a live object, or make it an old version."""
    live = find(bucket, name)
    if live and bucket.document.get("versioning", {}).get("enabled"):
        live.live = False
    elif live:
        all_of(bucket).remove(live)


@rest("storage", "objects.list", "GET", URL, query=_LIST, permission="storage.objects.list")
def list_(call: Call) -> dict[str, Any]:
    """Return the objects of a bucket, grouped by a delimiter if there is one."""
    bucket, query = buckets.need(call), call.query
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    rows: dict[str, dict[str, Any] | None] = {}
    for each in sorted(all_of(bucket), key=lambda each: each.document["name"]):
        name = each.document["name"]
        if not name.startswith(prefix) or not (each.live or query.get("versions", "").lower() == "true"):
            continue
        if not query.get("startOffset", "") <= name < query.get("endOffset", chr(0x10FFFF)):
            continue
        rest_, found, _ = name.removeprefix(prefix).partition(delimiter) if delimiter else (name, "", "")
        if found:
            rows[f"{prefix}{rest_}{delimiter}"] = None
        else:
            rows[f"{name}#{each.document['generation']}"] = dict(each.document)
    items, token = paging.page(list(rows.items()), call)
    answer: dict[str, Any] = {"kind": "storage#objects"}
    if shown := [row for _, row in items if row is not None]:
        answer["items"] = shown
    if groups := [name for name, row in items if row is None]:
        answer["prefixes"] = groups
    return {**answer, **({"nextPageToken": token} if token else {})}


_READ = ("generation", "projection", "softDeleted", *conditions.ALL)


@rest("storage", "objects.get", "GET", URL + "/{object=*}", query=_READ, permission="storage.objects.get")
@rest(
    "storage",
    "objects.get",
    "GET",
    "/download" + URL + "/{object=*}",
    query=_READ,
    permission="storage.objects.get",
)
def get(call: Call) -> dict[str, Any] | Reply:
    """Return an object's metadata, or with alt=media its data."""
    found = need(call, buckets.need(call))
    return _media(call, found) if call.query.get("alt") == "media" else dict(found.document)


def _media(call: Call, found: Object) -> Reply:
    document, size = found.document, len(found.data)
    headers = [
        ("Content-Type", document["contentType"]),
        ("ETag", document["etag"]),
        ("X-Goog-Generation", document["generation"]),
        ("X-Goog-Metageneration", document["metageneration"]),
        ("X-Goog-Hash", f"crc32c={document['crc32c']},md5={document['md5Hash']}"),
        ("X-Goog-Stored-Content-Length", str(size)),
    ]
    wanted = _RANGE.fullmatch(call.raw.lower.get("range", ""))
    if wanted is None or wanted.groups() == ("", ""):
        return Reply(headers=headers, body=found.data)
    first, last = wanted.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    if start >= size:
        return Reply(
            status=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, headers=[("Content-Range", f"bytes */{size}")]
        )
    headers.append(("Content-Range", f"bytes {start}-{end - 1}/{size}"))
    return Reply(status=HTTPStatus.PARTIAL_CONTENT, headers=headers, body=found.data[start:end])


@rest(
    "storage",
    "objects.delete",
    "DELETE",
    URL + "/{object=*}",
    query=("generation", *conditions.ALL),
    permission="storage.objects.delete",
)
def delete(call: Call) -> Reply:
    """Delete the live object, or one generation permanently."""
    bucket = buckets.need(call)
    found = need(call, bucket)
    if call.query.get("generation"):
        all_of(bucket).remove(found)
    else:
        retire(bucket, found.document["name"])
    return Reply(status=HTTPStatus.NO_CONTENT)


@rest(
    "storage",
    "objects.patch",
    "PATCH",
    URL + "/{object=*}",
    body=dict,
    query=_READ,
    permission="storage.objects.update",
)
def patch(call: Call) -> dict[str, Any]:
    """Change metadata."""
    document = need(call, buckets.need(call)).document
    if unknown := sorted(set(call.body) - set(_WRITABLE) - set(document)):
        raise buckets.invalid(f'Invalid JSON payload received. Unknown name "{unknown[0]}".')
    document.update({name: value for name, value in call.body.items() if name in _WRITABLE})
    document["metageneration"] = str(int(document["metageneration"]) + 1)
    return dict(document)


_COPY = URL + "/{object=*}/%s/b/{to_bucket}/o/{to_object=*}"
_COPIED = ("sourceGeneration", *conditions.ALL)


def _copy(call: Call) -> dict[str, Any]:
    """Copy an object; the conditions are for the copy."""
    source = buckets.need(call)
    found = find(source, call.params["object"], call.query.get("sourceGeneration"))
    if found is None:
        raise GcpError("NOT_FOUND", f"No such object: {source.name}/{call.params['object']}")
    target = buckets.named(call.world, call.params["to_bucket"])
    there = find(target, call.params["to_object"])
    conditions.check(call, there.document if there else None)
    wishes = {**found.document, **call.body, "name": call.params["to_object"]}
    return put(call, target, wishes, found.data)


@rest(
    "storage",
    "objects.copy",
    "POST",
    _COPY % "copyTo",
    body=dict,
    query=_COPIED,
    permission="storage.objects.create",
)
def copy(call: Call) -> dict[str, Any]:
    """Copy an object."""
    return _copy(call)


@rest(
    "storage",
    "objects.rewrite",
    "POST",
    _COPY % "rewriteTo",
    body=dict,
    query=("rewriteToken", *_COPIED),
    permission="storage.objects.create",
)
def rewrite(call: Call) -> dict[str, Any]:
    """Copy an object of any size at once."""
    document = _copy(call)
    size = document["size"]
    return {
        "kind": "storage#rewriteResponse",
        "done": True,
        "totalBytesRewritten": size,
        "objectSize": size,
        "resource": document,
    }
