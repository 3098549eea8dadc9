"""The subscription's quotas on virtual cores, what is used, what the cluster needs; many are 0 at first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.cloud.offers import ON_DEMAND, SPOT
from cloudrec.engine.graph import Condition
from cloudrec.provider import Finding
from cloudrec.providers.azure import nodes, offers
from cloudrec.providers.azure.cluster import ClusterDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.layout import Layout
    from cloudrec.providers.azure.offers import Hardware

_TOTAL, _SPOT = "cores", "lowprioritycores"
_NAMES = {_TOTAL: "Total Regional vCPUs", _SPOT: "Total Regional Spot vCPUs"}


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


def findings(azure: Azure, layout: Layout) -> list[Finding]:
    """Check each quota that the cluster needs.

    Of the ways of having GPU nodes one is enough: a quota that rules some of them out is a warning.
    """
    quotas = read(azure)
    sizes = offers.skus(azure, [layout.settings.system_vm_size])
    system = sizes.get(layout.settings.system_vm_size)
    if system is None:
        return [
            Finding(
                check=f"VM size {layout.settings.system_vm_size}",
                ok=False,
                found=f"not in {layout.region}",
                remedy="take another --set cluster.settings.system_vm_size=...",
            )
        ]
    ours = _ours(azure, layout, system.hardware)
    cores = system.hardware.vcpus * layout.settings.system_nodes
    what = f"vCPUs of {layout.settings.system_nodes} x {layout.settings.system_vm_size}"
    found = [
        _finding(layout, quotas, ours, key, cores, what) for key in _keys(system.hardware, ON_DEMAND)
    ]
    return [*found, *_gpu_findings(layout, quotas, ours, cores)]


def read(azure: Azure) -> dict[str, Quota]:
    """Return the quotas on virtual cores of the region, by what `offers.family_key` makes of their names."""
    rows = azure.rows(azure.client("compute").usage.list, azure.region)
    return {
        offers.family_key(str(row.name.value)): Quota(
            name=str(row.name.localized_value or row.name.value), used=row.current_value, limit=row.limit
        )
        for row in rows
    }


def _gpu_findings(
    layout: Layout, quotas: Mapping[str, Quota], ours: Mapping[str, int], system: int
) -> list[Finding]:
    ways = dict.fromkeys((way.instance_type, way.market) for way in nodes.places(layout))
    checked: dict[tuple[str, str], list[Finding]] = {}
    for name, market in ways:
        hardware = layout.hardware[name]
        cores = hardware.vcpus * layout.cluster.nodes
        what = f"{market} vCPUs for {layout.cluster.nodes} x {name}"
        checked[name, market] = [
            _finding(layout, quotas, ours, key, cores + (system if key == _TOTAL else 0), what)
            for key in _keys(hardware, market)
        ]
    none = bool(checked) and not any(all(each.ok for each in group) for group in checked.values())
    return [replace(each, blocks=none and each.blocks) for group in checked.values() for each in group]


def _finding(
    layout: Layout, quotas: Mapping[str, Quota], ours: Mapping[str, int], key: str, needed: int, what: str
) -> Finding:
    quota = quotas.get(key)
    if quota is None:
        return Finding(
            check=f"quota: {what}",
            ok=False,
            found=f"{layout.region} tells of no quota {_NAMES.get(key, key)}",
            needed=f"{needed}",
            remedy="look at Usage + quotas in the portal",
            blocks=False,
        )
    others = max(quota.used - ours.get(key, 0), 0)
    return Finding(
        check=f"quota: {what} ({quota.name})",
        ok=others + needed <= quota.limit,
        found=f"{quota.limit}, of which {others} are used by others",
        needed=f"{needed}",
        remedy=f"ask for more in Usage + quotas ({quota.name}, {layout.region}), or take other instance "
        "types, another region or fewer nodes",
    )


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
    for pool in nodes.drivers(azure)[nodes.GPU].search(layout.title):
        if pool.condition is Condition.READY:
            size = pool.properties["instance_type"]
            hardware = layout.hardware.get(size) or offers.KNOWN.get(size)
            add(hardware, pool.properties["nodes"], pool.properties["market"])
    return found


def _keys(hardware: Hardware, market: str) -> tuple[str, ...]:
    """Return the quotas that a machine counts against."""
    return (_SPOT,) if market == SPOT else (_TOTAL, offers.family_key(hardware.family))
