"""Clusters: created and deleted by operations, listed in error until Google removes them.

`gke_degraded` of /_control: {"NAME": "CLOUD_KMS_KEY_ERROR"} gives a cluster that condition; null: none.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from google.cloud.container_v1.types import (
    Cluster,
    ListClustersResponse,
    NodePool,
    Operation,
    StatusCondition,
)

from cloudrec.sandbox import linked
from cloudrec.sandbox.gcp import projects
from cloudrec.sandbox.gcp.errors import GcpError
from cloudrec.sandbox.gcp.registry import durations, rpc, setting
from cloudrec.sandbox.gcp.services.gke import cluster_checks, network, nodes, operations, pools
from cloudrec.sandbox.gcp.services.gke.operations import Kind, Later, Trouble
from cloudrec.sandbox.gcp.services.gke.state import ClusterState, Gke, link, moment, need_cluster, place

if TYPE_CHECKING:
    from google.cloud.container_v1.types import (
        CreateClusterRequest,
        DeleteClusterRequest,
        GetClusterRequest,
        ListClustersRequest,
    )

    from cloudrec.sandbox.gcp.call import Call
    from cloudrec.sandbox.gcp.world import World

durations(
    {
        "gke-cluster": 360,
        "gke-cluster-failure": 60,  # until ranges that are not free are noticed
        "gke-cluster-settling": 60,  # Google resizes a new control plane by itself
        "gke-cluster-deletion": 180,
        "gke-failed-cluster": 3600,  # until Google removes it
    }
)

_SERVICE = "google.container.v1.ClusterManager"


@rpc("container", f"{_SERVICE}/CreateCluster", permission="container.clusters.create")
def create_cluster(call: Call, request: CreateClusterRequest) -> Operation:
    """Begin to create a cluster; what can be refused at once is, the rest fails in the operation."""
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
    """The mark of a cluster's labels."""
    text = repr(sorted(cluster.message.resource_labels.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def created(world: World, path: str, number: str) -> Trouble | Later | None:
    """The control plane is there, and its first pools, unless there is trouble."""
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
    operations.begin(world, cluster, Kind.RESIZE_CLUSTER, seconds=seconds, step=operations.nothing)
    return None


def _furnish(world: World, cluster: ClusterState) -> None:
    """What a control plane that is there has: a certificate, addresses, a name."""
    message = cluster.message
    project = projects.find(world, cluster.project)
    authority = f"-----BEGIN CERTIFICATE-----\n{message.id}\n-----END CERTIFICATE-----\n"
    message.master_auth.cluster_ca_certificate = base64.b64encode(authority.encode()).decode()
    endpoints = message.control_plane_endpoints_config
    number = project.number if project else cluster.project
    endpoints.dns_endpoint_config.endpoint = f"gke-{message.id[:32]}-{number}.{cluster.region}.gke.goog"
    ip = endpoints.ip_endpoints_config
    if "enabled" not in ip:
        ip.enabled = True
    if ip.enabled:
        digits = [int(message.id[place : place + 2], 16) for place in (0, 2)]
        ip.private_endpoint = f"172.16.{digits[0]}.{digits[1] or 2}"
        public = "enable_public_endpoint" not in ip or ip.enable_public_endpoint
        ip.public_endpoint = f"34.72.{digits[0]}.{digits[1] or 2}" if public else ""
        message.endpoint = ip.public_endpoint or ip.private_endpoint
    if served := linked.of(world):
        message.master_auth.cluster_ca_certificate = served.authority_data
        message.endpoint = endpoints.dns_endpoint_config.endpoint = served.host


def swept(world: World, path: str, number: str) -> None:
    """Google removes a cluster that never came to be, unless somebody was faster."""
    cluster = world.state(Gke).clusters.get(path)
    if cluster and cluster.message.id == number and not cluster.running:
        deleted(world, path)


@rpc("container", f"{_SERVICE}/GetCluster", permission="container.clusters.get")
def get_cluster(call: Call, request: GetClusterRequest) -> Cluster:
    """A cluster with its pools."""
    cluster = need_cluster(call.world, request.name)
    message = cluster.shown()
    message.current_node_count = sum(
        len(nodes.machines_of(call.world, pool)) for pool in cluster.pools.values()
    )
    return message


@rpc("container", f"{_SERVICE}/ListClusters", permission="container.clusters.list")
def list_clusters(call: Call, request: ListClustersRequest) -> ListClustersResponse:
    """The clusters of a location, or with - of all."""
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
    """The cluster is gone, with its machines and most of its firewall rules."""
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
