"""Long-running operations of Google's services, written as "SERVICE PATH" so that the journal can keep them.

Compute Engine, GKE and the other services each have their own kind of operation; `look` reads them all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol, TypedDict

from cloudrec.providers.base.operated import OperationFailedError, OperationProgress
from cloudrec.providers.gcp.api import ids, sdk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.api_core.operation import Operation

    from cloudrec.providers.gcp.api.client import Gcp

_SHOWN = 80  # characters of a wrong name in a message
_COMPUTE, _CONTAINER = "compute", "container"
_BY_REST = ("servicenetworking", "workflows")  # the SDK has no client for them
_DONE = "DONE"
# google.rpc.Code, by number.
_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
# GKE reports some codes only in the message: "... Code: GCE_STOCKOUT", "[ZONE_RESOURCE_POOL_EXHAUSTED]".
_CODE = re.compile(r"\b([A-Z]+(?:_[A-Z]+)*_(?:STOCKOUT|EXHAUSTED(?:_WITH_DETAILS)?|QUOTA_EXCEEDED))\b")


class _Status(Protocol):
    """The error of a long-running operation: a google.rpc.Code and a message."""

    code: int
    message: str


class _LongRunning(Protocol):
    """A google.longrunning operation, which most services use."""

    name: str
    done: bool
    error: _Status


class _Operations(Protocol):
    """The client of a service with long-running operations."""

    def get_operation(self, request: dict[str, object], *, retry: None, timeout: float) -> _LongRunning:
        """Return one operation."""


class _JsonStatus(TypedDict, total=False):
    code: int
    message: str


class _JsonOperation(TypedDict, total=False):
    done: bool
    error: _JsonStatus


# The clients of the services with long-running operations.
_SERVICES: Mapping[str, Callable[[Gcp], _Operations]] = {
    "artifactregistry": lambda gcp: gcp.rest(sdk.artifactregistry.ArtifactRegistryClient),
    "lustre": lambda gcp: gcp.lustre,
    "serviceusage": lambda gcp: gcp.rest(sdk.service_usage.ServiceUsageClient),
}


def of_compute(operation: sdk.compute.Operation) -> str:
    """Return an operation of Compute Engine as text."""
    return f"{_COMPUTE} {ids.known(operation.self_link)}"


def of_container(gcp: Gcp, operation: sdk.container.Operation) -> str:
    """Return an operation of GKE as text; GKE accepts no read by the operation's own self link."""
    path = f"projects/{gcp.project}/locations/{operation.location}/operations/{operation.name}"
    return f"{_CONTAINER} {ids.known(path)}"


def of_service(service: str, operation: Operation) -> str:
    """Return the operation of another service's client as text."""
    begun: _LongRunning = operation.operation
    return named(service, begun.name)


def named(service: str, name: str) -> str:
    """Return the operation of another service, given by its name, as text; ValueError if it is no name."""
    if not name.partition("operations/")[2] or not name.isprintable():
        raise ValueError(f"{service} describes an operation with the name {name[:_SHOWN]!r}")
    return f"{service} {name}"


def begun(gcp: Gcp, location: str, target: str) -> str:
    """Return GKE's latest operation on a cluster or pool as text; empty if there is none.

    Used when the answer of the call that started the operation was lost.

    Args:
        gcp: the project.
        location: the region or zone of the cluster.
        target: the path of the cluster or node pool.
    """
    parent = f"projects/{gcp.project}/locations/{location}"
    request = sdk.container.ListOperationsRequest(parent=parent)
    listed = gcp.read(gcp.container.list_operations, request).operations
    # GKE writes a project by its id or number, and a zone under zones/ or locations/: only the end compares.
    tail = target.partition("/clusters/")[2]
    found = [row for row in listed if row.target_link.partition("/clusters/")[2] == tail]
    return of_container(gcp, max(found, key=lambda row: row.start_time)) if found else ""


def look(gcp: Gcp, operation: str) -> OperationProgress:
    """Read the progress of an operation once; an operation that Google no longer lists is done."""
    service, _, path = operation.partition(" ")
    if service == _COMPUTE:
        return _look_at_compute(gcp, path)
    if service == _CONTAINER:
        return _look_at_container(gcp, path)
    return _look_at_service(gcp, service, path)


def _look_at_compute(gcp: Gcp, path: str) -> OperationProgress:
    where, of = ids.arguments(path), sdk.compute
    if "region" in where:
        row = gcp.get(gcp.rest(of.RegionOperationsClient).get, where)
    elif "zone" in where:
        row = gcp.get(gcp.rest(of.ZoneOperationsClient).get, where)
    else:
        row = gcp.get(gcp.rest(of.GlobalOperationsClient).get, where)
    if row is None:
        return OperationProgress(is_done=True)
    failed = row.error.errors if row.error else ()
    error = OperationFailedError(failed[0].code, failed[0].message) if failed else None
    return OperationProgress(is_done=row.status.name == _DONE, error=error)


def _look_at_container(gcp: Gcp, path: str) -> OperationProgress:
    row = gcp.get(gcp.container.get_operation, sdk.container.GetOperationRequest(name=path))
    if row is None:
        return OperationProgress(is_done=True)
    conditions = [*row.nodepool_conditions, *row.cluster_conditions]
    said = " ".join(
        dict.fromkeys(
            filter(None, (row.error.message, row.status_message, *(each.message for each in conditions)))
        )
    )
    failed = row.error.code or row.status_message
    is_done = row.status.name == _DONE
    # The code of a condition, such as GCE_STOCKOUT, is more specific than that of the operation.
    named = next((each.code.name for each in conditions if each.code), "")
    error = OperationFailedError(named, said) if named else _failed(row.error.code, said)
    return OperationProgress(is_done=is_done, error=error if is_done and failed else None)


def _look_at_service(gcp: Gcp, service: str, name: str) -> OperationProgress:
    if service in _BY_REST:
        answer: _JsonOperation | None = gcp.or_none(
            lambda: gcp.repeat(lambda: gcp.send(service, "GET", f"/v1/{name}"))
        )
        error = (answer or {}).get("error") or {}
        code, said = int(error.get("code", 0)), error.get("message", "")
        is_done = answer is None or bool(answer.get("done"))
    else:
        request: dict[str, object] = {"name": name}
        row = gcp.get(_SERVICES[service](gcp).get_operation, request)
        code, said = (row.error.code, row.error.message) if row is not None else (0, "")
        is_done = row is None or row.done
    return OperationProgress(is_done=is_done, error=_failed(code, said) if is_done and code else None)


def _failed(number: int, said: str) -> OperationFailedError:
    found = _CODE.search(said)
    name = _CODES[number] if 0 < number < len(_CODES) else "UNKNOWN"
    return OperationFailedError(found[1] if found else name, said)
