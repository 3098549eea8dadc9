"""Compares the subscription's quotas with what a cluster needs. Many quotas are 0 in a new subscription."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.engine.graph import Condition
from cloudrec.findings import Finding
from cloudrec.providers.azure import offers
from cloudrec.providers.azure.cluster.cluster import AzureClusterDriver
from cloudrec.providers.azure.nodes import nodes
from cloudrec.providers.azure.nodes.node_pools import AzureGpuNodesDriver
from cloudrec.providers.base.offers import ON_DEMAND, SPOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.layout import AzureLayout
    from cloudrec.providers.azure.offers import AzureVmSize

# The quotas over all families: of on-demand machines, and of spot machines.
_TOTAL, _SPOT = "cores", "lowprioritycores"
_ADDRESSES = "StandardSkuPublicIpAddresses"


@dataclass(frozen=True, kw_only=True)
class AzureQuota:
    """One limit of the subscription in a region.

    Attributes:
        name: as the portal shows it.
        used: vCPUs in use, this cluster's included.
        limit: the most vCPUs.
    """

    name: str
    used: int
    limit: int


@dataclass(frozen=True, kw_only=True)
class AzureQuotas:
    """The limits of a region, and this cluster's share of what is in use.

    Attributes:
        region: the region of the limits.
        limits: `offers.family_key` of the quota's name -> the quota.
        ours: the same key -> vCPUs of this cluster's nodes.
    """

    region: str
    limits: Mapping[str, AzureQuota]
    ours: Mapping[str, int]

    def finding(self, key: str, needed: int, what: str) -> Finding:
        """Return a finding: whether a number of vCPUs fits into a quota.

        Args:
            key: the quota's.
            needed: the cluster's vCPUs in all.
            what: a description of the vCPUs, for the message.
        """
        quota = self.limits.get(key)
        if quota is None:
            return Finding(
                check=f"quota: {what}",
                ok=False,
                found=f"{self.region} reports no quota {key!r}",
                needed=f"{needed}",
                remedy="check Usage + quotas in the portal",
                blocks=False,
            )
        others = max(quota.used - self.ours.get(key, 0), 0)
        return Finding(
            check=f"quota: {what} ({quota.name})",
            ok=others + needed <= quota.limit,
            found=f"{quota.limit}, of which {others} are used by others",
            needed=f"{needed}",
            remedy=f"request more in Usage + quotas ({quota.name}, {self.region}), or choose other instance "
            "types, another region or fewer nodes",
        )


def findings(azure: Azure, layout: AzureLayout) -> list[Finding]:
    """Return a finding for each quota that the cluster needs.

    One placement of the GPU nodes is enough, so that a quota that rules out only some placements is a
    warning.
    """
    size, count = layout.settings.system_vm_size, layout.settings.system_nodes
    sku = offers.skus(azure, [size]).get(size)
    if sku is None or sku.restriction:
        return [
            Finding(
                check=f"VM size {size}",
                ok=False,
                found=sku.restriction if sku else f"not sold in {layout.region}",
                remedy="choose another --set cluster.settings.system_vm_size=...",
            )
        ]
    system, cores = sku.hardware, sku.hardware.vcpus * count
    quotas = AzureQuotas(region=layout.region, limits=read(azure), ours=_ours(azure, layout, system))
    found = [quotas.finding(key, cores, f"vCPUs of {count} x {size}") for key in _keys(system, ON_DEMAND)]
    return [*found, *_gpu_findings(layout, quotas, cores), *_addresses(azure, layout)]


def read(azure: Azure) -> dict[str, AzureQuota]:
    """Return the vCPU quotas of the region, by `offers.family_key` of their names."""
    rows = azure.rows(azure.compute.usage.list, azure.region)
    return {
        offers.family_key(str(row.name.value)): AzureQuota(
            name=str(row.name.localized_value or row.name.value), used=row.current_value, limit=row.limit
        )
        for row in rows
    }


def _gpu_findings(layout: AzureLayout, quotas: AzureQuotas, system: int) -> list[Finding]:
    """Return the findings for each instance type and capacity type of the GPU nodes.

    Args:
        layout: the cluster's.
        quotas: of the cluster's region.
        system: vCPUs of the system nodes, which count against the total too.
    """
    nodes_wanted = layout.cluster.nodes
    checked: dict[tuple[str, str], list[Finding]] = {}
    for way in nodes.places(layout):
        name, hardware = way.instance_type, layout.hardware[way.instance_type]
        cores, what = hardware.vcpus * nodes_wanted, f"{way.capacity} vCPUs for {nodes_wanted} x {name}"
        if (name, way.capacity) not in checked:
            checked[name, way.capacity] = [
                quotas.finding(key, cores + (system if key == _TOTAL else 0), what)
                for key in _keys(hardware, way.capacity)
            ]
    # A quota blocks only if no placement at all fits.
    none = bool(checked) and not any(all(each.ok for each in group) for group in checked.values())
    return [replace(each, blocks=none and each.blocks) for group in checked.values() for each in group]


def _addresses(azure: Azure, layout: AzureLayout) -> list[Finding]:
    """Check that the quota has room for the NAT gateway's public address, unless it exists."""
    client = azure.network
    if azure.get(client.public_ip_addresses.get, layout.group, layout.name) is not None:
        return []
    rows = [
        row
        for row in azure.rows(client.usages.list, azure.region)
        if row.name and row.name.value == _ADDRESSES
    ]
    return [
        Finding(
            check="quota: public addresses",
            ok=row.current_value < row.limit,
            found=f"{row.limit}, of which {row.current_value} are used",
            needed="1",
            remedy=f"release some, or request more in Usage + quotas (networking, {layout.region})",
        )
        for row in rows
    ]


def _ours(azure: Azure, layout: AzureLayout, system: AzureVmSize) -> dict[str, int]:
    """Return the vCPUs of this cluster's nodes, by quota."""
    found: dict[str, int] = {}

    def add(hardware: AzureVmSize | None, count: int, capacity: str) -> None:
        if hardware is not None:
            for key in _keys(hardware, capacity):
                found[key] = found.get(key, 0) + hardware.vcpus * count

    for cluster in AzureClusterDriver(azure).search(layout.title):
        if cluster.properties["system_vm_size"] == layout.settings.system_vm_size:
            add(system, cluster.properties["system_nodes"], ON_DEMAND)
    for pool in AzureGpuNodesDriver(azure).search(layout.title):
        # A pool that is not ready may have fewer nodes than it requests.
        if pool.condition is Condition.READY:
            size = pool.properties["instance_type"]
            hardware = layout.hardware.get(size) or offers.KNOWN.get(size)
            add(hardware, pool.properties["nodes"], pool.properties["capacity"])
    return found


def _keys(hardware: AzureVmSize, capacity: str) -> tuple[str, ...]:
    """Return the quotas that a machine counts against."""
    return (_SPOT,) if capacity == SPOT else (_TOTAL, offers.family_key(hardware.family))
