"""Node pools: created, resized and deleted by operations.

A creation without available machines waits for them and holds the cluster meanwhile, even against the
deletion of that pool; it cannot be cancelled. A resize without available machines ends at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.cloud.container_v1.types import (
    DeleteNodePoolRequest,
    ListNodePoolsResponse,
    NodeManagement,
    NodePool,
    NodeTaint,
    Operation,
    SetNodePoolSizeRequest,
    WorkloadMetadataConfig,
)

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest, rpc
from cloudrec_sandbox.gcp.services.gke import machine, nodes, operations, pool_checks
from cloudrec_sandbox.gcp.services.gke.operations import Kind, Later, Trouble
from cloudrec_sandbox.gcp.services.gke.state import (
    ClusterState,
    Gke,
    PoolState,
    link,
    need_cluster,
    need_pool,
)

if TYPE_CHECKING:
    from google.cloud.container_v1.types import (
        CreateNodePoolRequest,
        GetNodePoolRequest,
        ListNodePoolsRequest,
    )

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

durations(
    {
        "gke-pool": 90,  # of machines without GPUs, or of none
        "gke-pool-gpu": 300,
        "gke-pool-stockout": 2100,  # how long a creation waits for machines
        "gke-pool-retry": 150,  # and how often it tries
        "gke-pool-resize": 120,
        "gke-pool-deletion": 150,
        "gke-flex-start": 600,  # in the queue
    }
)

_SERVICE = "google.container.v1.ClusterManager"
_POOL = "/v1/{name=projects/*/locations/*/clusters/*/nodePools/*}"  # REST, for callers without the SDK
_GPU_TAINT = NodeTaint(key="nvidia.com/gpu", value="present", effect=NodeTaint.Effect.NO_SCHEDULE)


def keep(world: World, cluster: ClusterState, wish: NodePool) -> PoolState:
    """Add a pool that is being created, with GKE's defaults; its groups are made, and empty."""
    message = NodePool(wish)
    config = message.config
    config.machine_type = config.machine_type or "e2-medium"
    config.disk_size_gb = config.disk_size_gb or 100
    config.disk_type = config.disk_type or "pd-balanced"
    config.image_type = (config.image_type or "COS_CONTAINERD").upper()
    if cluster.message.workload_identity_config.workload_pool and not config.workload_metadata_config:
        mode = WorkloadMetadataConfig.Mode.GKE_METADATA
        config.workload_metadata_config = WorkloadMetadataConfig(mode=mode)
    # GKE adds the GPU taint only if the cluster has a pool without GPUs already (its how-to/gpus).
    has_others = any(not pool.message.config.accelerators for pool in cluster.pools.values())
    is_tainted = any(taint.key == _GPU_TAINT.key for taint in config.taints)
    if config.accelerators and has_others and not is_tainted:
        config.taints.append(_GPU_TAINT)
    message.version = message.version or cluster.message.current_master_version
    message.locations = list(message.locations) or list(cluster.message.locations)
    if "management" not in message:
        message.management = NodeManagement(auto_upgrade=True, auto_repair=True)
    message.etag, message.status = operations.new_etag(), NodePool.Status.PROVISIONING
    message.self_link = link(world, f"{cluster.path}/nodePools/{message.name}")
    pool = PoolState(message, _first_count(message))
    cluster.pools[pool.name] = pool
    nodes.make_groups(world, cluster, pool)
    return pool


def _first_count(pool: NodePool) -> int:
    scaling = pool.autoscaling
    return int(max(pool.initial_node_count, scaling.min_node_count if scaling.enabled else 0))


def creation_seconds(world: World, pool: PoolState) -> float:
    """Return how long its creation takes if machines are available."""
    gpus = pool.message.config.accelerators and pool.wanted
    return world.duration("gke-pool-gpu" if gpus else "gke-pool")


def provide(world: World, cluster: ClusterState, pool: PoolState) -> Trouble | Later | None:
    """Start the machines of a pool that is being created; wait while there are none."""
    trouble = nodes.fill(world, cluster, pool)
    if trouble and trouble.condition == "GCE_STOCKOUT":
        pool.waiting_since = pool.waiting_since or world.now()
        if world.now() < pool.waiting_since + world.duration("gke-pool-stockout"):
            return Later(world.duration("gke-pool-retry"))
    _show(world, cluster, pool, trouble)
    return trouble


def _show(world: World, cluster: ClusterState, pool: PoolState, trouble: Trouble | None) -> None:
    """Set a pool's status and conditions."""
    message = pool.message
    if trouble is None:
        message.status, message.status_message = NodePool.Status.RUNNING, ""
        message.conditions = []
        return
    usable = message.status != NodePool.Status.PROVISIONING or nodes.machines_of(world, pool)
    message.status = NodePool.Status.RUNNING_WITH_ERROR if usable else NodePool.Status.ERROR
    message.status_message = trouble.message
    message.conditions = [trouble.shown()]
    if usable:
        world.after(world.duration("gke-group-retry"), nodes.keep_trying, cluster.path, pool.name)


@rpc("container", f"{_SERVICE}/CreateNodePool", permission="container.clusters.update")
def create_node_pool(call: Call, request: CreateNodePoolRequest) -> Operation:
    """Begin to create a pool."""
    world = call.world
    cluster = need_cluster(world, request.parent)
    name = f"{cluster.path}/nodePools/{request.node_pool.name}"
    if request.node_pool.name in cluster.pools:
        raise GcpError("ALREADY_EXISTS", f"Already exists: {name}.")
    pool_checks.check(call, cluster.message, cluster.path, request.node_pool)
    operations.admit(world, cluster, Kind.CREATE_NODE_POOL, request.node_pool.name)
    pool = keep(world, cluster, request.node_pool)
    return operations.begin(
        world,
        cluster,
        Kind.CREATE_NODE_POOL,
        seconds=creation_seconds(world, pool),
        step=created,
        arguments=(cluster.path, pool.name),
        pool=pool.name,
    )


def created(world: World, path: str, name: str) -> Trouble | Later | None:
    """Start the machines, or return the trouble or a later time."""
    cluster = world.state(Gke).clusters[path]
    return provide(world, cluster, cluster.pools[name])


@rpc("container", f"{_SERVICE}/GetNodePool", permission="container.clusters.get")
def get_node_pool(call: Call, request: GetNodePoolRequest) -> NodePool:
    """Return a pool."""
    return need_pool(call.world, request.name)[1].message


@rpc("container", f"{_SERVICE}/ListNodePools", permission="container.clusters.get")
def list_node_pools(call: Call, request: ListNodePoolsRequest) -> ListNodePoolsResponse:
    """Return the pools of a cluster."""
    cluster = need_cluster(call.world, request.parent)
    return ListNodePoolsResponse(node_pools=[pool.message for pool in cluster.pools.values()])


@rpc("container", f"{_SERVICE}/SetNodePoolSize", permission="container.clusters.update")
def set_node_pool_size(call: Call, request: SetNodePoolSizeRequest) -> Operation:
    """Begin to bring each zone of a pool to a number of nodes."""
    world = call.world
    cluster, pool = need_pool(world, request.name)
    if request.node_count < 0:
        raise pool_checks.invalid(f"node_count {request.node_count} is below 0.")
    operations.admit(world, cluster, Kind.SET_NODE_POOL_SIZE, pool.name)
    if pool.message.status == NodePool.Status.ERROR:
        raise GcpError(
            "FAILED_PRECONDITION", f"Node pool {pool.name} is in state ERROR and cannot be resized."
        )
    pool.wanted = request.node_count
    pool.message.initial_node_count = request.node_count
    pool.message.status = NodePool.Status.RECONCILING
    nodes.announce(world, cluster, pool)
    return operations.begin(
        world,
        cluster,
        Kind.SET_NODE_POOL_SIZE,
        seconds=world.duration("gke-pool-resize"),
        step=resized,
        arguments=(cluster.path, pool.name),
        pool=pool.name,
    )


def resized(world: World, path: str, name: str) -> Trouble | None:
    """Start or end machines; a shortage is reported at once, and the group continues to try."""
    cluster = world.state(Gke).clusters[path]
    pool = cluster.pools[name]
    # Flex-start machines come from a queue: the resize itself succeeds at once.
    if machine.market(pool.message) == "flex-start" and pool.wanted:
        _show(world, cluster, pool, None)
        world.after(world.duration("gke-flex-start"), dequeued, path, name)
        return None
    trouble = nodes.fill(world, cluster, pool)
    _show(world, cluster, pool, trouble)
    return trouble


def dequeued(world: World, path: str, name: str) -> None:
    """Start machines if the queue has reached the pool, else wait on: waiting is no error."""
    cluster = world.state(Gke).clusters.get(path)
    pool = cluster.pools.get(name) if cluster else None
    if cluster is None or pool is None or pool.message.status == NodePool.Status.STOPPING:
        return
    if nodes.fill(world, cluster, pool):
        world.after(world.duration("gke-flex-start"), dequeued, path, name)


@rpc("container", f"{_SERVICE}/DeleteNodePool", permission="container.clusters.update")
def delete_node_pool(call: Call, request: DeleteNodePoolRequest) -> Operation:
    """Begin to delete a pool with its machines."""
    cluster, pool = need_pool(call.world, request.name)
    operations.admit(call.world, cluster, Kind.DELETE_NODE_POOL, pool.name)
    pool.message.status = NodePool.Status.STOPPING
    return operations.begin(
        call.world,
        cluster,
        Kind.DELETE_NODE_POOL,
        seconds=call.world.duration("gke-pool-deletion"),
        step=deleted,
        arguments=(cluster.path, pool.name),
        pool=pool.name,
    )


def deleted(world: World, path: str, name: str) -> None:
    """Remove the pool with its machines."""
    nodes.empty(world, world.state(Gke).clusters[path].pools.pop(name))


@rest(
    "container",
    "projects.locations.clusters.nodePools.setSize",
    "POST",
    f"{_POOL}:setSize",
    body=SetNodePoolSizeRequest,
    permission="container.clusters.update",
)
def set_size(call: Call) -> Operation:
    """Begin to resize a pool, as `set_node_pool_size`."""
    count = call.body.get("nodeCount", 0)
    begun: Operation = set_node_pool_size(
        call, SetNodePoolSizeRequest(name=call.params["name"], node_count=count)
    )
    return begun


@rest(
    "container",
    "projects.locations.clusters.nodePools.delete",
    "DELETE",
    _POOL,
    permission="container.clusters.update",
)
def delete(call: Call) -> Operation:
    """Begin to delete a pool, as `delete_node_pool`."""
    begun: Operation = delete_node_pool(call, DeleteNodePoolRequest(name=call.params["name"]))
    return begun
