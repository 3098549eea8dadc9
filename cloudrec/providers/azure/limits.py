"""The subscription's quotas on virtual cores, what is used, what the cluster needs; many are 0 at first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.cloud.offers import ON_DEMAND, SPOT
from cloudrec.engine.graph import Condition
from cloudrec.provider import Finding
from cloudrec.providers.azure import nodes, offers
from cloudrec.providers.azure.cluster import ClusterDriver
from cloudrec.providers.azure.node_pools import GpuNodesDriver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.layout import Layout
    from cloudrec.providers.azure.offers import Hardware

# All machines but spot ones, and all spot ones, whatever their families.
_TOTAL, _SPOT = "cores", "lowprioritycores"
_ADDRESSES = "StandardSkuPublicIpAddresses"


@dataclass(frozen=True, kw_only=True)
class Quota:
    """One limit of the subscription in a region.

    Attributes:
        name: as the portal shows it.
        used: virtual cores that are used, this cluster's own included.
        limit: virtual cores that may be.
    """

    name: str
    used: int
    limit: int


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """The limits of a region, and what this cluster has of them already.

    Attributes:
        region: where they hold.
        limits: by what `offers.family_key` makes of their names.
        ours: virtual cores of this cluster's own nodes, likewise.
    """

    region: str
    limits: Mapping[str, Quota]
    ours: Mapping[str, int]

    def finding(self, key: str, needed: int, what: str) -> Finding:
        """Tell whether so many virtual cores fit into a quota.

        Args:
            key: the quota's.
            needed: virtual cores of the cluster in all.
            what: they are for, in a person's words.
        """
        quota = self.limits.get(key)
        if quota is None:
            return Finding(
                check=f"quota: {what}",
                ok=False,
                found=f"{self.region} tells of no quota {key!r}",
                needed=f"{needed}",
                remedy="look at Usage + quotas in the portal",
                blocks=False,
            )
        others = max(quota.used - self.ours.get(key, 0), 0)
        return Finding(
            check=f"quota: {what} ({quota.name})",
            ok=others + needed <= quota.limit,
            found=f"{quota.limit}, of which {others} are used by others",
            needed=f"{needed}",
            remedy=f"ask for more in Usage + quotas ({quota.name}, {self.region}), or take other instance "
            "types, another region or fewer nodes",
        )


def findings(azure: Azure, layout: Layout) -> list[Finding]:
    """Check each quota that the cluster needs.

    Of the ways of having GPU nodes one is enough: a quota that rules some of them out is a warning.
    """
    size, count = layout.settings.system_vm_size, layout.settings.system_nodes
    sku = offers.skus(azure, [size]).get(size)
    if sku is None or sku.restriction:
        return [
            Finding(
                check=f"VM size {size}",
                ok=False,
                found=sku.restriction if sku else f"not sold in {layout.region}",
                remedy="take another --set cluster.settings.system_vm_size=...",
            )
        ]
    system, cores = sku.hardware, sku.hardware.vcpus * count
    quotas = Quotas(region=layout.region, limits=read(azure), ours=_ours(azure, layout, system))
    found = [quotas.finding(key, cores, f"vCPUs of {count} x {size}") for key in _keys(system, ON_DEMAND)]
    return [*found, *_gpu_findings(layout, quotas, cores), *_addresses(azure, layout)]


def read(azure: Azure) -> dict[str, Quota]:
    """Return the quotas on virtual cores of the region, by what `offers.family_key` makes of their names."""
    rows = azure.rows(azure.client("compute").usage.list, azure.region)
    return {
        offers.family_key(str(row.name.value)): Quota(
            name=str(row.name.localized_value or row.name.value), used=row.current_value, limit=row.limit
        )
        for row in rows
    }


def _gpu_findings(layout: Layout, quotas: Quotas, system: int) -> list[Finding]:
    """Check each way of having the GPU nodes.

    Args:
        layout: the cluster's.
        quotas: of its region.
        system: virtual cores of the nodes for what is no training, which count against the total too.
    """
    nodes_wanted = layout.cluster.nodes
    checked: dict[tuple[str, str], list[Finding]] = {}
    for way in nodes.places(layout):
        name, hardware = way.instance_type, layout.hardware[way.instance_type]
        cores, what = hardware.vcpus * nodes_wanted, f"{way.market} vCPUs for {nodes_wanted} x {name}"
        if (name, way.market) not in checked:
            checked[name, way.market] = [
                quotas.finding(key, cores + (system if key == _TOTAL else 0), what)
                for key in _keys(hardware, way.market)
            ]
    none = bool(checked) and not any(all(each.ok for each in group) for group in checked.values())
    return [replace(each, blocks=none and each.blocks) for group in checked.values() for each in group]


def _addresses(azure: Azure, layout: Layout) -> list[Finding]:
    """Check that the way out of the network may have an address, where it has none yet."""
    client = azure.client("network")
    if azure.get(client.public_ip_addresses.get, layout.group, layout.name) is not None:
        return []
    rows = [row for row in azure.rows(client.usages.list, azure.region) if row.name.value == _ADDRESSES]
    return [
        Finding(
            check="quota: public addresses",
            ok=row.current_value < row.limit,
            found=f"{row.limit}, of which {row.current_value} are used",
            needed="1",
            remedy=f"release some, or ask for more in Usage + quotas (networking, {layout.region})",
        )
        for row in rows
    ]


def _ours(azure: Azure, layout: Layout, system: Hardware) -> dict[str, int]:
    """Return the virtual cores that this cluster's own nodes have, by quota."""
    found: dict[str, int] = {}

    def add(hardware: Hardware | None, count: int, market: str) -> None:
        if hardware is not None:
            for key in _keys(hardware, market):
                found[key] = found.get(key, 0) + hardware.vcpus * count

    for cluster in ClusterDriver(azure).search(layout.title):
        if cluster.properties["system_vm_size"] == layout.settings.system_vm_size:
            add(system, cluster.properties["system_nodes"], ON_DEMAND)
    for pool in GpuNodesDriver(azure).search(layout.title):
        if pool.condition is Condition.READY:
            size = pool.properties["instance_type"]
            hardware = layout.hardware.get(size) or offers.KNOWN.get(size)
            add(hardware, pool.properties["nodes"], pool.properties["market"])
    return found


def _keys(hardware: Hardware, market: str) -> tuple[str, ...]:
    """Return the quotas that a machine counts against."""
    return (_SPOT,) if market == SPOT else (_TOTAL, offers.family_key(hardware.family))
