"""Changes of existing clusters and pools: versions, labels, settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.cloud.container_v1.types import Cluster, DatapathProvider, NodePool, Operation

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rpc
from cloudrec_sandbox.gcp.resources import checks
from cloudrec_sandbox.gcp.services.gke import nodes, operations, versions
from cloudrec_sandbox.gcp.services.gke.cluster_checks import check_monitoring, maintenance
from cloudrec_sandbox.gcp.services.gke.clusters import fingerprint
from cloudrec_sandbox.gcp.services.gke.operations import Kind, Trouble
from cloudrec_sandbox.gcp.services.gke.pool_checks import check_management, invalid
from cloudrec_sandbox.gcp.services.gke.state import Gke, need_cluster, need_pool

if TYPE_CHECKING:
    from google.cloud.container_v1.types import (
        MaintenancePolicy,
        SetLabelsRequest,
        SetMaintenancePolicyRequest,
        SetNodePoolAutoscalingRequest,
        SetNodePoolManagementRequest,
        UpdateClusterRequest,
        UpdateMasterRequest,
        UpdateNodePoolRequest,
    )

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.services.gke.state import ClusterState, PoolState

durations({"gke-cluster-update": 60, "gke-pool-update": 60, "gke-pool-upgrade": 300})

_SERVICE = "google.container.v1.ClusterManager"
# Fields of a request to update a pool that name the pool, and are not settings.
_ADDRESS = ("project_id", "zone", "cluster_id", "node_pool_id", "name", "etag", "image", "image_project")
_WRAPPED = {"labels": "labels", "taints": "taints", "tags": "tags", "resource_labels": "labels"}
_OF_POOL = ("locations", "upgrade_settings", "queued_provisioning", "node_drain_config", "maintenance_policy")


def merge(target: Any, source: Any) -> None:  # noqa: ANN401 - two messages of protobuf of one type
    """Overwrite the fields that the source has; a list is overwritten as a whole."""
    for field, value in source.ListFields():
        if field.message_type is not None and hasattr(value, "ListFields"):
            merge(getattr(target, field.name), value)
            # An empty message is set, too: it switches a setting on or off.
            if not value.ListFields():
                getattr(target, field.name).SetInParent()
        else:
            target.ClearField(field.name)
            if hasattr(value, "MergeFrom") or hasattr(value, "append") or hasattr(value, "items"):
                getattr(target, field.name).MergeFrom(value)
            else:
                setattr(target, field.name, value)


def _upgraded(world: World, path: str, version: str) -> None:
    world.state(Gke).clusters[path].message.current_master_version = version


def _master(world: World, cluster: ClusterState, wanted: str) -> Operation:
    known = versions.resolve(wanted, cluster.message.release_channel.channel)
    old, new = versions.parts(cluster.message.current_master_version), versions.parts(known)
    if new < old:
        raise invalid(
            f"Master cannot be downgraded to {known} from {cluster.message.current_master_version}."
        )
    if new[1] > old[1] + 1:
        raise invalid(
            f"Master cannot be upgraded to {known}: cannot upgrade the master more than a minor version at a"
            " time."
        )
    operations.admit(world, cluster, Kind.UPGRADE_MASTER)
    return operations.begin(
        world,
        cluster,
        Kind.UPGRADE_MASTER,
        seconds=world.duration("gke-upgrade"),
        step=_upgraded,
        arguments=(cluster.path, known),
    )


@rpc("container", f"{_SERVICE}/UpdateMaster", permission="container.clusters.update")
def update_master(call: Call, request: UpdateMasterRequest) -> Operation:
    """Begin to upgrade a control plane."""
    return _master(call.world, need_cluster(call.world, request.name), request.master_version)


@rpc("container", f"{_SERVICE}/UpdateCluster", permission="container.clusters.update")
def update_cluster(call: Call, request: UpdateClusterRequest) -> Operation:
    """Begin to change one setting of a cluster: GKE takes one in a call."""
    world, cluster = call.world, need_cluster(call.world, request.name)
    raw = type(request.update).pb(request.update)
    wanted = [field.name for field, _ in raw.ListFields() if field.name != "etag"]
    if request.update.etag and request.update.etag != cluster.message.etag:
        raise GcpError("FAILED_PRECONDITION", "The etag of the cluster does not match.")
    if "desired_node_version" in wanted:
        name = f"{request.name}/nodePools/{request.update.desired_node_pool_id or 'default-pool'}"
        return _nodes(world, *need_pool(world, name), request.update.desired_node_version)
    if len(wanted) != 1:
        raise invalid(f"Must specify exactly one field to update, not {len(wanted)}: {', '.join(wanted)}.")
    if wanted == ["desired_master_version"]:
        return _master(world, cluster, request.update.desired_master_version)
    field = wanted[0].removeprefix("desired_")
    if field == "enable_multi_networking":
        _check_multi_networking(cluster, wanted=request.update.desired_enable_multi_networking)
    if field == "monitoring_config":
        check_monitoring(request.update.desired_monitoring_config)
    message = Cluster.pb(cluster.message)
    target = next((each for each in (message, message.network_config) if hasattr(each, field)), None)
    if target is None:
        raise GcpError("UNIMPLEMENTED", f"this stand-in cannot update {wanted[0]} of a cluster")
    operations.admit(world, cluster, Kind.UPDATE_CLUSTER)
    value = getattr(raw, wanted[0])
    return operations.begin(
        world,
        cluster,
        Kind.UPDATE_CLUSTER,
        seconds=world.duration("gke-cluster-update"),
        step=_updated,
        arguments=(cluster.path, target is not message, field, value),
    )


def _check_multi_networking(cluster: ClusterState, *, wanted: bool) -> None:
    config = cluster.message.network_config
    if not wanted and config.enable_multi_networking:
        raise invalid("Multi-networking cannot be disabled once it is enabled.")
    if config.datapath_provider != DatapathProvider.ADVANCED_DATAPATH:
        raise invalid("Multi-networking requires Dataplane V2 (datapath_provider ADVANCED_DATAPATH).")


def _updated(world: World, path: str, in_network: bool, field: str, value: Any) -> None:  # noqa: ANN401, FBT001
    cluster = world.state(Gke).clusters[path]
    message = Cluster.pb(cluster.message)
    target = message.network_config if in_network else message
    if hasattr(value, "ListFields"):
        merge(getattr(target, field), value)
    elif hasattr(value, "append"):
        target.ClearField(field)
        getattr(target, field).extend(value)
    else:
        setattr(target, field, value)
    cluster.message.etag = operations.new_etag()


@rpc("container", f"{_SERVICE}/SetMaintenancePolicy", permission="container.clusters.update")
def set_maintenance_policy(call: Call, request: SetMaintenancePolicyRequest) -> Operation:
    """Begin to replace a cluster's maintenance policy; its version must be that of the present one."""
    world, cluster = call.world, need_cluster(call.world, request.name)
    policy = request.maintenance_policy
    if policy.resource_version != cluster.message.maintenance_policy.resource_version:
        raise GcpError(
            "FAILED_PRECONDITION", "The resource version of the maintenance policy does not match."
        )
    maintenance(world, cluster.message, policy)
    operations.admit(world, cluster, Kind.UPDATE_CLUSTER)
    return operations.begin(
        world,
        cluster,
        Kind.UPDATE_CLUSTER,
        seconds=world.duration("gke-cluster-update"),
        step=_maintained,
        arguments=(cluster.path, policy),
    )


def _maintained(world: World, path: str, policy: MaintenancePolicy) -> None:
    cluster = world.state(Gke).clusters[path]
    cluster.message.maintenance_policy = policy
    cluster.message.maintenance_policy.resource_version = operations.new_etag()


@rpc("container", f"{_SERVICE}/SetLabels", permission="container.clusters.update")
def set_labels(call: Call, request: SetLabelsRequest) -> Operation:
    """Begin to replace a cluster's labels; the fingerprint must be that of the present ones."""
    world, cluster = call.world, need_cluster(call.world, request.name)
    checks.labels(request.resource_labels, "resource_labels")
    if request.label_fingerprint != cluster.message.label_fingerprint:
        raise GcpError("FAILED_PRECONDITION", "Labels could not be set due to fingerprint mismatch.")
    operations.admit(world, cluster, Kind.UPDATE_CLUSTER)
    return operations.begin(
        world,
        cluster,
        Kind.UPDATE_CLUSTER,
        seconds=world.duration("gke-cluster-update"),
        step=_labelled,
        arguments=(cluster.path, dict(request.resource_labels)),
    )


def _labelled(world: World, path: str, labels: dict[str, str]) -> None:
    cluster = world.state(Gke).clusters[path]
    cluster.message.resource_labels = labels
    cluster.message.label_fingerprint = fingerprint(cluster)


def _nodes(world: World, cluster: ClusterState, pool: PoolState, wanted: str) -> Operation:
    known = versions.resolve("" if wanted == "-" else wanted, cluster.message.release_channel.channel)
    control = cluster.message.current_master_version
    if versions.parts(known) > versions.parts(control):
        raise invalid(f"Node version {known} must not be newer than the master version {control}.")
    return _change(
        world, (cluster, pool), Kind.UPGRADE_NODES, NodePool(version=known), duration="gke-pool-upgrade"
    )


def _change(
    world: World,
    found: tuple[ClusterState, PoolState],
    kind: Operation.Type,
    wish: NodePool,
    *,
    duration: str = "gke-pool-update",
    cleared: tuple[str, ...] = (),
) -> Operation:
    """Begin an operation that merges the wish into a pool, after clearing `cleared` in its config."""
    cluster, pool = found
    operations.admit(world, cluster, kind, pool.name)
    pool.message.status = NodePool.Status.RECONCILING
    return operations.begin(
        world,
        cluster,
        kind,
        seconds=world.duration(duration),
        step=_changed,
        arguments=(cluster.path, pool.name, wish, cleared),
        pool=pool.name,
    )


def _changed(world: World, path: str, name: str, wish: NodePool, cleared: tuple[str, ...]) -> Trouble | None:
    cluster = world.state(Gke).clusters[path]
    pool = cluster.pools[name]
    for field in cleared:
        NodePool.pb(pool.message).config.ClearField(field)
    merge(NodePool.pb(pool.message), NodePool.pb(wish))
    pool.message.etag = operations.new_etag()
    pool.message.status = NodePool.Status.RUNNING
    nodes.make_groups(world, cluster, pool)
    least = pool.message.autoscaling.min_node_count if pool.message.autoscaling.enabled else 0
    pool.wanted = max(pool.wanted, least)
    return nodes.fill(world, cluster, pool)


@rpc("container", f"{_SERVICE}/UpdateNodePool", permission="container.clusters.update")
def update_node_pool(call: Call, request: UpdateNodePoolRequest) -> Operation:
    """Begin to upgrade or change a pool."""
    world = call.world
    cluster, pool = need_pool(world, request.name)
    if request.etag and request.etag != pool.message.etag:
        raise GcpError("FAILED_PRECONDITION", "The etag of the node pool does not match.")
    if request.node_version:
        return _nodes(world, cluster, pool, request.node_version)
    wish, cleared = NodePool(), []
    for field, value in type(request).pb(request).ListFields():
        if field.name in _ADDRESS:
            continue
        target = NodePool.pb(wish) if field.name in _OF_POOL else NodePool.pb(wish).config
        if field.name == "node_network_config":
            merge(NodePool.pb(wish).network_config, value)
        elif field.name in _WRAPPED:
            getattr(target, field.name).MergeFrom(getattr(value, _WRAPPED[field.name]))
            cleared.append(field.name)
        elif field.name in ("workload_metadata_config", "kubelet_config", *_OF_POOL[1:]):
            merge(getattr(target, field.name), value)
        elif field.name in ("machine_type", "disk_type", "disk_size_gb", "image_type", "flex_start"):
            setattr(target, field.name, value)
        elif field.name == "locations":
            target.locations.extend(value)
        else:
            raise GcpError("UNIMPLEMENTED", f"this stand-in cannot update {field.name} of a node pool")
    return _change(world, (cluster, pool), Kind.UPGRADE_NODES, wish, cleared=tuple(cleared))


@rpc("container", f"{_SERVICE}/SetNodePoolAutoscaling", permission="container.clusters.update")
def set_node_pool_autoscaling(call: Call, request: SetNodePoolAutoscalingRequest) -> Operation:
    """Begin to change a pool's autoscaling."""
    found = need_pool(call.world, request.name)
    wish = NodePool(autoscaling=request.autoscaling)
    return _change(call.world, found, Kind.UPDATE_CLUSTER, wish)


@rpc("container", f"{_SERVICE}/SetNodePoolManagement", permission="container.clusters.update")
def set_node_pool_management(call: Call, request: SetNodePoolManagementRequest) -> Operation:
    """Begin to change a pool's repair and upgrades."""
    found = need_pool(call.world, request.name)
    pool = found[1].message
    queued = pool.config.flex_start or pool.queued_provisioning.enabled
    check_management(found[0].message, request.management, is_queued=queued)
    wish = NodePool(management=request.management)
    return _change(call.world, found, Kind.SET_NODE_POOL_MANAGEMENT, wish)
