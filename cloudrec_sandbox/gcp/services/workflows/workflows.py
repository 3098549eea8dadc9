"""Workflows v1: create, get, list, patch and delete, by long-running operations, and the list of locations.

Written from google/cloud/workflows/v1/workflows.proto of googleapis and the discovery document.

`workflow_regions` of /_control: the regions that Workflows is in; all of them at the start.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api import schemas
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest, setting
from cloudrec_sandbox.gcp.resources import operations, paging, store
from cloudrec_sandbox.gcp.resources.places import REGIONS
from cloudrec_sandbox.gcp.services.workflows import checks

if TYPE_CHECKING:
    from google.longrunning.operations_pb2 import Operation

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

SERVICE = "workflows"
durations({"workflows-change": 10})

_PARENT = "/v1/{parent=projects/*/locations/*}"
_ONE = "/v1/{name=projects/*/locations/*/workflows/*}"
_MARK = "operation-"  # how the names of its operations begin
_WORKFLOW = "type.googleapis.com/google.cloud.workflows.v1.Workflow"
_MASKED = re.compile(r"_([a-z])")
_NEW_REVISION = ("serviceAccount", "sourceContents")


@dataclass
class WorkflowRegions:
    """The regions that the service is in."""

    names: list[str] = field(default_factory=lambda: sorted(REGIONS))


def check_place(call: Call, path: str) -> None:
    """Raise GcpError for a path in a location that the service is not in."""
    place = path.split("/")[3]
    if place not in call.world.state(WorkflowRegions).names:
        raise GcpError(
            "PERMISSION_DENIED",
            f"Location {place} is not found or access is unauthorized.",
            reason="LOCATION_POLICY_VIOLATED",
        )


def need(call: Call, path: str) -> Resource:
    """Return the workflow with a path; GcpError if there is none."""
    check_place(call, path)
    found = store.find(call.world, SERVICE, path)
    if found is None:
        raise GcpError("NOT_FOUND", f"workflow '{path}' does not exist")
    return found


def _moment(world: World) -> str:
    return as_datetime(world.now()).isoformat().replace("+00:00", "Z")


def _begin(call: Call, parent: str, step: Any, arguments: tuple[Any, ...]) -> Operation:  # noqa: ANN401 - a function
    return operations.begin_long(
        call.world,
        parent,
        mark=_MARK,
        seconds=call.world.duration("workflows-change"),
        step=step,
        arguments=arguments,
    )


def _revised(document: dict[str, Any], number: int, moment: str) -> None:
    document |= {"revisionId": f"{number:06}-{secrets.token_hex(2)[:3]}", "revisionCreateTime": moment}


def _message(document: dict[str, Any]) -> Struct:
    return ParseDict(document, Struct())


@rest(
    SERVICE,
    "projects.locations.workflows.create",
    "POST",
    f"{_PARENT}/workflows",
    body=dict,
    query=("workflowId",),
    permission="workflows.workflows.create",
)
def create(call: Call) -> Operation:
    """Begin to deploy a workflow; a name in use and a source with an error fail in the operation."""
    parent = call.params["parent"]
    check_place(call, f"{parent}/workflows")
    path = f"{parent}/workflows/{checks.identifier(call.query.get('workflowId', ''))}"
    checks.workflow(call, call.body)
    document = {name: call.body[name] for name in checks.FIELDS if call.body.get(name)}
    account = checks.email(document["serviceAccount"])
    document["serviceAccount"] = f"projects/{call.project}/serviceAccounts/{account}"
    return _begin(call, parent, created, (path, document))


def created(world: World, path: str, document: dict[str, Any]) -> Struct:
    """Deploy a workflow; GcpError if its name is in use, or for an error in its source."""
    if store.find(world, SERVICE, path):
        raise GcpError("ALREADY_EXISTS", f"workflow '{path}' already exists")
    checks.program(document["sourceContents"])
    moment = _moment(world)
    document = {**document, "name": path, "state": "ACTIVE", "createTime": moment, "updateTime": moment}
    _revised(document, 1, moment)
    store.add(world, SERVICE, "workflows", path, document)
    return _message(document)


@rest(SERVICE, "projects.locations.workflows.get", "GET", _ONE, permission="workflows.workflows.get")
def get(call: Call) -> dict[str, Any]:
    """Return one workflow with its source."""
    return dict(need(call, call.params["name"]).document)


@rest(
    SERVICE,
    "projects.locations.workflows.list",
    "GET",
    f"{_PARENT}/workflows",
    query=paging.QUERY,
    permission="workflows.workflows.list",
)
def list_(call: Call) -> dict[str, Any]:
    """Return the workflows of one location."""
    front = f"{call.params['parent']}/workflows"
    check_place(call, front)
    rows = store.listed(call.world, SERVICE, f"{front}/", "workflows")
    items, token = paging.page([dict(row.document) for row in rows], call)
    return {"workflows": items, **({"nextPageToken": token} if token else {})}


@rest(
    SERVICE,
    "projects.locations.workflows.patch",
    "PATCH",
    _ONE,
    body=dict,
    query=("updateMask",),
    permission="workflows.workflows.update",
)
def patch(call: Call) -> Operation:
    """Begin to change the fields of the mask."""
    resource = need(call, call.params["name"])
    mask = [
        _MASKED.sub(lambda found: found[1].upper(), name)
        for name in call.query.get("updateMask", "").split(",")
        if name
    ] or [name for name in call.body if name in checks.FIELDS]
    if unknown := sorted(set(mask) - set(checks.FIELDS)):
        raise checks.invalid(f"The update mask has the invalid field '{unknown[0]}'.")
    wanted = {name: value for name, value in resource.document.items() if name not in mask}
    wanted |= {name: call.body[name] for name in mask if call.body.get(name)}
    checks.workflow(call, wanted)
    return _begin(call, resource.path.rpartition("/workflows/")[0], patched, (resource.path, wanted))


def patched(world: World, path: str, wanted: dict[str, Any]) -> Struct:
    """Change a workflow; a new source or account is a new revision."""
    resource = store.need(world, SERVICE, path)
    checks.program(wanted["sourceContents"])
    is_revised = any(wanted[name] != resource.document[name] for name in _NEW_REVISION)
    number = int(resource.document["revisionId"].partition("-")[0])
    moment = _moment(world)
    resource.document.clear()
    resource.document.update(wanted, updateTime=moment)
    if is_revised:
        _revised(resource.document, number + 1, moment)
    return _message(resource.document)


@rest(SERVICE, "projects.locations.workflows.delete", "DELETE", _ONE, permission="workflows.workflows.delete")
def delete(call: Call) -> Operation:
    """Begin to delete a workflow, with its executions."""
    path = need(call, call.params["name"]).path
    return _begin(call, path.rpartition("/workflows/")[0], deleted, (path,))


def deleted(world: World, path: str) -> Empty:
    """Remove a workflow."""
    store.remove(world, SERVICE, path)
    return Empty()


@rest(
    SERVICE,
    "projects.locations.operations.get",
    "GET",
    "/v1/projects/{project}/locations/{location}/operations/operation-{operation}",
    permission="workflows.operations.get",
)
def operation(call: Call) -> dict[str, Any]:
    """Return an operation; its response is a workflow."""
    document = schemas.shown(operations.find_long(call.world, call.raw.path.split("/", 2)[2]))
    if "value" in (response := document.get("response", {})):
        document["response"] = {"@type": _WORKFLOW, **response["value"]}
    return document


def _write(world: World, names: list[str]) -> None:
    if unknown := sorted(set(names) - set(REGIONS)):
        raise ValueError(f"unknown region {', '.join(unknown)}; there are: {', '.join(sorted(REGIONS))}")
    world.state(WorkflowRegions).names = sorted(names)


setting("workflow_regions", read=lambda world: world.state(WorkflowRegions).names, write=_write)
