"""Clusters: created and deleted by operations, listed in error until Google removes them.

`gke_degraded` of /_control: {"NAME": "CLOUD_KMS_KEY_ERROR"} gives a cluster that condition; null removes it.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from google.cloud.container_v1.types import (
    Cluster,
    GetClusterRequest,
    ListClustersResponse,
    NodePool,
    Operation,
    StatusCondition,
)

from cloudrec_sandbox.core import linked
from cloudrec_sandbox.core.certificates import unused_authority
from cloudrec_sandbox.gcp.api import projects
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest, rpc, setting
from cloudrec_sandbox.gcp.services.gke import cluster_checks, network, nodes, operations, pools
from cloudrec_sandbox.gcp.services.gke.operations import Kind, Later, Trouble
from cloudrec_sandbox.gcp.services.gke.state import ClusterState, Gke, link, moment, need_cluster, place

if TYPE_CHECKING:
    from google.cloud.container_v1.types import (
        CreateClusterRequest,
        DeleteClusterRequest,
        ListClustersRequest,
    )

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

durations(
    {
        "gke-cluster": 360,
        "gke-cluster-failure": 60,  # until a range conflict fails the creation
        "gke-cluster-settling": 60,  # Google resizes a new control plane by itself
        "gke-cluster-deletion": 180,
        "gke-failed-cluster": 3600,  # until Google removes it
    }
)

_SERVICE = "google.container.v1.ClusterManager"


@rpc("container", f"{_SERVICE}/CreateCluster", permission="container.clusters.create")
def create_cluster(call: Call, request: CreateClusterRequest) -> Operation:
    """Begin to create a cluster; what GKE cannot check at once fails in the operation."""
    world = call.world
    project, location = place(request.parent)
    path = f"projects/{project}/locations/{location}/clusters/{request.cluster.name}"
    if path in world.state(Gke).clusters:
        raise GcpError("ALREADY_EXISTS", f"Already exists: {path}.")
    message = cluster_checks.checked(call, path, request.cluster)
    wanted = list(message.node_pools)
    message.node_pools = []
    cluster = ClusterState(path, message, message.network_config.network, message.network_config.subnetwork)
    message.id, message.etag = operations.new_id(), operations.new_etag()
    message.status = Cluster.Status.PROVISIONING
    message.self_link, message.create_time = link(world, path), moment(world)
    message.label_fingerprint = fingerprint(cluster)
    world.state(Gke).clusters[path] = cluster
    for pool in wanted:
        pools.keep(world, cluster, pool)
    network.make_rules(world, cluster)
    failing = network.range_trouble(world, cluster) is not None
    seconds = world.duration("gke-cluster-failure" if failing else "gke-cluster")
    return operations.begin(
        world, cluster, Kind.CREATE_CLUSTER, seconds=seconds, step=created, arguments=(path, message.id)
    )


def fingerprint(cluster: ClusterState) -> str:
    """Return the fingerprint of a cluster's labels."""
    text = repr(sorted(cluster.message.resource_labels.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def created(world: World, path: str, number: str) -> Trouble | Later | None:
    """Finish the control plane and its first pools, or return the trouble or a later time."""
    cluster = world.state(Gke).clusters[path]
    trouble = network.range_trouble(world, cluster)
    for pool in cluster.pools.values():
        outcome = None if trouble else pools.provide(world, cluster, pool)
        if isinstance(outcome, Later):
            return outcome
        trouble = trouble or outcome
    if trouble:
        cluster.message.status = Cluster.Status.ERROR
        cluster.message.status_message = trouble.message
        cluster.message.conditions = [trouble.shown()]
        world.after(world.duration("gke-failed-cluster"), swept, path, number)
        return trouble
    _furnish(world, cluster)
    cluster.message.status = Cluster.Status.RUNNING
    seconds = world.duration("gke-cluster-settling")
    # Pool calls meet this operation: a client must wait although its own operation is done.
    operations.begin(world, cluster, Kind.RESIZE_CLUSTER, seconds=seconds, step=operations.nothing)
    return None


def _furnish(world: World, cluster: ClusterState) -> None:
    """Fill in what a running control plane has: a certificate, addresses, a name."""
    message = cluster.message
    project = projects.find(world, cluster.project)
    authority = base64.b64encode(unused_authority().encode()).decode()
    message.master_auth.cluster_ca_certificate = authority
    endpoints = message.control_plane_endpoints_config
    number = project.number if project else cluster.project
    endpoints.dns_endpoint_config.endpoint = f"gke-{message.id[:32]}-{number}.{cluster.region}.gke.goog"
    ip = endpoints.ip_endpoints_config
    if "enabled" not in ip:
        ip.enabled = True
    if ip.enabled:
        digits = [int(message.id[place : place + 2], 16) for place in (0, 2)]
        # Addresses of this machine: a client that calls one must not leave it.
        ip.private_endpoint = f"127.16.{digits[0]}.{digits[1] or 2}"
        public = "enable_public_endpoint" not in ip or ip.enable_public_endpoint
        ip.public_endpoint = f"127.72.{digits[0]}.{digits[1] or 2}" if public else ""
        message.endpoint = ip.public_endpoint or ip.private_endpoint
    if served := linked.of(world, cluster.path):
        message.master_auth.cluster_ca_certificate = served.authority_data
        message.endpoint = endpoints.dns_endpoint_config.endpoint = served.host


def swept(world: World, path: str, number: str) -> None:
    """Remove a failed cluster, as Google does, unless it was deleted before."""
    cluster = world.state(Gke).clusters.get(path)
    if cluster and cluster.message.id == number and not cluster.running:
        deleted(world, path)


@rpc("container", f"{_SERVICE}/GetCluster", permission="container.clusters.get")
def get_cluster(call: Call, request: GetClusterRequest) -> Cluster:
    """Return a cluster with its pools."""
    cluster = need_cluster(call.world, request.name)
    message = cluster.shown()
    message.current_node_count = sum(
        len(nodes.machines_of(call.world, pool)) for pool in cluster.pools.values()
    )
    return message


@rest(
    "container",
    "projects.locations.clusters.get",
    "GET",
    "/v1/{name=projects/*/locations/*/clusters/*}",
    permission="container.clusters.get",
)
def get(call: Call) -> Cluster:
    """Return a cluster, as `get_cluster`."""
    found: Cluster = get_cluster(call, GetClusterRequest(name=call.params["name"]))
    return found


@rpc("container", f"{_SERVICE}/ListClusters", permission="container.clusters.list")
def list_clusters(call: Call, request: ListClustersRequest) -> ListClustersResponse:
    """Return the clusters of a location, or with - of all locations."""
    project, location = place(request.parent)
    found = [
        cluster.shown()
        for cluster in call.world.state(Gke).clusters.values()
        if cluster.project == project and location in ("-", cluster.location)
    ]
    return ListClustersResponse(clusters=found)


@rpc("container", f"{_SERVICE}/DeleteCluster", permission="container.clusters.delete")
def delete_cluster(call: Call, request: DeleteClusterRequest) -> Operation:
    """Begin to delete a cluster with its pools."""
    cluster = need_cluster(call.world, request.name)
    operations.admit(call.world, cluster, Kind.DELETE_CLUSTER)
    cluster.message.status = Cluster.Status.STOPPING
    for pool in cluster.pools.values():
        pool.message.status = NodePool.Status.STOPPING
    return operations.begin(
        call.world,
        cluster,
        Kind.DELETE_CLUSTER,
        seconds=call.world.duration("gke-cluster-deletion"),
        step=deleted,
        arguments=(cluster.path,),
    )


def deleted(world: World, path: str) -> None:
    """Remove the cluster, its machines and most of its firewall rules."""
    cluster = world.state(Gke).clusters.pop(path)
    for pool in cluster.pools.values():
        nodes.empty(world, pool)
    network.remove_rules(world, cluster)


def _degrade(world: World, wishes: dict[str, str | None]) -> None:
    known = {cluster.name: cluster for cluster in world.state(Gke).clusters.values()}
    for name, condition in wishes.items():
        if name not in known or (condition and condition not in StatusCondition.Code.__members__):
            raise ValueError(f"there is no cluster {name!r}, or no condition {condition!r}")
    for name, condition in wishes.items():
        message = known[name].message
        trouble = Trouble(condition, f"The cluster has the condition {condition}.") if condition else None
        message.status = Cluster.Status.DEGRADED if trouble else Cluster.Status.RUNNING
        message.conditions = [trouble.shown()] if trouble else []


setting(
    "gke_degraded",
    read=lambda world: {
        cluster.name: cluster.message.conditions[0].code.name
        for cluster in world.state(Gke).clusters.values()
        if cluster.message.status == Cluster.Status.DEGRADED
    },
    write=_degrade,
)
