"""Long-running operations: what is in progress, how it ends, and how clients poll it."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.registry import kinds, listeners
from cloudrec_sandbox.azure.arm.store import Resource, store
from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.core.http import Reply, json_reply

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.core.faults import Fault
    from cloudrec_sandbox.core.world import World

_API = "2020-01-01"
_RETENTION_S = 86400  # how long an operation can be polled after its end
RUNNING, SUCCEEDED, FAILED, CANCELED = "InProgress", "Succeeded", "Failed", "Canceled"


@dataclass
class Operation:
    """One operation. `verb` is create, update, delete, or an action's name."""

    id: str
    verb: str
    about: str  # the id of the resource
    kind: str  # the resource's type
    started_at: float
    retry_after: int
    ended_at: float | None = None
    status: str = RUNNING
    error: dict[str, Any] | None = None
    error_status: int = HTTPStatus.CONFLICT
    failure: dict[str, Any] | None = None  # the failure that was ordered by a fault
    result: dict[str, Any] | None = None  # what a poll by Location returns at the end
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Return whether it has ended."""
        return self.status != RUNNING

    def document(self) -> dict[str, Any]:
        """Return the operation as a poll by Azure-AsyncOperation shows it."""
        document: dict[str, Any] = {
            "id": self.id,
            "name": self.id,
            "status": self.status,
            "startTime": as_datetime(self.started_at).isoformat(),
        }
        if self.ended_at is not None:
            document["endTime"] = as_datetime(self.ended_at).isoformat()
        if self.error is not None:
            document["error"] = self.error
        return document


@dataclass
class Operations:
    """All operations by id."""

    rows: dict[str, Operation] = field(default_factory=dict)


def find(world: World, id_: str) -> Operation | None:
    """Return the operation with an id; None if there is none."""
    return world.state(Operations).rows.get(id_.lower())


def start(
    world: World, resource: Resource, verb: str, seconds: float, *, fault: Fault | None = None
) -> Operation:
    """Begin an operation that holds the resource for `seconds`; the hooks of its Kind decide how it ends.

    `fault` is the failure that is ordered for it.
    """
    operation = begin(world, resource, verb, retry_after=kinds[resource.type.lower()].retry_after)
    if fault is not None:
        operation.failure = {"code": fault.code, "message": fault.message}
    world.after(seconds, end, operation.id)
    return operation


def begin(world: World, resource: Resource, verb: str, *, retry_after: int = 10) -> Operation:
    """Begin an operation that lasts until the caller calls `conclude`."""
    operation = Operation(
        id=str(uuid4()),
        verb=verb,
        about=resource.id,
        kind=resource.type,
        started_at=world.now(),
        retry_after=retry_after,
    )
    world.state(Operations).rows[operation.id] = operation
    resource.busy = operation.id
    return operation


def end(world: World, id_: str) -> None:
    """End an operation that is due: it succeeds, or fails because its Kind or a fault says so."""
    operation = find(world, id_)
    if operation is None or operation.is_over:
        return
    resource = store(world).find(operation.about)
    if resource is None:
        conclude(world, operation)
        return
    kind = kinds[resource.type.lower()]
    try:
        _refuse_ordered(operation)
        kind.finish(world, resource, operation)
    except ArmError as error:
        break_off(world, resource, operation, error)
        return
    if operation.verb == "delete":
        remove(world, resource)
    else:
        kind.mark(resource, SUCCEEDED)
        operation.result = kind.show(world, resource)
    conclude(world, operation)


def break_off(world: World, resource: Resource, operation: Operation, error: ArmError) -> None:
    """Let an operation fail now; its resource stays, with the state Failed."""
    kind = kinds[resource.type.lower()]
    resource.deleting = False
    kind.fail(world, resource, operation)
    kind.mark(resource, FAILED)
    conclude(world, operation, error)


def _refuse_ordered(operation: Operation) -> None:
    if operation.failure is not None:
        raise ArmError(operation.failure["code"], operation.failure["message"])


def conclude(
    world: World, operation: Operation, error: ArmError | None = None, *, canceled: bool = False
) -> None:
    """End an operation now, and release its resource."""
    operation.ended_at = world.now()
    operation.status = CANCELED if canceled else FAILED if error else SUCCEEDED
    if error is not None:
        operation.error, operation.error_status = error.document(), error.status
    resource = store(world).find(operation.about)
    if resource is not None and resource.busy == operation.id:
        resource.busy = ""
    world.after(_RETENTION_S, forget, operation.id)


def forget(world: World, id_: str) -> None:
    """Forget an operation, which can no longer be polled."""
    world.state(Operations).rows.pop(id_, None)


def remove(world: World, resource: Resource) -> None:
    """Remove a resource, with everything that is part of it."""
    for each in [*reversed(store(world).below(resource.id)), resource]:
        if store(world).resources.pop(each.key, None) is None:
            continue
        kinds[each.type.lower()].removed(world, each)
        for listener in listeners:
            listener(world, each)


def headers(call: Call, operation: Operation) -> list[tuple[str, str]]:
    """Return the headers by which a client polls an operation, as its type's service sends them."""
    kind = kinds[operation.kind.lower()]
    path = call.path
    place = f"{call.base}/subscriptions/{path.subscription}"
    resource = store(call.world).find(operation.about)
    region = (resource.location if resource else "") or _region_of(call)
    if "/resourcegroups" not in kind.type.lower():
        place += f"/providers/{kind.type.partition('/')[0]}/locations/{region}"
    found = []
    if "azure-async" in kind.polled_by:
        found.append(("Azure-AsyncOperation", f"{place}/operations/{operation.id}?api-version={_API}"))
    if "location" in kind.polled_by or operation.verb == "delete":
        found.append(("Location", f"{place}/operationresults/{operation.id}?api-version={_API}"))
    return [*found, ("Retry-After", str(operation.retry_after))]


def _region_of(call: Call) -> str:
    """Return the region of the parent, for resources without a location."""
    owner = store(call.world).find(call.path.parent)
    return (owner.location if owner else "") or "eastus"


def poll(call: Call) -> Reply:
    """Return the state of an operation."""
    operation = find(call.world, call.path.name)
    if operation is None:
        raise ArmError(
            "NotFound", f"The operation '{call.path.name}' was not found.", status=HTTPStatus.NOT_FOUND
        )
    later = [("Retry-After", str(operation.retry_after))]
    if call.path.types[-1].lower() == "operations":
        document = operation.document() | {"id": call.path.text}
        return json_reply(document, headers=() if operation.is_over else later)
    # Location repeats 202 until the end, then answers as the first call would have.
    if not operation.is_over:
        where = f"{call.base}{call.request.target}"
        return Reply(status=HTTPStatus.ACCEPTED, headers=(("Location", where), *later))
    if operation.error is not None:
        return json_reply({"error": operation.error}, operation.error_status)
    if operation.result is None:
        return Reply(status=HTTPStatus.OK if operation.verb != "delete" else HTTPStatus.NO_CONTENT)
    return json_reply(operation.result)
