"""In which zones a cluster lives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.providers.gcp import labels
from cloudrec.providers.gcp.layout import TAG_ZONES, shared_name
from cloudrec.providers.gcp.offers import KNOWN
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.spec.models import ClusterSpec

_MOST = 3  # zones that are tried when none are named
_LOOKS = 8  # at once


@dataclass(frozen=True, kw_only=True)
class Zones:
    """The zone of a zonal control plane, and the zones to try for GPU nodes, in order."""

    home: str
    gpu: tuple[str, ...]


def choose(gcp: Gcp, cluster: ClusterSpec, instance_types: Sequence[str]) -> Zones:
    """Take the spec's zones, or those that the cluster was laid out for, or those that have the first type.

    What Google offers changes from month to month, and a control plane cannot move: a cluster that exists
    keeps its home, and its zones unless the spec names others.

    Raises:
        SpecError: a zone is not of this region, or no zone has the first instance type.
    """
    laid_out = _laid_out(gcp, cluster.title)
    if cluster.zones:
        gpu = _named(gcp, cluster.zones)
    else:
        gpu = laid_out.gpu if laid_out else _offering(gcp, instance_types[0])
    return Zones(home=laid_out.home if laid_out else gpu[0], gpu=gpu)


def as_tag(zones: Zones) -> str:
    """Return the zones as the network's tag tells them: the control plane's first."""
    return " ".join((zones.home, *zones.gpu))


def offering(gcp: Gcp, instance_types: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the zones of the region that have each type, sorted; each is asked for once."""
    unknown = [name for name in instance_types if name not in gcp.offered]
    asked = " OR ".join(f'(name = "{name}")' for name in unknown)

    def types_of(zone: str) -> set[str]:
        listing = gcp.compute("machine_types").list
        return {row.name for row in gcp.rows(listing, project=gcp.project, zone=zone, filter=asked)}

    if unknown:
        with ThreadPoolExecutor(_LOOKS, thread_name_prefix="zones") as pool:
            there = dict(zip(gcp.zones, pool.map(types_of, gcp.zones), strict=True))
        gcp.offered |= {name: tuple(zone for zone in there if name in there[zone]) for name in unknown}
    return {name: gcp.offered[name] for name in instance_types}


def _laid_out(gcp: Gcp, title: str) -> Zones | None:
    """Read the zones off the cluster's network, where there is one."""
    name = shared_name(title, gcp.region)
    row = gcp.get(gcp.compute("networks").get, project=gcp.project, network=name)
    told = labels.described(row.description).get(TAG_ZONES, "").split() if row is not None else []
    return Zones(home=told[0], gpu=tuple(told[1:])) if len(told) > 1 else None


def _named(gcp: Gcp, zones: Sequence[str]) -> tuple[str, ...]:
    for zone in zones:
        if zone not in gcp.zones:
            raise SpecError(
                f"cluster.zones has {zone!r}, which is no zone of region {gcp.region}",
                remedy=f"take of {', '.join(gcp.zones)}",
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
            f"region {gcp.region} has no {instance_type}",
            remedy="choose another region with --region, or other --instance-types",
        )
    return zones[:_MOST]
