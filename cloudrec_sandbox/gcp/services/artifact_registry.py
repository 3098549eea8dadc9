"""Artifact Registry v1: repositories, made and deleted by operations; a deletion removes the images, too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from google.cloud.artifactregistry_v1.types.repository import Repository
from google.cloud.artifactregistry_v1.types.service import OperationMetadata
from google.protobuf.empty_pb2 import Empty

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest
from cloudrec_sandbox.gcp.resources import checks, operations, paging, places, store
from cloudrec_sandbox.gcp.services.iam import policies

if TYPE_CHECKING:
    from google.longrunning.operations_pb2 import Operation

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

durations({"artifactregistry-create": 5, "artifactregistry-delete": 5})

_SERVICE = "artifactregistry"
_MULTI = ("us", "europe", "asia")
_URL = "/v1/projects/{project}/locations/{location}/repositories"
_PERMISSION = "artifactregistry.repositories"
_FORMATS = frozenset(("APT", "DOCKER", "GENERIC", "GO", "GOOGET", "KFP", "MAVEN", "NPM", "PYTHON", "YUM"))
_PATCHED = ("description", "labels", "cleanupPolicies", "cleanupPolicyDryRun", "dockerConfig")


def _path(call: Call) -> str:
    return f"projects/{call.project}/locations/{call.params['location']}/repositories/{call.params['name']}"


def _need(call: Call) -> Resource:
    found = store.find(call.world, _SERVICE, _path(call))
    if found is None or found.hidden.get("making"):
        raise GcpError("NOT_FOUND", f"Requested entity was not found: {_path(call)}")
    return found


def _place(call: Call) -> None:
    place = call.params["location"]
    if place not in places.REGIONS and place not in _MULTI:
        raise GcpError("INVALID_ARGUMENT", f"Location {place} is not found or access is unauthorized.")


@rest(
    _SERVICE,
    "projects.locations.repositories.create",
    "POST",
    _URL,
    body=Repository,
    query=("repositoryId",),
    permission=f"{_PERMISSION}.create",
)
def create(call: Call) -> Operation:
    """Begin to create a repository."""
    _place(call)
    document, name = call.body, call.query.get("repositoryId", "")
    if not checks.is_name(name):
        raise GcpError(
            "INVALID_ARGUMENT",
            f"invalid repository name: '{name}' must be of lowercase letters, digits and dashes, at most 63.",
        )
    kind = document.get("format", "")
    if kind not in _FORMATS:
        raise GcpError("INVALID_ARGUMENT", f"Repository format is not set or unknown: '{kind}'")
    checks.labels(document.get("labels", {}), "repository.labels")
    path = f"projects/{call.project}/locations/{call.params['location']}/repositories/{name}"
    if store.find(call.world, _SERVICE, path):
        raise GcpError("ALREADY_EXISTS", "the repository already exists")
    moment = as_datetime(call.world.now()).isoformat(timespec="microseconds").replace("+00:00", "Z")
    document |= {
        "name": path,
        "createTime": moment,
        "updateTime": moment,
        "mode": document.get("mode", "STANDARD_REPOSITORY"),
        "sizeBytes": "0",
        "registryUri": f"{call.params['location']}-docker.pkg.dev/{call.project}/{name}",
    }
    resource = store.add(call.world, _SERVICE, "repositories", path, document)
    resource.hidden["making"] = True
    return _begin(call, "artifactregistry-create", made, path)


def _begin(call: Call, duration: str, step: Any, path: str) -> Operation:  # noqa: ANN401 - a function
    return operations.begin_long(
        call.world,
        f"projects/{call.project}/locations/{call.params['location']}",
        seconds=call.world.duration(duration),
        step=step,
        arguments=(path,),
        metadata=OperationMetadata(),
    )


def made(world: World, path: str) -> Repository:
    """Return the repository, which exists from now on."""
    resource = store.need(world, _SERVICE, path)
    resource.hidden.pop("making", None)
    return Repository.from_json(json.dumps(resource.document))


@rest(
    _SERVICE,
    "projects.locations.repositories.get",
    "GET",
    _URL + "/{name}",
    permission=f"{_PERMISSION}.get",
)
def get(call: Call) -> dict[str, Any]:
    """Return one repository."""
    return dict(_need(call).document)


@rest(
    _SERVICE,
    "projects.locations.repositories.list",
    "GET",
    _URL,
    query=paging.QUERY,
    permission=f"{_PERMISSION}.list",
)
def list_(call: Call) -> dict[str, Any]:
    """Return the repositories of a place."""
    _place(call)
    folder = f"projects/{call.project}/locations/{call.params['location']}/repositories/"
    rows = store.listed(call.world, _SERVICE, folder)
    items, token = paging.page([dict(row.document) for row in rows if not row.hidden.get("making")], call)
    return {"repositories": items, **({"nextPageToken": token} if token else {})}


@rest(
    _SERVICE,
    "projects.locations.repositories.patch",
    "PATCH",
    _URL + "/{name}",
    body=Repository,
    query=("updateMask",),
    permission=f"{_PERMISSION}.update",
)
def patch(call: Call) -> dict[str, Any]:
    """Change the fields that the mask names."""
    document = _need(call).document
    for field in filter(None, call.query.get("updateMask", "").split(",")):
        if field not in _PATCHED:
            raise GcpError("INVALID_ARGUMENT", f"Field '{field}' cannot be updated.")
        document[field] = call.body.get(field, {} if field == "labels" else "")
    checks.labels(document.get("labels", {}), "repository.labels")
    return dict(document)


@rest(
    _SERVICE,
    "projects.locations.repositories.delete",
    "DELETE",
    _URL + "/{name}",
    permission=f"{_PERMISSION}.delete",
)
def delete(call: Call) -> Operation:
    """Begin to delete a repository with its images."""
    return _begin(call, "artifactregistry-delete", unmade, _need(call).path)


def unmade(world: World, path: str) -> Empty:
    """Remove the repository."""
    store.remove(world, _SERVICE, path)
    policies.forget(world, path)
    return Empty()


def _holder(call: Call) -> str:
    return _need(call).path


policies.serve(
    _SERVICE,
    "projects.locations.repositories",
    _URL + "/{name}",
    holder=_holder,
    permission=_PERMISSION,
    reads_by_get=True,
)
