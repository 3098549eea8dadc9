"""Clusters that the Kubernetes stand-in serves: `kubernetes` of /_control, see `cloudrec.sandbox.linked`.

GKE's name of a cluster has a certificate that everybody trusts. The stand-in's is vouched for by an authority
of its own: a client finds it where SSL_CERT_FILE names the announced `certificate_authority`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.cloud.container_v1.types import NodeTaint

from cloudrec.sandbox import linked
from cloudrec.sandbox.gcp.registry import setting
from cloudrec.sandbox.gcp.services.compute import catalogue
from cloudrec.sandbox.gcp.services.gke import machine, nodes
from cloudrec.sandbox.gcp.services.gke.state import Gke
from cloudrec.sandbox.linked import Picture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.sandbox.gcp.services.gke.state import ClusterState, PoolState
    from cloudrec.sandbox.gcp.world import World

_PREFIX = "ya29."  # of Google's tokens
_EFFECTS = {
    NodeTaint.Effect.NO_SCHEDULE: "NoSchedule",
    NodeTaint.Effect.PREFER_NO_SCHEDULE: "PreferNoSchedule",
    NodeTaint.Effect.NO_EXECUTE: "NoExecute",
}


def look(world: World) -> Picture:
    """The first cluster that is there, and the machines of its pools."""
    for cluster in world.state(Gke).clusters.values():
        if cluster.message.endpoint:
            found = tuple(node for pool in cluster.pools.values() for node in _machines(world, cluster, pool))
            return Picture(cluster=cluster.message.id, nodes=found)
    return Picture()


def _machines(world: World, cluster: ClusterState, pool: PoolState) -> Iterator[dict[str, Any]]:
    for each in nodes.machines_of(world, pool):
        zone, name = each.path.split("/")[3], each.path.rpartition("/")[2]
        yield _node(cluster, pool, zone, name)


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
        "capacity": {"cpu": str(kind.vcpus), "memory": f"{kind.memory_gb:g}Gi"} if kind else {},
        "hardware": {"gpus": sum(accelerators.values())} if accelerators else {},
        "provider_id": f"gce://{cluster.project}/{zone}/",
    }


setting(
    "kubernetes",
    read=linked.read,
    write=lambda world, value: linked.order(world, value, prefix=_PREFIX, look=look),
)
