"""The choice of the zones of a cluster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.providers.gcp.api import gke, labels, sdk
from cloudrec.providers.gcp.layout import TAG_ZONES, shared_name
from cloudrec.providers.gcp.offers import KNOWN
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.spec.models import ClusterSpec

_MOST = 3  # zones to try if the spec names none
_LOOKS = 8  # parallel calls


@dataclass(frozen=True, kw_only=True)
class GcpZones:
    """The zone of a zonal control plane, and the zones to try for GPU nodes, in order."""

    home: str
    gpu: tuple[str, ...]


def choose(gcp: Gcp, cluster: ClusterSpec, instance_types: Sequence[str]) -> GcpZones:
    """Return the spec's zones, else those of the existing cluster, else those that offer the first type.

    An AI zone is never the home zone, since it is not for control planes. Google's offer changes from month
    to month, and a control plane cannot move. So an existing cluster keeps its home zone, and its GPU zones
    unless the spec names others.

    Raises:
        SpecError: a zone is not in this region, or no zone offers the first instance type.
    """
    laid_out = _laid_out(gcp, cluster.title)
    if cluster.zones:
        gpu = _named(gcp, cluster.zones)
    else:
        gpu = laid_out.gpu if laid_out else _offering(gcp, instance_types[0])
    return GcpZones(home=laid_out.home if laid_out else _home(gcp, gpu), gpu=gpu)


def as_tag(zones: GcpZones) -> str:
    """Return the value of the network's tag: the home zone, then the GPU zones."""
    return " ".join((zones.home, *zones.gpu))


def offering(gcp: Gcp, instance_types: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the zones of the region that offer each type, sorted; each type is read once and cached."""
    unknown = [name for name in instance_types if name not in gcp.offered]
    asked = " OR ".join(f'(name = "{name}")' for name in unknown)

    def types_of(zone: str) -> set[str]:
        request = sdk.compute.ListMachineTypesRequest(project=gcp.project, zone=zone, filter=asked)
        return {row.name for row in gcp.rows(gcp.rest(sdk.compute.MachineTypesClient).list, request)}

    if unknown:
        with ThreadPoolExecutor(_LOOKS, thread_name_prefix="zones") as pool:
            there = dict(zip(gcp.zones, pool.map(types_of, gcp.zones), strict=True))
        gcp.offered |= {name: tuple(zone for zone in there if name in there[zone]) for name in unknown}
    return {name: gcp.offered[name] for name in instance_types}


def _laid_out(gcp: Gcp, title: str) -> GcpZones | None:
    """Return the zones in the tag of the cluster's network; None if there is no network or no tag."""
    name = shared_name(title, gcp.region)
    request = sdk.compute.GetNetworkRequest(project=gcp.project, network=name)
    row = gcp.get(gcp.rest(sdk.compute.NetworksClient).get, request)
    words = labels.described(row.description).get(TAG_ZONES, "").split() if row is not None else []
    return GcpZones(home=words[0], gpu=tuple(words[1:])) if len(words) > 1 else None


def _home(gcp: Gcp, gpu: Sequence[str]) -> str:
    """Return the first of the GPU zones that is no AI zone; else the parent of the first, or any other."""
    standard = [zone for zone in gcp.zones if not gke.is_ai_zone(zone)]
    wanted = [*gpu, gke.standard_zone(gpu[0])]
    return next((zone for zone in wanted if zone in standard), standard[0] if standard else gpu[0])


def _named(gcp: Gcp, zones: Sequence[str]) -> tuple[str, ...]:
    for zone in zones:
        if zone not in gcp.zones:
            raise SpecError(
                f"cluster.zones has {zone!r}, which is no zone of region {gcp.region}",
                remedy=f"choose from {', '.join(gcp.zones)}",
            )
    return tuple(zones)


def _offering(gcp: Gcp, instance_type: str) -> tuple[str, ...]:
    zones = offering(gcp, [instance_type])[instance_type]
    if not zones and instance_type not in KNOWN:
        raise SpecError(
            f"region {gcp.region} has no machine type {instance_type!r}",
            remedy=did_you_mean(instance_type, KNOWN),
        )
    if not zones:
        raise SpecError(
            f"no zone of region {gcp.region} has {instance_type}",
            remedy="choose another region with --region, or other --instance-types",
        )
    # A project sees AI zones only if it has turned them on; they are farther from its bucket.
    return tuple(sorted(zones, key=gke.is_ai_zone)[:_MOST])
