"""GKE's operations: one for a cluster at a time, plain messages that are polled by name.

`gke_pool_operations` of /_control: how many operations of node pools a cluster takes at once (1): beyond
that with 1 the next is refused as incompatible, with more as over the quota of concurrent operations.
`gke_upgrade`: {"cluster": NAME} lets Google begin an upgrade of a cluster's control plane now.
"""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.cloud.container_v1.types import (
    Cluster,
    ListOperationsResponse,
    NodePool,
    Operation,
    StatusCondition,
)
from google.rpc.status_pb2 import Status

from cloudrec_sandbox.gcp.api.errors import CODES, GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rpc, setting
from cloudrec_sandbox.gcp.services.gke.state import Gke, Record, link, moment, not_found, place

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.cloud.container_v1.types import (
        CancelOperationRequest,
        GetOperationRequest,
        ListOperationsRequest,
    )

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.services.gke.state import ClusterState

Kind = Operation.Type

durations({"gke-upgrade": 600})  # of a control plane

_POOL_KINDS = (
    Kind.CREATE_NODE_POOL,
    Kind.DELETE_NODE_POOL,
    Kind.SET_NODE_POOL_SIZE,
    Kind.UPGRADE_NODES,
    Kind.SET_NODE_POOL_MANAGEMENT,
)
_DOING = {
    Kind.CREATE_CLUSTER: "creating cluster",
    Kind.DELETE_CLUSTER: "deleting cluster",
    Kind.UPGRADE_MASTER: "upgrading cluster",
    Kind.UPDATE_CLUSTER: "updating cluster",
    Kind.RESIZE_CLUSTER: "resizing cluster",
    Kind.CREATE_NODE_POOL: "creating node pool",
    Kind.DELETE_NODE_POOL: "deleting node pool",
    Kind.SET_NODE_POOL_SIZE: "resizing node pool",
    Kind.UPGRADE_NODES: "upgrading node pool",
    Kind.SET_NODE_POOL_MANAGEMENT: "updating node pool",
}


@dataclass
class Limits:
    """How many operations of node pools a cluster takes at once."""

    pools: int = 1


@dataclass(frozen=True)
class Trouble:
    """Why an operation failed: GKE's condition, the canonical code, and the message."""

    condition: str
    message: str
    code: str = "RESOURCE_EXHAUSTED"

    def shown(self) -> StatusCondition:
        """Return it as clusters, pools and operations show it."""
        return StatusCondition(
            code=StatusCondition.Code[self.condition],
            message=self.message,
            canonical_code=CODES[self.code].number,
        )


@dataclass(frozen=True)
class Later:
    """The operation continues; its step runs again after `seconds`."""

    seconds: float


def begin(
    world: World,
    cluster: ClusterState,
    kind: Operation.Type,
    *,
    seconds: float,
    step: Callable[..., Trouble | Later | None],
    arguments: tuple[Any, ...] = (),
    pool: str = "",
) -> Operation:
    """Begin an operation, ended by `step(world, *arguments)`; the caller has called `admit` before."""
    name = f"operation-{int(world.now() * 1000)}-{uuid.uuid4()}"
    path = f"projects/{cluster.project}/locations/{cluster.location}/operations/{name}"
    target = f"{cluster.path}/nodePools/{pool}" if pool else cluster.path
    message = Operation(
        name=name,
        zone=cluster.location,
        location=cluster.location,
        operation_type=kind,
        status=Operation.Status.RUNNING,
        self_link=link(world, path),
        target_link=link(world, target),
        start_time=moment(world),
    )
    world.state(Gke).operations[path] = Record(message, cluster.path, pool)
    cluster.running.append(path)
    if cluster.message.status == Cluster.Status.RUNNING:
        cluster.message.status = Cluster.Status.RECONCILING
    world.after(seconds, end, path, step, arguments)
    return Operation(message)


def admit(world: World, cluster: ClusterState, kind: Operation.Type, pool: str = "") -> None:
    """Refuse an operation for which another one must end first."""
    state, most = world.state(Gke), world.state(Limits).pools
    for path in cluster.running:
        record = state.operations[path]
        running = record.message.operation_type
        # Only operations of different pools run together, and only if the limit is raised.
        together = most > 1 and running in _POOL_KINDS and kind in _POOL_KINDS and record.pool != pool
        if together:
            continue
        if record.pool and pool and record.pool != pool:
            text = f"Cluster is running incompatible operation {record.message.name}."
            raise GcpError("FAILED_PRECONDITION", text)
        what = record.pool or cluster.name
        raise GcpError(
            "FAILED_PRECONDITION",
            f"Operation {record.message.name} is currently {_DOING[running]} {what}. Please wait and try"
            " again once it is done.",
            reason="CLUSTER_ALREADY_HAS_OPERATION",
        )
    if len(cluster.running) >= most > 1:
        raise GcpError(
            "RESOURCE_EXHAUSTED",
            f"Cluster {cluster.path} hits the concurrent operations quota {most}. Please try again later.",
        )


def end(world: World, path: str, step: Callable[..., Trouble | Later | None], arguments: Any) -> None:  # noqa: ANN401
    """End an operation that is due, unless it was cancelled."""
    state = world.state(Gke)
    record = state.operations[path]
    if record.message.status == Operation.Status.DONE:
        return
    outcome = step(world, *arguments)
    if isinstance(outcome, Later):
        world.after(outcome.seconds, end, path, step, arguments)
        return
    if outcome:
        _fail(record, outcome)
    _close(world, record, path)


def _fail(record: Record, trouble: Trouble) -> None:
    message = record.message
    message.status_message = trouble.message
    message.error = Status(code=CODES[trouble.code].number, message=trouble.message)
    (message.nodepool_conditions if record.pool else message.cluster_conditions).append(trouble.shown())


def _close(world: World, record: Record, path: str) -> None:
    record.message.status = Operation.Status.DONE
    record.message.end_time = moment(world)
    cluster = world.state(Gke).clusters.get(record.cluster)
    if cluster is None or path not in cluster.running:
        return
    cluster.running.remove(path)
    if not cluster.running and cluster.message.status == Cluster.Status.RECONCILING:
        cluster.message.status = Cluster.Status.RUNNING


@rpc("container", "google.container.v1.ClusterManager/GetOperation", permission="container.operations.get")
def get_operation(call: Call, request: GetOperationRequest) -> Operation:
    """Return an operation."""
    record = call.world.state(Gke).operations.get(request.name)
    if record is None:
        raise not_found(request.name)
    return record.message


@rpc("container", "google.container.v1.ClusterManager/ListOperations", permission="container.operations.list")
def list_operations(call: Call, request: ListOperationsRequest) -> ListOperationsResponse:
    """Return the operations of a location, or with - of all locations."""
    project, location = place(request.parent)
    found = [
        record.message
        for path, record in call.world.state(Gke).operations.items()
        if path.split("/")[1] == project and location in ("-", record.message.location)
    ]
    return ListOperationsResponse(operations=found)


@rpc(
    "container",
    "google.container.v1.ClusterManager/CancelOperation",
    permission="container.operations.update",
)
def cancel_operation(call: Call, request: CancelOperationRequest) -> None:
    # GKE's documentation of "gcloud container operations cancel": only upgrades of pools can be cancelled.
    """Cancel an upgrade of a node pool; GKE cancels no other operation."""
    record = call.world.state(Gke).operations.get(request.name)
    if record is None:
        raise not_found(request.name)
    message = record.message
    if message.operation_type != Kind.UPGRADE_NODES or message.status == Operation.Status.DONE:
        raise GcpError(
            "FAILED_PRECONDITION",
            f"Operation {message.name} of type {Kind(message.operation_type).name} and status"
            f" {Operation.Status(message.status).name} cannot be cancelled.",
        )
    message.status_message = "The operation was cancelled."
    message.error = Status(code=CODES["CANCELLED"].number, message="The operation was cancelled.")
    _close(call.world, record, request.name)
    cluster = call.world.state(Gke).clusters.get(record.cluster)
    if cluster and record.pool in cluster.pools:
        cluster.pools[record.pool].message.status = NodePool.Status.RUNNING


def nothing(_world: World) -> None:
    """Change nothing: the step of an operation without a visible effect."""


def _write_limit(world: World, wish: int) -> None:
    if int(wish) < 1:
        raise ValueError(f"gke_pool_operations {wish} is below 1")
    world.state(Limits).pools = int(wish)


def _upgrade(world: World, wish: dict[str, str]) -> None:
    for cluster in world.state(Gke).clusters.values():
        if cluster.name == wish.get("cluster"):
            admit(world, cluster, Kind.UPGRADE_MASTER)
            seconds = world.duration("gke-upgrade")
            begin(world, cluster, Kind.UPGRADE_MASTER, seconds=seconds, step=nothing)
            return
    raise ValueError(f"there is no cluster {wish.get('cluster')!r} to upgrade")


setting("gke_pool_operations", read=lambda world: world.state(Limits).pools, write=_write_limit)
setting("gke_upgrade", read=lambda _world: None, write=_upgrade)


def new_id() -> str:
    """Return a new id for a cluster."""
    return secrets.token_hex(32)


def new_etag() -> str:
    """Return a new etag."""
    return str(uuid.uuid4())
