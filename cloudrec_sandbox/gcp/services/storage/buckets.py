"""Buckets. All of Google's users share their names; a project may create and delete them at a limited rate.

`taken_buckets` of /_control: names of other projects' buckets.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.http import Reply
from cloudrec_sandbox.gcp.api import projects
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest, setting
from cloudrec_sandbox.gcp.resources import checks, paging, places, store
from cloudrec_sandbox.gcp.services.iam import policies
from cloudrec_sandbox.gcp.services.storage import conditions
from cloudrec_sandbox.gcp.services.storage.times import moment

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

URL = "/storage/v1/b"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_MULTI = ("US", "EU", "ASIA")
_CLASSES = ("STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE")
_DAY_S = 86400
_SOFT_DELETE = range(7 * _DAY_S, 90 * _DAY_S + 1)
_SECONDS_EACH, _BURST = 2.0, 2.0  # between creations and deletions in a project; how many at once
_WRITABLE = frozenset(
    (
        "autoclass",
        "cors",
        "defaultEventBasedHold",
        "encryption",
        "iamConfiguration",
        "labels",
        "lifecycle",
        "logging",
        "retentionPolicy",
        "rpo",
        "softDeletePolicy",
        "storageClass",
        "versioning",
        "website",
    )
)
_BIRTH = frozenset(("name", "location", "hierarchicalNamespace", "customPlacementConfig"))
_OUTPUT = frozenset(
    (
        "acl",
        "defaultObjectAcl",
        "etag",
        "generation",
        "id",
        "kind",
        "locationType",
        "metageneration",
        "owner",
        "projectNumber",
        "selfLink",
        "timeCreated",
        "updated",
    )
)


@dataclass
class Rate:
    """Names of other projects' buckets, and how many creations and deletions are allowed by now."""

    taken: list[str] = field(default_factory=list)
    tokens: float = _BURST
    moment: float = 0.0


def need(call: Call) -> Resource:
    """Return the bucket of a call."""
    return named(call.world, call.params["bucket"])


def named(world: World, name: str) -> Resource:
    """Return the bucket with a name."""
    found = store.find(world, "storage", f"b/{name}")
    if found is None:
        raise GcpError("NOT_FOUND", "The specified bucket does not exist.")
    return found


def invalid(text: str) -> GcpError:
    """Return the refusal of an invalid request."""
    return GcpError("INVALID_ARGUMENT", text)


def _slow_down(world: World) -> None:
    rate = world.state(Rate)
    rate.tokens = min(_BURST, rate.tokens + (world.now() - rate.moment) / _SECONDS_EACH)
    rate.moment = world.now()
    if rate.tokens < 1:
        raise GcpError(
            "RESOURCE_EXHAUSTED",
            "The project exceeded the rate limit for creating and deleting buckets.",
            classic="rateLimitExceeded",
        )
    rate.tokens -= 1


def _known(document: dict[str, Any], allowed: frozenset[str]) -> None:
    if unknown := sorted(set(document) - allowed - _OUTPUT):
        raise invalid(f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.')


def _check(document: dict[str, Any]) -> None:
    """Check a bucket's document as a whole."""
    checks.labels({key: value for key, value in document.get("labels", {}).items() if value}, "labels")
    access = document.setdefault("iamConfiguration", {})
    uniform = access.setdefault("uniformBucketLevelAccess", {"enabled": False})
    access["bucketPolicyOnly"] = dict(uniform)
    if access.setdefault("publicAccessPrevention", "inherited") not in ("inherited", "enforced"):
        raise invalid(f"Invalid argument: {access['publicAccessPrevention']!r} is no publicAccessPrevention.")
    # Cloud Storage: the namespace needs uniform access, excludes versioning, and is fixed at the creation.
    if document.get("hierarchicalNamespace", {}).get("enabled"):
        if not uniform.get("enabled"):
            raise invalid("Hierarchical namespace requires uniform bucket-level access to be enabled.")
        if document.get("versioning", {}).get("enabled"):
            raise invalid("Object versioning is not supported on buckets with hierarchical namespace.")
    kept = int(document.setdefault("softDeletePolicy", {}).setdefault("retentionDurationSeconds", 7 * _DAY_S))
    if kept and kept not in _SOFT_DELETE:
        raise invalid("Soft delete policy's retention duration must be 0, or from 7 to 90 days.")
    document["softDeletePolicy"]["retentionDurationSeconds"] = str(kept)
    if document.setdefault("storageClass", "STANDARD") not in _CLASSES:
        raise invalid(f"The storage class you specified is not valid: {document['storageClass']}")


def _place(document: dict[str, Any]) -> None:
    place = str(document.get("location", "US"))
    region = place.lower() in places.REGIONS
    if not region and place.upper() not in _MULTI:
        raise invalid(f"The specified location constraint is not valid: {place}")
    document["location"] = place.upper()
    document["locationType"] = "region" if region else "multi-region"


@rest(
    "storage",
    "buckets.insert",
    "POST",
    URL,
    body=dict,
    query=("project", "projection", "predefinedAcl", "predefinedDefaultObjectAcl", "enableObjectRetention"),
    permission="storage.buckets.create",
)
def insert(call: Call) -> dict[str, Any]:
    """Create a bucket; a taken name is refused, also one of the project's own."""
    document, world = call.body, call.world
    name = str(document.get("name", ""))
    _known(document, _WRITABLE | _BIRTH)
    project = projects.find(world, call.query.get("project", ""))
    if project is None:
        raise invalid("Unknown project id: " + call.query.get("project", ""))
    if not _NAME.fullmatch(name) or name.startswith("goog") or "google" in name or ".." in name:
        raise invalid(f"Invalid bucket name: '{name}'")
    _slow_down(world)
    if name in world.state(Rate).taken:
        raise GcpError(
            "ALREADY_EXISTS",
            "The requested bucket name is not available. The bucket namespace is shared by all users of the"
            " system. Please select a different name and try again.",
        )
    if store.find(world, "storage", f"b/{name}"):
        raise GcpError(
            "ALREADY_EXISTS",
            "Your previous request to create the named bucket succeeded and you already own it.",
        )
    _place(document)
    _check(document)
    now = moment(world)
    document |= {
        "kind": "storage#bucket",
        "id": name,
        "selfLink": f"https://www.googleapis.com/storage/v1/b/{name}",
        "projectNumber": project.number,
        "generation": str(int(world.now() * 1e6)),
        "metageneration": "1",
        "timeCreated": now,
        "updated": now,
    }
    _stamp(document)
    store.add(world, "storage", "buckets", f"b/{name}", document)
    policies.of(world, f"b/{name}").bindings = [
        {
            "role": "roles/storage.legacyBucketOwner",
            "members": [f"projectEditor:{project.id}", f"projectOwner:{project.id}"],
        },
        {"role": "roles/storage.legacyBucketReader", "members": [f"projectViewer:{project.id}"]},
    ]
    return dict(document)


def _stamp(document: dict[str, Any]) -> None:
    document["etag"] = base64.b64encode(f"meta{document['metageneration']}".encode()).decode()


@rest(
    "storage",
    "buckets.get",
    "GET",
    URL + "/{bucket}",
    query=("projection", *conditions.METAGENERATION),
    permission="storage.buckets.get",
)
def get(call: Call) -> dict[str, Any]:
    """Return one bucket."""
    document = need(call).document
    conditions.check(call, document)
    return dict(document)


@rest(
    "storage",
    "buckets.list",
    "GET",
    URL,
    query=(*paging.QUERY, "project", "prefix", "projection", "softDeleted"),
    permission="storage.buckets.list",
)
def list_(call: Call) -> dict[str, Any]:
    """Return the buckets of a project."""
    project = projects.find(call.world, call.query.get("project", ""))
    rows = store.listed(call.world, "storage", f"b/{call.query.get('prefix', '')}", "buckets")
    found = [
        dict(row.document) for row in rows if project and row.document["projectNumber"] == project.number
    ]
    items, token = paging.page(found, call)
    return {"kind": "storage#buckets", "items": items, **({"nextPageToken": token} if token else {})}


@rest(
    "storage",
    "buckets.patch",
    "PATCH",
    URL + "/{bucket}",
    body=dict,
    query=("projection", *conditions.METAGENERATION),
    permission="storage.buckets.update",
)
def patch(call: Call) -> dict[str, Any]:
    """Change what is named; null removes a field."""
    found, wishes = need(call), call.body
    conditions.check(call, found.document)
    _known(wishes, _WRITABLE | _BIRTH)
    if fixed := sorted(name for name in _BIRTH & set(wishes) if wishes[name] != found.document.get(name)):
        raise invalid(f"The bucket's {fixed[0]} cannot be changed.")
    after = _merged(found.document, {name: wishes[name] for name in _WRITABLE & set(wishes)})
    _check(after)
    after["metageneration"] = str(int(after["metageneration"]) + 1)
    after["updated"] = moment(call.world)
    _stamp(after)
    found.document = after
    return dict(after)


def _merged(old: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a document with changes merged in: objects within objects, null removes a field."""
    merged = dict(old)
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            inside = merged.get(name, {})
            merged[name] = _merged(inside if isinstance(inside, dict) else {}, value)
        else:
            merged[name] = value
    return merged


@rest(
    "storage",
    "buckets.delete",
    "DELETE",
    URL + "/{bucket}",
    query=conditions.METAGENERATION,
    permission="storage.buckets.delete",
)
def delete(call: Call) -> Reply:
    """Delete an empty bucket: one without objects, old versions and folders."""
    found = need(call)
    conditions.check(call, found.document)
    _slow_down(call.world)
    if found.hidden.get("objects") or found.hidden.get("folders"):
        raise GcpError("ALREADY_EXISTS", "The bucket you tried to delete is not empty.")
    store.remove(call.world, "storage", found.path)
    policies.forget(call.world, found.path)
    return Reply(status=204)


def _write_taken(world: World, names: list[str]) -> None:
    world.state(Rate).taken = list(names)


setting("taken_buckets", read=lambda world: world.state(Rate).taken, write=_write_taken)
