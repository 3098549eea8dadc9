"""Clusters that the Kubernetes stand-in serves: `kubernetes` of /_control, see `cloudrec.sandbox.linked`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.sandbox import linked
from cloudrec.sandbox.azure.registry import setting
from cloudrec.sandbox.azure.services.aks import nodes, scale_sets
from cloudrec.sandbox.azure.services.compute import sizes
from cloudrec.sandbox.azure.store import store
from cloudrec.sandbox.linked import Picture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.sandbox.azure.store import Resource
    from cloudrec.sandbox.world import World

_TYPE = "Microsoft.ContainerService/managedClusters"
_PREFIX = "ey"  # of Entra's tokens
_CARDS = 8  # InfiniBand's, on every size that has any


def look(world: World) -> Picture:
    """The first cluster that is there, and the machines of its pools."""
    for cluster in store(world).of_type(_TYPE):
        if cluster.properties.get("fqdn") or cluster.properties.get("privateFQDN"):
            found = tuple(
                node for pool in nodes.pools(world, cluster) for node in _machines(world, cluster, pool)
            )
            return Picture(cluster=nodes.guid(cluster, f"identity {cluster.made_at}"), nodes=found)
    return Picture()


def _machines(world: World, cluster: Resource, pool: Resource) -> Iterator[dict[str, Any]]:
    scale_set = store(world).find(scale_sets.id_of(pool, nodes.group_name(cluster)))
    size = sizes.find(pool.properties["vmSize"])
    if scale_set is None or size is None:
        return
    for number in range(scale_set.document["sku"]["capacity"]):
        yield _node(cluster, pool, size, f"{scale_set.name}{number:06d}")


def _node(cluster: Resource, pool: Resource, size: sizes.Size, name: str) -> dict[str, Any]:
    properties = pool.properties
    is_spot = properties.get("scaleSetPriority") == scale_sets.SPOT
    zones = properties.get("availabilityZones") or ["0"]
    spot = {"kubernetes.azure.com/scalesetpriority": "spot"} if is_spot else {}
    taints = [_taint(text) for text in properties.get("nodeTaints") or ()]
    return {
        "name": name,
        "labels": {
            "agentpool": pool.name,
            "kubernetes.azure.com/agentpool": pool.name,
            "kubernetes.azure.com/mode": str(properties.get("mode", "User")).lower(),
            "node.kubernetes.io/instance-type": size.name,
            "topology.kubernetes.io/region": cluster.location,
            "topology.kubernetes.io/zone": f"{cluster.location}-{zones[0]}",
            **spot,
            **(properties.get("nodeLabels") or {}),
        },
        "taints": taints,
        "capacity": {"cpu": str(size.vcpus), "memory": f"{size.memory_gib}Gi"},
        "hardware": {
            **({"gpus": size.gpus} if size.gpus else {}),
            **({"infiniband": _CARDS} if size.family.infiniband else {}),
        },
        "provider_id": f"azure:///subscriptions/{cluster.path.subscription}/",
    }


def _taint(text: str) -> dict[str, str]:
    key, _, rest = text.partition("=")
    value, _, effect = rest.rpartition(":")
    return {"key": key, "value": value, "effect": effect}


setting(
    "kubernetes",
    read=linked.read,
    write=lambda world, value: linked.order(world, value, prefix=_PREFIX, look=look),
)
