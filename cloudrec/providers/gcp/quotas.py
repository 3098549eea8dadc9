"""The project's quotas: limits, usage, and the cluster's needs. GPU quotas are 0 until one is requested."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.engine.graph import Condition
from cloudrec.findings import Finding
from cloudrec.providers.base.offers import SPOT, Placement
from cloudrec.providers.gcp import offers
from cloudrec.providers.gcp.api import sdk
from cloudrec.providers.gcp.network import nat, network
from cloudrec.providers.gcp.nodes import cpu_nodes
from cloudrec.providers.gcp.nodes.node_pools import GcpCpuNodesDriver, GcpGpuNodesDriver
from cloudrec.providers.gcp.offers import FLEX, RESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout
    from cloudrec.providers.gcp.offers import GcpMachineType

# Cloud Quotas has the limits of newer GPUs on demand, by GPU family.
_BY_FAMILY = "GPUS-PER-GPU-FAMILY-per-project-region"
_EVERYWHERE = "GPUS_ALL_REGIONS"  # of the project, for all GPUs; 0 until more is requested
_PREEMPTIBLE = frozenset({SPOT, FLEX})
_STANDARD_SERIES: Mapping[str, str] = {"n2": "N2_CPUS", "n2d": "N2D_CPUS", "c2": "C2_CPUS", "c3": "C3_CPUS"}


@dataclass(frozen=True, kw_only=True)
class GcpQuota:
    """The limit of a quota and its usage; None if Google does not report the usage."""

    limit: float
    used: float | None


@dataclass(frozen=True, kw_only=True)
class GcpQuotas:
    """The quotas for a cluster, and its own usage of them.

    Attributes:
        region: the region of the cluster, to which most quotas apply.
        limits: the quotas, by name.
        ours: the usage of this cluster's own nodes, by the name of the quota.
    """

    region: str
    limits: Mapping[str, GcpQuota]
    ours: Mapping[str, float]

    def finding(self, name: str, needed: float, what: str, *, blocks: bool = True) -> Finding:
        """Check whether the cluster fits into a quota.

        Args:
            name: of the quota.
            needed: the amount that the whole cluster needs.
            what: the resources that need it, for the user.
            blocks: whether `up` must not start without it.
        """
        quota = self.limits.get(name)
        check = f"quota: {what} ({name})"
        if quota is None:
            return Finding(
                check=check,
                ok=False,
                found=f"{self.region} reports no such quota",
                needed=f"{needed:g}",
                remedy="check IAM & Admin, Quotas in the console",
                blocks=False,
            )
        # The cluster's own nodes are in the usage already, and in `needed` as well.
        others = max((quota.used or 0.0) - self.ours.get(name, 0.0), 0.0)
        used = "" if quota.used is None else f", of which {others:g} are used by others"
        return Finding(
            check=check,
            ok=others + needed <= quota.limit,
            found=f"{quota.limit:g}{used}",
            needed=f"{needed:g}",
            remedy=self._remedy(name, others + needed),
            blocks=blocks,
        )

    def _remedy(self, name: str, value: float) -> str:
        if name == _EVERYWHERE:
            return (
                f"request {value:g} of GPUs (all regions) ({name}) in IAM & Admin, Quotas of the console; a "
                "new project has 0, and every GPU counts"
            )
        return (
            f"request {value:g} of {name} for {self.region} in IAM & Admin, Quotas of the console, or choose "
            "other instance types, another region or fewer nodes"
        )


def findings(gcp: Gcp, layout: GcpLayout) -> list[Finding]:
    """Check each quota that the cluster needs.

    One candidate for the GPU nodes is enough: a quota that excludes only some of them is a warning.
    """
    quotas = GcpQuotas(region=layout.region, limits=_limits(gcp, layout), ours=_ours(gcp, layout))
    of = cpu_nodes.properties(layout)
    count = of.nodes * len(of.zones)
    found = [
        quotas.finding(name, amount, f"{count} x {of.instance_type}")
        for name, amount in _of_cpu(of.instance_type, count)
    ]
    disks = of.disk_gib * count + layout.settings.gpu_root_gib * layout.cluster.nodes
    found.append(quotas.finding("SSD_TOTAL_GB", disks, "root disks", blocks=False))
    if not nat.drivers(gcp)[nat.ROUTER].search(layout.title):
        found.append(quotas.finding("IN_USE_ADDRESSES", 1, "the address of the NAT", blocks=False))
    if not network.drivers(gcp)[network.NETWORK].search(layout.title):
        found.append(quotas.finding("NETWORKS", len(network.network_suffixes(layout)), "networks"))
    return [*found, *_gpu_findings(layout, quotas)]


def needs(way: Placement, hardware: GcpMachineType, nodes: int) -> list[tuple[str, float]]:
    """Return the quotas that GPU nodes count against, each with the amount; none for reserved nodes."""
    gpus = float(hardware.gpus * nodes)
    disks = float(hardware.local_ssds * offers.SSD_GIB * nodes)
    if way.capacity == RESERVED:
        return []
    counted = [(_EVERYWHERE, gpus)]
    if way.capacity in _PREEMPTIBLE:
        if hardware.quota_metric:
            counted.append((f"PREEMPTIBLE_{hardware.quota_metric}", gpus))
        return [*counted, *([("PREEMPTIBLE_LOCAL_SSD_GB", disks)] if disks else [])]
    if hardware.quota_family:
        return [*counted, (f"{_BY_FAMILY} {hardware.quota_family}", gpus)]
    if hardware.quota_metric:
        counted.append((hardware.quota_metric, gpus))
    return [*counted, *([("LOCAL_SSD_TOTAL_GB", disks)] if disks else [])]


def _of_cpu(machine_type: str, count: int) -> list[tuple[str, float]]:
    """Return the quotas that CPU nodes count against, each with the amount."""
    series, _, vcpus = machine_type.partition("-")[0], "", machine_type.rpartition("-")[2]
    return [(_STANDARD_SERIES.get(series, "CPUS"), float(int(vcpus) * count))] if vcpus.isdigit() else []


def _gpu_findings(layout: GcpLayout, quotas: GcpQuotas) -> list[Finding]:
    wanted = layout.cluster.nodes
    checked: dict[tuple[str, str], list[Finding]] = {}
    for way in layout.places():
        name, hardware = way.instance_type, layout.hardware[way.instance_type]
        what = f"{wanted} x {name}, {way.capacity}"
        if (name, way.capacity) not in checked:
            checked[name, way.capacity] = [
                quotas.finding(quota, amount, what) for quota, amount in needs(way, hardware, wanted)
            ]
    # If every candidate lacks some quota, each of the missing ones blocks.
    none = bool(checked) and not any(all(each.ok for each in group) for group in checked.values())
    return [replace(each, blocks=none and each.blocks) for group in checked.values() for each in group]


def _limits(gcp: Gcp, layout: GcpLayout) -> dict[str, GcpQuota]:
    of = sdk.compute
    where = of.GetRegionRequest(project=gcp.project, region=layout.region)
    region = gcp.read(gcp.rest(of.RegionsClient).get, where)
    project = gcp.read(gcp.rest(of.ProjectsClient).get, of.GetProjectRequest(project=gcp.project))
    rows = (*region.quotas, *project.quotas)
    found = {row.metric: GcpQuota(limit=row.limit, used=row.usage) for row in rows}
    if any(hardware.quota_family for hardware in layout.hardware.values()):
        found |= _by_family(gcp, layout.region)
    return found


def _by_family(gcp: Gcp, region: str) -> dict[str, GcpQuota]:
    """Return the limits of newer GPUs, whose usage Google does not report here."""
    name = f"projects/{gcp.project}/locations/global/services/compute.googleapis.com/quotaInfos/{_BY_FAMILY}"
    request = sdk.cloudquotas.GetQuotaInfoRequest(name=name)
    info = gcp.get(gcp.rest(sdk.cloudquotas.CloudQuotasClient).get_quota_info, request)
    found: dict[str, GcpQuota] = {}
    for row in info.dimensions_infos if info is not None else ():
        family = row.dimensions.get("gpu_family", "")
        is_here = region in row.applicable_locations or row.dimensions.get("region") == region
        if family and is_here:
            found[f"{_BY_FAMILY} {family}"] = GcpQuota(limit=float(row.details.value), used=None)
    return found


def _ours(gcp: Gcp, layout: GcpLayout) -> dict[str, float]:
    """Return the usage of this cluster's own nodes, by the name of the quota."""
    found: dict[str, float] = {}

    def add(counted: Sequence[tuple[str, float]]) -> None:
        for name, amount in counted:
            found[name] = found.get(name, 0.0) + amount

    for pool in GcpCpuNodesDriver(gcp).search(layout.title):
        add(_of_cpu(pool.properties["instance_type"], pool.properties["nodes"]))
    for pool in GcpGpuNodesDriver(gcp).search(layout.title):
        of = pool.properties
        hardware = layout.hardware.get(of["instance_type"]) or offers.KNOWN.get(of["instance_type"])
        if hardware is not None and pool.condition is Condition.READY:
            way = Placement(instance_type=hardware.instance_type, zone=of["zone"], capacity=of["capacity"])
            add(needs(way, hardware, of["nodes"]))
    return found
