"""Operations: Compute's, global, of a region or of a zone; and the long-running ones of other services.

A change that takes time begins an operation, whose `step` runs when it is due. The step's result is the end
of the operation: None, a Failure of Compute, or for other services a message or a GcpError that it raises.
"""

from __future__ import annotations

import re
import secrets
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.longrunning.operations_pb2 import ListOperationsResponse
from google.longrunning.operations_pb2 import Operation as LongRunning

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api import errors, schemas
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest, rpc
from cloudrec_sandbox.gcp.resources import filters, paging, store

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

_SCOPE = re.compile(r"projects/[^/]+/(global|regions/[^/]+|zones/[^/]+)(?:/|$)")


@dataclass(frozen=True)
class Failure:
    """Why an operation of Compute failed: its code (RESOURCE_IN_USE_BY_ANOTHER_RESOURCE) and its message."""

    code: str
    message: str
    http: int = 400


@dataclass
class Operations:
    """Operations of Compute by path, the others by name; Compute's requests by their request id."""

    compute: dict[str, dict[str, Any]] = field(default_factory=dict)
    long: dict[str, LongRunning] = field(default_factory=dict)
    requests: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)


def begin(
    call: Call,
    kind: str,
    target: str,
    *,
    seconds: float,
    step: Callable[..., Failure | None] | None = None,
    arguments: tuple[Any, ...] = (),
) -> dict[str, Any]:
    """Begin an operation of Compute on the resource of a path; `step(world, *arguments)` ends it."""
    world, state = call.world, call.world.state(Operations)
    found = _SCOPE.match(target)
    scope = found[1] if found else "global"
    name = f"operation-{int(world.now() * 1000)}-{secrets.token_hex(6)}-{secrets.token_hex(4)}"
    path = f"projects/{call.project}/{scope}/operations/{name}"
    document = store.identify(world, {}, path, "compute#operation")
    moment = document.pop("creationTimestamp")
    document |= {
        "operationType": kind,
        "targetLink": store.link(target),
        "targetId": str(secrets.randbits(60)),
        "status": "RUNNING",
        "user": call.caller,
        "progress": 0,
        "insertTime": moment,
        "startTime": moment,
    }
    where, _, place = scope.partition("/")
    if place:
        document[where.removesuffix("s")] = store.link(f"projects/{call.project}/{scope}")
    state.compute[path] = document
    if request := call.query.get("requestId"):
        document["clientOperationId"] = request
        state.requests[call.project, request] = (f"{call.raw.method} {call.raw.path}", path)
    world.after(seconds, end, path, step, arguments)
    return dict(document)


def end(world: World, path: str, step: Callable[..., Failure | None] | None, arguments: Any) -> None:  # noqa: ANN401
    """End an operation that is due."""
    failure = step(world, *arguments) if step else None
    document = world.state(Operations).compute[path]
    moment = as_datetime(world.now()).isoformat(timespec="milliseconds")
    document |= {"status": "DONE", "progress": 100, "endTime": moment}
    if failure:
        document |= {
            "error": {"errors": [{"code": failure.code, "message": failure.message}]},
            "httpErrorStatusCode": failure.http,
            "httpErrorMessage": "FORBIDDEN"
            if failure.http == errors.CODES["PERMISSION_DENIED"].http
            else "BAD REQUEST",
        }


def replayed(call: Call) -> dict[str, Any] | None:
    """Return the operation that the same request began already, by its request id; None if there is none."""
    request = call.query.get("requestId")
    if request is None or call.service != "compute":
        return None
    try:
        known = uuid.UUID(request)
    except ValueError:
        known = uuid.UUID(int=0)
    # Compute takes the zero UUID for no request id, and refuses it.
    if known.int == 0:
        raise GcpError(
            "INVALID_ARGUMENT", f"Invalid value for field 'requestId': '{request}'. Must be a valid UUID."
        )
    state = call.world.state(Operations)
    before = state.requests.get((call.project, request))
    if before is None:
        return None
    what, path = before
    if what != f"{call.raw.method} {call.raw.path}":
        raise GcpError(
            "INVALID_ARGUMENT",
            f"Invalid value for field 'requestId': '{request}'. It was used for another request.",
        )
    return dict(state.compute[path])


def _path(call: Call) -> str:
    scope = "/".join(f"{where}s/{call.params[where]}" for where in ("region", "zone") if where in call.params)
    return f"projects/{call.project}/{scope or 'global'}/operations/{call.params['operation']}"


def _get(call: Call) -> dict[str, Any]:
    """Return an operation. `wait` may answer before it is done, and here it always does."""
    document = call.world.state(Operations).compute.get(_path(call))
    if document is None:
        raise GcpError("NOT_FOUND", f"The resource '{_path(call)}' was not found")
    return dict(document)


def _delete(call: Call) -> dict[str, Any]:
    _get(call)
    del call.world.state(Operations).compute[_path(call)]
    return {}


def _list(call: Call) -> dict[str, Any]:
    prefix = _path_prefix(call)
    found = [
        document for path, document in call.world.state(Operations).compute.items() if path.startswith(prefix)
    ]
    asked = call.query.get("filter", "")
    found = [document for document in found if filters.matches(asked, document)]
    items, token = paging.page(found, call)
    return {
        "kind": "compute#operationList",
        "id": prefix,
        "items": items,
        **({"nextPageToken": token} if token else {}),
    }


def _path_prefix(call: Call) -> str:
    scope = "/".join(f"{where}s/{call.params[where]}" for where in ("region", "zone") if where in call.params)
    return f"projects/{call.project}/{scope or 'global'}/operations/"


for _front, _scope in (
    ("global", "global"),
    ("region", "regions/{region}"),
    ("zone", "zones/{zone}"),
):
    _folder = f"/compute/v1/projects/{{project}}/{_scope}/operations"
    _owner = f"{_front}Operations"
    rest("compute", f"{_owner}.get", "GET", _folder + "/{operation}", permission=f"compute.{_owner}.get")(
        _get
    )
    rest(
        "compute", f"{_owner}.wait", "POST", _folder + "/{operation}/wait", permission=f"compute.{_owner}.get"
    )(_get)
    rest(
        "compute",
        f"{_owner}.delete",
        "DELETE",
        _folder + "/{operation}",
        permission=f"compute.{_owner}.delete",
    )(_delete)
    rest(
        "compute", f"{_owner}.list", "GET", _folder, query=paging.QUERY, permission=f"compute.{_owner}.list"
    )(_list)


def begin_long(
    world: World,
    parent: str,
    *,
    seconds: float,
    step: Callable[..., Any],
    arguments: tuple[Any, ...] = (),
    metadata: Any = None,  # noqa: ANN401 - any message
    mark: str = "",
) -> LongRunning:
    """Begin a long-running operation below `parent`, such as projects/P/locations/L ('' for none).

    `mark` is the prefix of its name, for services that show their operations by name.

    `step(world, *arguments)` returns the response, a message, or raises GcpError.
    """
    name = f"operations/{mark}{uuid.uuid4()}"
    operation = LongRunning(name=f"{parent}/{name}" if parent else name)
    if metadata is not None:
        operation.metadata.Pack(_raw(metadata))
    world.state(Operations).long[operation.name] = operation
    world.after(seconds, end_long, operation.name, step, arguments)
    return operation


def end_long(world: World, name: str, step: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """End an operation that is due."""
    operation = world.state(Operations).long[name]
    try:
        response = step(world, *arguments)
    except GcpError as error:
        operation.error.CopyFrom(errors.status_of(error, ""))
    else:
        operation.response.Pack(_raw(response))
    operation.done = True


def _raw(message: Any) -> Any:  # noqa: ANN401 - any message, of protobuf or proto-plus
    return type(message).pb(message) if hasattr(type(message), "pb") else message


def find_long(world: World, name: str) -> LongRunning:
    """Return the operation with a name; GcpError if there is none."""
    operation = world.state(Operations).long.get(name)
    if operation is None:
        raise GcpError("NOT_FOUND", f"Operation '{name}' was not found")
    return operation


@rest(
    "artifactregistry",
    "projects.locations.operations.get",
    "GET",
    "/v1/projects/{project}/locations/{location}/operations/{operation}",
)
@rest(
    "tpu",
    "projects.locations.operations.get",
    "GET",
    "/v2/projects/{project}/locations/{location}/operations/{operation}",
)
@rest("servicenetworking", "operations.get", "GET", "/v1/operations/pssn.{operation}")
@rest("serviceusage", "operations.get", "GET", "/v1/operations/{operation}")
@rest("cloudresourcemanager", "operations.get", "GET", "/v3/operations/{operation}")
def get_long(call: Call) -> dict[str, Any]:
    """Return an operation of a REST service."""
    return schemas.shown(find_long(call.world, call.raw.path.split("/", 2)[2]))


@rpc("operations", "google.longrunning.Operations/GetOperation")
def get_operation(call: Call, request: Any) -> LongRunning:  # noqa: ANN401 - the SDK's message
    """Return an operation of a gRPC service."""
    return find_long(call.world, request.name)


@rpc("operations", "google.longrunning.Operations/ListOperations")
def list_operations(call: Call, request: Any) -> ListOperationsResponse:  # noqa: ANN401 - the SDK's message
    """Return the operations below a parent."""
    known = call.world.state(Operations).long
    found = [operation for name, operation in known.items() if name.startswith(f"{request.name}/")]
    items, token = paging.part(found, request.page_size, request.page_token)
    return ListOperationsResponse(operations=items, next_page_token=token)
