"""Folders of buckets with a hierarchical namespace: an object makes its folders; they stay after it."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.http import Reply
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest
from cloudrec_sandbox.gcp.resources import paging
from cloudrec_sandbox.gcp.services.storage import buckets

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.resources.store import Resource

_URL = buckets.URL + "/{bucket}/folders"


def _is_tree(bucket: Resource) -> bool:
    return bool(bucket.document.get("hierarchicalNamespace", {}).get("enabled"))


def make_parents(bucket: Resource, name: str) -> None:
    """Make the folders of an object's name."""
    if _is_tree(bucket):
        parts = name.split("/")[:-1]
        known: set[str] = bucket.hidden.setdefault("folders", set())
        known.update("/".join(parts[: end + 1]) + "/" for end in range(len(parts)))


# Only buckets with a hierarchical namespace have folders; elsewhere they are parts of objects' names.
def _of(call: Call) -> tuple[Resource, set[str]]:
    bucket = buckets.need(call)
    if not _is_tree(bucket):
        raise GcpError(
            "ALREADY_EXISTS", "The bucket does not support hierarchical namespace, which folders need."
        )
    known: set[str] = bucket.hidden.setdefault("folders", set())
    return bucket, known


def _shown(bucket: Resource, name: str) -> dict[str, Any]:
    where = f"https://www.googleapis.com/storage/v1/{bucket.path}/folders/{name}"
    return {
        "kind": "storage#folder",
        "id": f"{bucket.name}/{name}/",
        "selfLink": where,
        "name": name,
        "bucket": bucket.name,
        "metageneration": "1",
    }


def _need(call: Call) -> tuple[Resource, set[str], str]:
    bucket, known = _of(call)
    name = call.params["folder"]
    if name not in known:
        raise GcpError("NOT_FOUND", f"The folder does not exist: {name}")
    return bucket, known, name


@rest(
    "storage",
    "folders.insert",
    "POST",
    _URL,
    body=dict,
    query=("recursive",),
    permission="storage.folders.create",
)
def insert(call: Call) -> dict[str, Any]:
    """Create a folder, whose parent must exist unless `recursive` makes it."""
    bucket, known = _of(call)
    name = str(call.body.get("name", ""))
    if not name.strip("/"):
        raise buckets.invalid(f"Invalid folder name: '{name}'")
    name = f"{name.rstrip('/')}/"
    if name in known:
        raise GcpError("ALREADY_EXISTS", f"The folder exists already: {name}")
    parent = name.rstrip("/").rpartition("/")[0]
    if parent and f"{parent}/" not in known and call.query.get("recursive", "").lower() != "true":
        raise GcpError("NOT_FOUND", f"The parent folder does not exist: {parent}/")
    make_parents(bucket, name)
    return _shown(bucket, name)


@rest(
    "storage",
    "folders.list",
    "GET",
    _URL,
    query=(*paging.QUERY, "prefix", "delimiter", "startOffset", "endOffset"),
    permission="storage.folders.list",
)
def list_(call: Call) -> dict[str, Any]:
    """Return the folders of a bucket."""
    bucket, known = _of(call)
    names = sorted(name for name in known if name.startswith(call.query.get("prefix", "")))
    items, token = paging.page([_shown(bucket, name) for name in names], call)
    return {"kind": "storage#folders", "items": items, **({"nextPageToken": token} if token else {})}


@rest("storage", "folders.get", "GET", _URL + "/{folder=*}", permission="storage.folders.get")
def get(call: Call) -> dict[str, Any]:
    """Return one folder."""
    bucket, _, name = _need(call)
    return _shown(bucket, name)


@rest("storage", "folders.delete", "DELETE", _URL + "/{folder=*}", permission="storage.folders.delete")
def delete(call: Call) -> Reply:
    """Delete an empty folder."""
    bucket, known, name = _need(call)
    objects = {each.document["name"] for each in bucket.hidden.get("objects", [])}
    if any(each.startswith(name) and each != name for each in known | objects):
        raise GcpError("ALREADY_EXISTS", "The folder you tried to delete is not empty.")
    known.remove(name)
    return Reply(status=HTTPStatus.NO_CONTENT)
