"""In which availability zones of a region the GPU nodes are looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.providers.azure.layout import NO_ZONE, TAG_ZONES
from cloudrec.providers.azure.rows import group_name
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.offers import Sku
    from cloudrec.spec.models import ClusterSpec

_NONE = "-"  # what the tag has for NO_ZONE


def choose(
    azure: Azure, cluster: ClusterSpec, sizes: Mapping[str, Sku], types: Sequence[str]
) -> tuple[str, ...]:
    """Take the spec's zones, or those that the cluster was laid out for, or those that have the first size.

    What Azure offers changes from month to month, and nodes cannot move: a cluster keeps its zones.

    Args:
        azure: the subscription in its region.
        cluster: the spec; its zones may be `1` or `eastus-1`.
        sizes: what the region tells of the sizes (see `offers.skus`).
        types: the sizes to try, the best first.

    Raises:
        SpecError: a zone is not of this region, or the region does not have the first size.
    """
    if cluster.zones:
        return _named(azure, cluster.zones)
    return laid_out(azure, cluster.title) or _offering(azure, sizes, types)


def offered(sizes: Mapping[str, Sku], laid_out_for: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the zones that have each size, and those of nodes that may exist, whatever Azure sells now."""
    return {
        name: tuple(dict.fromkeys((*(sku.zones if sku.zonal else (NO_ZONE,)), *laid_out_for)))
        for name, sku in sizes.items()
    }


def laid_out(azure: Azure, title: str) -> tuple[str, ...]:
    """Read the zones off the cluster's resource group, where there is one."""
    row = azure.get(azure.client("resources").resource_groups.get, group_name(title))
    told = (row.tags or {}).get(TAG_ZONES, "") if row is not None else ""
    return tuple(NO_ZONE if zone == _NONE else zone for zone in told.split())


def as_tag(zones: Sequence[str]) -> str:
    """Return the zones as the resource group's tag tells them."""
    return " ".join(zone or _NONE for zone in zones)


def _named(azure: Azure, zones: Sequence[str]) -> tuple[str, ...]:
    there = sorted(
        {
            zone
            for row in azure.resource_skus()
            for info in row.location_info or ()
            for zone in info.zones or ()
        }
    )
    found = [zone.removeprefix(f"{azure.region}-") for zone in zones]
    for given, zone in zip(zones, found, strict=True):
        if zone not in there:
            raise SpecError(
                f"cluster.zones has {given!r}, which is no zone of region {azure.region}",
                remedy=f"take of {', '.join(there)}" if there else "leave cluster.zones out: it has none",
            )
    return tuple(dict.fromkeys(found))


def _offering(azure: Azure, sizes: Mapping[str, Sku], types: Sequence[str]) -> tuple[str, ...]:
    first = sizes.get(types[0])
    if first is None:
        known = {row.name for row in azure.resource_skus() if row.resource_type == "virtualMachines"}
        if types[0] in azure.prices.types:
            remedy = "choose another region with --region, or other --instance-types"
        else:
            remedy = did_you_mean(types[0], known)
        raise SpecError(f"region {azure.region} has no VM size {types[0]!r}", remedy=remedy)
    somewhere = [] if all(sku.zonal for sku in sizes.values()) else [NO_ZONE]
    return (*first.zones, *somewhere)
