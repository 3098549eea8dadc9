"""Clusters that the Kubernetes stand-in serves: `kubernetes` of /_control (see `core.linked`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.registry import setting
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.aks import authority, nodes, pool_checks, scale_sets
from cloudrec_sandbox.azure.services.aks.losses import evictions
from cloudrec_sandbox.azure.services.compute import sizes
from cloudrec_sandbox.core import linked
from cloudrec_sandbox.core.linked import Picture

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

_TYPE = "Microsoft.ContainerService/managedClusters"
_CARDS = 8  # InfiniBand cards, on every size that has any


def look(world: World) -> dict[str, Picture]:
    """Return the clusters by their ids, with the machines of their pools."""
    return {cluster.id: _picture(world, cluster) for cluster in store(world).of_type(_TYPE)}


def _picture(world: World, cluster: Resource) -> Picture:
    # A cluster has no host name until its creation ends, and no nodes before that.
    if not (cluster.properties.get("fqdn") or cluster.properties.get("privateFQDN")):
        return Picture()
    return Picture(
        cluster=nodes.guid(cluster, f"identity {cluster.made_at}"),
        nodes=tuple(node for pool in nodes.pools(world, cluster) for node in _machines(world, cluster, pool)),
        callers=authority.callers(world, cluster),
        is_reachable=_is_reachable(world, cluster),
        leaving=evictions.leaving(world),
        orders={"issuer": authority.issuer(cluster), **_definitions(cluster)},
    )


def _definitions(cluster: Resource) -> dict[str, list[str]]:
    """Return the kinds that come with Azure Monitor's agent (prometheus-metrics-scrape-crd.md)."""
    metrics = (cluster.properties.get("azureMonitorProfile") or {}).get("metrics") or {}
    return {"crds": ["azure-monitor"]} if metrics.get("enabled") else {}


def _is_reachable(world: World, cluster: Resource) -> bool:
    """Whether the API server answers the user's machine, which is outside the network.

    A private cluster's has a private address alone. A public one's answers the authorized ranges, or any
    address where there are none (azure-aks-docs, api-server-authorized-ip-ranges.md).
    """
    profile = cluster.properties.get("apiServerAccessProfile") or {}
    if profile.get("enablePrivateCluster"):
        return False
    ranges = profile.get("authorizedIPRanges") or []
    return not ranges or linked.is_admitted(world, ranges)


def _machines(world: World, cluster: Resource, pool: Resource) -> Iterator[dict[str, Any]]:
    scale_set = store(world).find(scale_sets.id_of(pool, nodes.group_name(cluster)))
    size = sizes.find(pool.properties["vmSize"])
    if scale_set is None or size is None:
        return
    for machine in scale_sets.machines_of(scale_set):
        yield {**_node(cluster, pool, size, machine), "machine": machine}


def _node(cluster: Resource, pool: Resource, size: sizes.Size, name: str) -> dict[str, Any]:
    properties = pool.properties
    is_spot = properties.get("scaleSetPriority") == scale_sets.SPOT
    zones = properties.get("availabilityZones") or ["0"]
    spot = {"kubernetes.azure.com/scalesetpriority": "spot"} if is_spot else {}
    release = pool_checks.ubuntu_release(properties)
    taints = [_taint(text) for text in properties.get("nodeTaints") or ()]
    return {
        "name": name,
        "labels": {
            "agentpool": pool.name,
            "kubernetes.azure.com/agentpool": pool.name,
            "kubernetes.azure.com/mode": str(properties.get("mode", "User")).lower(),
            # azure-aks-docs, use-labels.md: `effective` always has the release, `requested` is as in the API.
            "kubernetes.azure.com/os-sku-effective": f"Ubuntu{release}",
            "kubernetes.azure.com/os-sku-requested": properties["osSKU"],
            "node.kubernetes.io/instance-type": size.name,
            "topology.kubernetes.io/region": cluster.location,
            "topology.kubernetes.io/zone": f"{cluster.location}-{zones[0]}",
            **spot,
            **(properties.get("nodeLabels") or {}),
        },
        "taints": taints,
        "capacity": {
            "cpu": str(size.vcpus),
            "memory": f"{size.memory_gib}Gi",
            "ephemeral-storage": f"{_ephemeral_gib(properties, size)}Gi",
        },
        "hardware": {
            **({"gpus": size.gpus} if size.gpus else {}),
            **({"infiniband": _CARDS} if size.family.infiniband else {}),
            **({"nvme": size.nvme_disks} if size.nvme_disks else {}),
            # Azure's images mount the temporary disk of a size that has one at /mnt
            # (azure-compute-docs, managed-disks-overview.md, "Temporary disk").
            **({"temporary_disk": 1} if size.temp_disk_mib else {}),
        },
        "os_image": f"Ubuntu {release[:2]}.{release[2:]} LTS",
        "provider_id": f"azure:///subscriptions/{cluster.path.subscription}/",
    }


def _ephemeral_gib(properties: Mapping[str, Any], size: sizes.Size) -> int:
    """Return the GiB of ephemeral storage that pods can request on a node.

    It is on the OS disk, or with `kubeletDiskType` Temporary on the temporary disk ("Determines the placement
    of emptyDir volumes, container runtime data root, and Kubelet ephemeral storage":
    azure-mgmt-containerservice, KubeletDiskType). The kubelet keeps 10% of it free: its default for
    nodefs.available. The local NVMe disks are no part of it.
    """
    temporary = properties.get("kubeletDiskType") == "Temporary"
    gib = size.temp_disk_mib // 1024 if temporary else int(properties["osDiskSizeGB"])
    return int(gib * 0.9)


def _taint(text: str) -> dict[str, str]:
    key, _, rest = text.partition("=")
    value, _, effect = rest.rpartition(":")
    return {"key": key, "value": value, "effect": effect}


setting(
    "kubernetes",
    read=linked.read,
    write=lambda world, value: linked.order(world, value, look=look, lose=evictions.lose),
)
