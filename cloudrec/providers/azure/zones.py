"""Chooses the availability zones of a region in which GPU nodes are requested."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.providers.azure.api.rows import group_name
from cloudrec.providers.azure.layout import NO_ZONE, TAG_ZONES
from cloudrec.providers.azure.prices import shipped
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.offers import Sku
    from cloudrec.spec.models import ClusterSpec

_NONE = "-"  # NO_ZONE in the tag


def choose(
    azure: Azure, cluster: ClusterSpec, sizes: Mapping[str, Sku], types: Sequence[str]
) -> tuple[str, ...]:
    """Return the zones to try for GPU nodes, the best first.

    They are the spec's; without any there, those in the tag of the cluster's resource group; and for a new
    cluster, those that offer the first size. What Azure offers changes from month to month, and nodes cannot
    move, so a cluster keeps its zones.

    Args:
        azure: the subscription in its region.
        cluster: the spec; its zones may be `1` or `eastus-1`.
        sizes: what the region reports about the sizes, from `offers.skus`.
        types: the sizes to try, the best first.

    Raises:
        SpecError: a zone is not of this region, or the region does not have the first size.
    """
    if cluster.zones:
        return _named(azure, cluster.zones)
    return laid_out(azure, cluster.title) or _offering(azure, sizes, types)


def offered(sizes: Mapping[str, Sku], laid_out_for: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the zones of each size.

    Args:
        sizes: what the region reports about the sizes, from `offers.skus`.
        laid_out_for: the cluster's zones. They are included even if Azure no longer sells the size there,
            because nodes may exist in them.
    """
    return {
        name: tuple(dict.fromkeys((*(sku.zones if sku.zonal else (NO_ZONE,)), *laid_out_for)))
        for name, sku in sizes.items()
    }


def laid_out(azure: Azure, title: str) -> tuple[str, ...]:
    """Return the zones in the tag of the cluster's resource group; empty if there is no group or no tag."""
    row = azure.get(azure.resources.resource_groups.get, group_name(title))
    tag = (row.tags or {}).get(TAG_ZONES, "") if row is not None else ""
    return tuple(NO_ZONE if zone == _NONE else zone for zone in tag.split())


def as_tag(zones: Sequence[str]) -> str:
    """Return the zones as the value of the resource group's tag."""
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
    # `cloudrec catalog` shows zones as node labels have them (eastus-1); the API of Azure takes the number.
    found = [zone.removeprefix(f"{azure.region}-") for zone in zones]
    for given, zone in zip(zones, found, strict=True):
        if zone not in there:
            raise SpecError(
                f"cluster.zones has {given!r}, which is no zone of region {azure.region}",
                remedy=f"choose from {', '.join(there)}"
                if there
                else "leave cluster.zones out: the region has none",
            )
    return tuple(dict.fromkeys(found))


def _offering(azure: Azure, sizes: Mapping[str, Sku], types: Sequence[str]) -> tuple[str, ...]:
    first = sizes.get(types[0])
    if first is None:
        known = {row.name or "" for row in azure.resource_skus() if row.resource_type == "virtualMachines"}
        if types[0] in shipped().types:
            remedy = "choose another region with --region, or other --instance-types"
        else:
            remedy = did_you_mean(types[0], known)
        raise SpecError(f"region {azure.region} has no VM size {types[0]!r}", remedy=remedy)
    # Sizes that are in no zone are tried in the region as a whole.
    somewhere = [] if all(sku.zonal for sku in sizes.values()) else [NO_ZONE]
    return (*first.zones, *somewhere)
