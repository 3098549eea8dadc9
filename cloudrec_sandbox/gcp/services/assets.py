"""Cloud Asset Inventory v1: the search for labelled resources of a project.

`assets` of /_control: [{"assetType": "redis.googleapis.com/Instance", "name":
"//redis.googleapis.com/projects/P/locations/us-central1/instances/i", "location": "us-central1", "labels":
{...}}] are resources of services that this stand-in does not have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api.apis import APIS
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest, setting
from cloudrec_sandbox.gcp.resources import paging, store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

# The last word of the types, by service and collection. The index has more of them.
_TYPES = {
    ("artifactregistry", "repositories"): "Repository",
    ("compute", "addresses"): "Address",
    ("compute", "disks"): "Disk",
    ("compute", "forwardingRules"): "ForwardingRule",
    ("compute", "images"): "Image",
    ("compute", "instances"): "Instance",
    ("compute", "snapshots"): "Snapshot",
    ("file", "instances"): "Instance",
    ("secretmanager", "secrets"): "Secret",
    ("storage", "buckets"): "Bucket",
    ("tpu", "nodes"): "Node",
}
# labels.KEY:* finds a key, labels.KEY:WORD a key whose value has the word.
_TERM = re.compile(r"labels\.([a-z][a-z0-9_-]*):(\*|[a-z0-9_]+)")
_PLACE = re.compile(r"/(?:locations|regions|zones)/([^/]+)/")
_FIELDS = {"assetType", "name", "location", "labels"}


@dataclass
class Assets:
    """Resources of other services."""

    rows: list[dict[str, Any]] = field(default_factory=list)


@rest(
    "cloudasset",
    "searchAllResources",
    "GET",
    "/v1/projects/{project}:searchAllResources",
    query=(*paging.QUERY, "query", "assetTypes", "readMask"),
    permission="cloudasset.assets.searchAllResources",
)
def search(call: Call) -> dict[str, Any]:
    """Return the resources whose labels match."""
    terms = _terms(call.query.get("query", ""))
    found = [row for row in _all(call.world, call.project) if _matches(terms, row["labels"])]
    items, token = paging.page(found, call)
    return {"results": items, **({"nextPageToken": token} if token else {})}


def _terms(query: str) -> list[tuple[str, str]]:
    """Return the labels that a query asks for, each of which suffices."""
    found = [_TERM.fullmatch(term.strip()) for term in query.split(" OR ")]
    if not query or None in found:
        raise GcpError("INVALID_ARGUMENT", f"this stand-in has no query like {query!r}: labels.KEY:* OR ...")
    return [(each[1], each[2]) for each in found if each]


def _matches(terms: list[tuple[str, str]], labels: Mapping[str, str]) -> bool:
    return any(
        key in labels and (word == "*" or word in re.split(r"[^a-z0-9_]", labels[key])) for key, word in terms
    )


def _all(world: World, project: str) -> Iterator[dict[str, Any]]:
    for (service, kind), word in _TYPES.items():
        for row in store.listed(world, service, "", kind, everywhere=True):
            yield _asset(project, service, word, row)
    yield from world.state(Assets).rows


def _asset(project: str, service: str, word: str, row: Resource) -> dict[str, Any]:
    place = _PLACE.search(row.path)
    host = APIS[service].host
    return {
        "name": f"//{host}/{row.path.removeprefix('b/')}",
        "assetType": f"{host}/{word}",
        "project": f"projects/{project}",
        "displayName": row.name,
        "location": place[1] if place else str(row.document.get("location", "global")).lower(),
        "labels": row.document.get("labels", {}),
        "createTime": row.document.get("creationTimestamp") or row.document.get("createTime", ""),
    }


def _write(world: World, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if set(row) != _FIELDS:
            raise ValueError(f"an asset has {', '.join(sorted(_FIELDS))}; not {', '.join(sorted(row))}")
    world.state(Assets).rows = [dict(row) for row in rows]


setting("assets", read=lambda world: world.state(Assets).rows, write=_write)
