"""Clusters that the Kubernetes stand-in serves: `kubernetes` of /_control (`cloudrec_sandbox.core.linked`).

Clients trust GKE's own host name for a cluster by a public certificate. The stand-in's certificate is issued
by its own authority: clients find it if SSL_CERT_FILE names the announced `certificate_authority`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.cloud.container_v1.types import NodeTaint

from cloudrec_sandbox.core import linked
from cloudrec_sandbox.core.linked import Picture
from cloudrec_sandbox.gcp.api.registry import setting
from cloudrec_sandbox.gcp.api.tokens import CALLER
from cloudrec_sandbox.gcp.services.compute.capacity import catalogue
from cloudrec_sandbox.gcp.services.gke import authority, machine, nodes
from cloudrec_sandbox.gcp.services.gke.losses import preemptions
from cloudrec_sandbox.gcp.services.gke.state import Gke

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.services.gke.state import ClusterState, PoolState

_PREFIX = "ya29."  # what Google's tokens begin with
_EFFECTS = {
    NodeTaint.Effect.NO_SCHEDULE: "NoSchedule",
    NodeTaint.Effect.PREFER_NO_SCHEDULE: "PreferNoSchedule",
    NodeTaint.Effect.NO_EXECUTE: "NoExecute",
}


def look(world: World) -> dict[str, Picture]:
    """Return the clusters by their paths, with the machines of their pools."""
    return {path: _picture(world, cluster) for path, cluster in world.state(Gke).clusters.items()}


def _picture(world: World, cluster: ClusterState) -> Picture:
    if not cluster.message.endpoint:
        return Picture()
    return Picture(
        cluster=cluster.message.id,
        nodes=tuple(node for pool in cluster.pools.values() for node in _machines(world, cluster, pool)),
        callers=[_caller(world, cluster)],
        is_reachable=_is_reachable(world, cluster),
        leaving=preemptions.leaving(world),
        orders=_definitions(cluster),
    )


def _definitions(cluster: ClusterState) -> dict[str, list[str]]:
    """Return the kinds that come with managed collection (Managed Service for Prometheus, set-up)."""
    monitoring = cluster.message.monitoring_config
    return {"crds": ["google-prometheus"]} if monitoring.managed_prometheus_config.enabled else {}


def _is_reachable(world: World, cluster: ClusterState) -> bool:
    """Return whether the API server answers the user's machine, which is outside the network.

    The DNS endpoint does with external traffic, from any address; the IP endpoint, if it is public, answers
    the authorized networks ("Customize your network isolation", GKE's documentation).
    """
    ends = cluster.message.control_plane_endpoints_config
    if ends.dns_endpoint_config.allow_external_traffic:
        return True
    by_address = ends.ip_endpoints_config
    networks = by_address.authorized_networks_config
    if not by_address.enabled or not by_address.enable_public_endpoint:
        return False
    return not networks.enabled or linked.is_admitted(
        world, [block.cidr_block for block in networks.cidr_blocks]
    )


def _caller(world: World, cluster: ClusterState) -> dict[str, Any]:
    """Return the user of the caller's tokens: IAM or RBAC must allow a call of the Kubernetes API.

    A cluster's creator is no administrator of it ("Authorize actions in clusters using role-based access
    control", GKE's documentation).
    """
    return {"prefix": _PREFIX, "user": CALLER, "groups": [], "rules": authority.rules(world, cluster, CALLER)}


def _machines(world: World, cluster: ClusterState, pool: PoolState) -> Iterator[dict[str, Any]]:
    for each in nodes.machines_of(world, pool):
        zone, name = each.path.split("/")[3], each.path.rpartition("/")[2]
        yield {**_node(cluster, pool, zone, name), "machine": each.document["id"]}


def _node(cluster: ClusterState, pool: PoolState, zone: str, name: str) -> dict[str, Any]:
    config = pool.message.config
    kind = catalogue.find(config.machine_type, zone)
    accelerators = {each.accelerator_type: int(each.accelerator_count) for each in config.accelerators}
    if kind and kind.accelerator:
        accelerators.setdefault(kind.accelerator, kind.accelerators)
    spot = {"cloud.google.com/gke-spot": "true"} if machine.market(pool.message) == "spot" else {}
    return {
        "name": name,
        "labels": {
            "cloud.google.com/gke-nodepool": pool.name,
            "node.kubernetes.io/instance-type": config.machine_type,
            "topology.kubernetes.io/region": cluster.region,
            "topology.kubernetes.io/zone": zone,
            **({"cloud.google.com/gke-accelerator": next(iter(accelerators))} if accelerators else {}),
            **spot,
            **dict(config.labels),
        },
        "taints": [
            {"key": each.key, "value": each.value, "effect": _EFFECTS[each.effect]} for each in config.taints
        ],
        "capacity": {
            "ephemeral-storage": f"{nodes.ephemeral_gib(pool.message)}Gi",
            **({"cpu": str(kind.vcpus), "memory": f"{kind.memory_gb:g}Gi"} if kind else {}),
        },
        "hardware": {"gpus": sum(accelerators.values())} if accelerators else {},
        "provider_id": f"gce://{cluster.project}/{zone}/",
    }


setting(
    "kubernetes",
    read=linked.read,
    write=lambda world, value: linked.order(world, value, look=look, lose=preemptions.lose),
)
