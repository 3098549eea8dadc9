"""Long-running operations: named when begun, kept as text, looked at when somebody asks.

Each family of Google's services has operations of its own; as text, one is "SERVICE PATH".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.operated import OperationFailedError, Progress
from cloudrec.providers.gcp import ids

if TYPE_CHECKING:
    from cloudrec.providers.gcp.client import Gcp

_COMPUTE, _CONTAINER, _NETWORKING = "compute", "container", "servicenetworking"
_DONE = "DONE"
# google.rpc.Code, by number.
_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
# What GKE says in words, and only there: "... Code: GCE_STOCKOUT", "[ZONE_RESOURCE_POOL_EXHAUSTED]".
_TOLD = re.compile(r"\b([A-Z]+(?:_[A-Z]+)*_(?:STOCKOUT|EXHAUSTED(?:_WITH_DETAILS)?|QUOTA_EXCEEDED))\b")


def of_compute(operation: Any) -> str:  # noqa: ANN401 - the SDK's message
    """Return Compute Engine's operation as text."""
    return f"{_COMPUTE} {ids.path(operation.self_link)}"


def of_container(gcp: Gcp, operation: Any) -> str:  # noqa: ANN401 - the SDK's message
    """Return GKE's operation as text; its own link has zones and numbers, by which GKE cannot be asked."""
    return f"{_CONTAINER} projects/{gcp.project}/locations/{operation.location}/operations/{operation.name}"


def of_service(service: str, name: str) -> str:
    """Return any other service's operation as text, by its name."""
    return f"{service} {name}"


def begun(gcp: Gcp, location: str, target: str) -> str:
    """Return GKE's latest operation on a thing as text, for where its own answer was lost; empty if none.

    Args:
        gcp: the project.
        location: region or zone of the cluster.
        target: the path of the cluster or node pool.
    """
    parent = f"projects/{gcp.project}/locations/{location}"
    listed = gcp.read(gcp.client(_CONTAINER).list_operations, parent=parent).operations
    # GKE writes projects by their number too, and zones as zones or locations: what follows is the same.
    tail = target.partition("/clusters/")[2]
    found = [row for row in listed if row.target_link.partition("/clusters/")[2] == tail]
    return of_container(gcp, max(found, key=lambda row: row.start_time)) if found else ""


def look(gcp: Gcp, operation: str) -> Progress:
    """Ask once how far an operation has come; one that Google has forgotten is done."""
    service, _, path = operation.partition(" ")
    if service == _COMPUTE:
        return _look_at_compute(gcp, path)
    if service == _CONTAINER:
        return _look_at_container(gcp, path)
    return _look_at_service(gcp, service, path)


def _look_at_compute(gcp: Gcp, path: str) -> Progress:
    arguments = ids.arguments(path)
    scope = next((place for place in ("region", "zone") if place in arguments), "global")
    row = gcp.get(gcp.compute(f"{scope}_operations").get, **arguments)
    if row is None:
        return Progress(is_done=True)
    failed = row.error.errors if row.error else ()
    error = OperationFailedError(failed[0].code, failed[0].message) if failed else None
    return Progress(is_done=row.status.name == _DONE, error=error)


def _look_at_container(gcp: Gcp, path: str) -> Progress:
    row = gcp.get(gcp.client(_CONTAINER).get_operation, name=path)
    if row is None:
        return Progress(is_done=True)
    conditions = [*row.nodepool_conditions, *row.cluster_conditions]
    said = " ".join(
        dict.fromkeys(
            filter(None, (row.error.message, row.status_message, *(each.message for each in conditions)))
        )
    )
    failed = row.error.code or row.status_message
    is_done = row.status.name == _DONE
    named = next((each.code.name for each in conditions if each.code), "")
    error = OperationFailedError(named, said) if named else _failed(row.error.code, said)
    return Progress(is_done=is_done, error=error if is_done and failed else None)


def _look_at_service(gcp: Gcp, service: str, name: str) -> Progress:
    if service == _NETWORKING:  # it has no client
        row = gcp.or_none(lambda: gcp.repeat(lambda: gcp.send(service, "GET", f"/v1/{name}")))
        told = (row or {}).get("error") or {}
        code, said = int(told.get("code", 0)), str(told.get("message", ""))
        is_done = row is None or bool(row.get("done"))
    else:
        row = gcp.get(gcp.client(service).get_operation, name=name)
        code, said = (row.error.code, row.error.message) if row is not None else (0, "")
        is_done = row is None or row.done
    return Progress(is_done=is_done, error=_failed(code, said) if is_done and code else None)


def _failed(number: int, said: str) -> OperationFailedError:
    told = _TOLD.search(said)
    name = _CODES[number] if 0 < number < len(_CODES) else "UNKNOWN"
    return OperationFailedError(told[1] if told else name, said)
