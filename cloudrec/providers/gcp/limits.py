"""The project's quotas, what is used, what is needed; those of GPUs are 0 until one asks for more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.offers import SPOT, Place
from cloudrec.engine.graph import Condition
from cloudrec.provider import Finding
from cloudrec.providers.gcp import cpu_nodes, nat, network, offers
from cloudrec.providers.gcp.node_pools import CpuNodesDriver, GpuNodesDriver
from cloudrec.providers.gcp.offers import FLEX, RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.layout import Layout
    from cloudrec.providers.gcp.offers import Hardware

# What the quotas on GPUs in a region are called, after PREEMPTIBLE_ for what can be taken away.
_METRICS: Mapping[str, str] = {
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
    "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    "nvidia-h100-80gb": "NVIDIA_H100_GPUS",
    "nvidia-h100-mega-80gb": "NVIDIA_H100_MEGA_GPUS",
}
# Newer GPUs on demand have no such quota: Cloud Quotas tells of them by the family.
_FAMILIES: Mapping[str, str] = {
    "nvidia-h100-80gb": "NVIDIA_H100",
    "nvidia-h100-mega-80gb": "NVIDIA_H100_MEGA",
    "nvidia-h200-141gb": "NVIDIA_H200",
    "nvidia-b200": "NVIDIA_B200",
}
_BY_FAMILY = "GPUS-PER-GPU-FAMILY-per-project-region"
_EVERYWHERE = "GPUS_ALL_REGIONS"  # all GPUs but those of the families, of all regions
_PREEMPTIBLE = frozenset({SPOT, FLEX})
_SSD_GIB = 375
_STANDARD_SERIES: Mapping[str, str] = {"n2": "N2_CPUS", "n2d": "N2D_CPUS", "c2": "C2_CPUS", "c3": "C3_CPUS"}


@dataclass(frozen=True, kw_only=True)
class Quota:
    """One limit: what may be, and what is; of some, Google does not tell what is."""

    limit: float
    used: float | None


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """The limits that hold for the cluster, and what it has of them already.

    Attributes:
        region: where most of them hold.
        limits: by name.
        ours: what this cluster's own nodes use, by name.
    """

    region: str
    limits: Mapping[str, Quota]
    ours: Mapping[str, float]

    def finding(self, name: str, needed: float, what: str, *, blocks: bool = True) -> Finding:
        """Tell whether so much fits into a quota.

        Args:
            name: the quota's.
            needed: by the cluster in all.
            what: it is for, in a person's words.
            blocks: whether the cluster cannot be without.
        """
        quota = self.limits.get(name)
        check = f"quota: {what} ({name})"
        if quota is None:
            return Finding(
                check=check,
                ok=False,
                found=f"{self.region} tells of no such quota",
                needed=f"{needed:g}",
                remedy="look at IAM & Admin, Quotas in the console",
                blocks=False,
            )
        others = max((quota.used or 0.0) - self.ours.get(name, 0.0), 0.0)
        used = "" if quota.used is None else f", of which {others:g} are used by others"
        return Finding(
            check=check,
            ok=others + needed <= quota.limit,
            found=f"{quota.limit:g}{used}",
            needed=f"{needed:g}",
            remedy=f"ask for more in IAM & Admin, Quotas ({name}, {self.region}), or take other instance "
            "types, another region or fewer nodes",
            blocks=blocks,
        )


def findings(gcp: Gcp, layout: Layout) -> list[Finding]:
    """Check each quota that the cluster needs.

    Of the ways of having GPU nodes one is enough: a quota that rules some of them out is a warning.
    """
    quotas = Quotas(region=layout.region, limits=_limits(gcp, layout), ours=_ours(gcp, layout))
    of = cpu_nodes.properties(layout)
    count = of["nodes"] * len(of["zones"])
    found = [
        quotas.finding(name, amount, f"{count} x {of['instance_type']}")
        for name, amount in _of_cpu(of["instance_type"], count)
    ]
    disks = of["disk_gib"] * count + layout.settings.gpu_root_gib * layout.cluster.nodes
    found.append(quotas.finding("SSD_TOTAL_GB", disks, "root disks", blocks=False))
    if not nat.drivers(gcp)[nat.ROUTER].search(layout.title):
        found.append(quotas.finding("IN_USE_ADDRESSES", 1, "the way out", blocks=False))
    if not network.drivers(gcp)[network.NETWORK].search(layout.title):
        found.append(quotas.finding("NETWORKS", 1 + layout.gpu_networks, "networks"))
    return [*found, *_gpu_findings(layout, quotas)]


def needs(way: Place, hardware: Hardware, nodes: int) -> list[tuple[str, float]]:
    """Return the quotas that some GPU nodes count against, with how much; none for what is reserved."""
    gpus = float(hardware.gpus * nodes)
    disks = float(hardware.local_ssds * _SSD_GIB * nodes)
    accelerator = hardware.accelerator
    if way.market == RESERVED:
        return []
    if way.market in _PREEMPTIBLE:
        metric = _METRICS.get(accelerator)
        counted = [(f"PREEMPTIBLE_{metric}", gpus)] if metric else []
        return [*counted, *([("PREEMPTIBLE_LOCAL_SSD_GB", disks)] if disks else [])]
    if accelerator in _FAMILIES:
        return [(f"{_BY_FAMILY} {_FAMILIES[accelerator]}", gpus)]
    counted = [(_METRICS[accelerator], gpus), (_EVERYWHERE, gpus)] if accelerator in _METRICS else []
    return [*counted, *([("LOCAL_SSD_TOTAL_GB", disks)] if disks else [])]


def _of_cpu(machine_type: str, count: int) -> list[tuple[str, float]]:
    """The quotas that nodes for what is no training count against."""
    series, _, vcpus = machine_type.partition("-")[0], "", machine_type.rpartition("-")[2]
    return [(_STANDARD_SERIES.get(series, "CPUS"), float(int(vcpus) * count))] if vcpus.isdigit() else []


def _gpu_findings(layout: Layout, quotas: Quotas) -> list[Finding]:
    wanted = layout.cluster.nodes
    checked: dict[tuple[str, str], list[Finding]] = {}
    for way in offers.places(layout):
        name, hardware = way.instance_type, layout.hardware[way.instance_type]
        what = f"{wanted} x {name}, {way.market}"
        if (name, way.market) not in checked:
            checked[name, way.market] = [
                quotas.finding(quota, amount, what) for quota, amount in needs(way, hardware, wanted)
            ]
    none = bool(checked) and not any(all(each.ok for each in group) for group in checked.values())
    return [replace(each, blocks=none and each.blocks) for group in checked.values() for each in group]


def _limits(gcp: Gcp, layout: Layout) -> dict[str, Quota]:
    region = gcp.read(gcp.compute("regions").get, project=gcp.project, region=layout.region)
    project = gcp.read(gcp.compute("projects").get, project=gcp.project)
    rows: Iterable[Any] = (*region.quotas, *project.quotas)
    found = {row.metric: Quota(limit=row.limit, used=row.usage) for row in rows}
    if any(hardware.accelerator in _FAMILIES for hardware in layout.hardware.values()):
        found |= _by_family(gcp, layout.region)
    return found


def _by_family(gcp: Gcp, region: str) -> dict[str, Quota]:
    """The limits on newer GPUs; what is used of them Google does not tell here."""
    name = f"projects/{gcp.project}/locations/global/services/compute.googleapis.com/quotaInfos/{_BY_FAMILY}"
    info = gcp.get(gcp.client("cloudquotas").get_quota_info, name=name)
    found: dict[str, Quota] = {}
    for row in info.dimensions_infos if info is not None else ():
        family = row.dimensions.get("gpu_family", "")
        is_here = region in row.applicable_locations or row.dimensions.get("region") == region
        if family and is_here:
            found[f"{_BY_FAMILY} {family}"] = Quota(limit=float(row.details.value), used=None)
    return found


def _ours(gcp: Gcp, layout: Layout) -> dict[str, float]:
    """What this cluster's own nodes use, by quota."""
    found: dict[str, float] = {}

    def add(counted: Sequence[tuple[str, float]]) -> None:
        for name, amount in counted:
            found[name] = found.get(name, 0.0) + amount

    for pool in CpuNodesDriver(gcp).search(layout.title):
        add(_of_cpu(pool.properties["instance_type"], pool.properties["nodes"]))
    for pool in GpuNodesDriver(gcp).search(layout.title):
        of = pool.properties
        hardware = layout.hardware.get(of["instance_type"]) or offers.KNOWN.get(of["instance_type"])
        if hardware is not None and pool.condition is Condition.READY:
            way = Place(instance_type=hardware.instance_type, zone=of["zone"], market=of["market"])
            add(needs(way, hardware, of["nodes"]))
    return found
