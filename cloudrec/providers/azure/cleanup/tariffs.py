"""The price of a resource of any type, from its description; unknown where the table does not have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import BY_USE, FREE
from cloudrec.providers.base.offers import ON_DEMAND, SPOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.azure.api import models
    from cloudrec.providers.base.prices import Prices

_MACHINE = "microsoft.compute/virtualmachines"
_SCALE_SET = "microsoft.compute/virtualmachinescalesets"
_RESERVATION = "microsoft.compute/capacityreservationgroups/capacityreservations"
_DISK = "microsoft.compute/disks"
_REGISTRY = "microsoft.containerregistry/registries"
_CLUSTER = "microsoft.containerservice/managedclusters"
# Types that cost the same whatever their settings are -> the name of the price in the table.
_SERVICES: Mapping[str, str] = {
    "microsoft.compute/snapshots": "snapshot",
    "microsoft.network/loadbalancers": "load-balancer",
    "microsoft.network/natgateways": "nat-gateway",
    "microsoft.network/privatednszones": "private-dns-zone",
    "microsoft.network/privateendpoints": "private-endpoint",
    "microsoft.network/publicipaddresses": "public-ip",
}
# Types that Azure does not charge for, or charges for by what they store or transfer.
_UNCHARGED: Mapping[str, float] = {
    "microsoft.compute/availabilitysets": FREE,
    "microsoft.compute/capacityreservationgroups": FREE,  # its reservations cost
    "microsoft.compute/proximityplacementgroups": FREE,
    "microsoft.compute/sshpublickeys": FREE,
    "microsoft.compute/virtualmachines/extensions": FREE,
    "microsoft.devtestlab/schedules": FREE,
    "microsoft.insights/datacollectionendpoints": FREE,
    "microsoft.insights/datacollectionrules": FREE,
    "microsoft.managedidentity/userassignedidentities": FREE,
    "microsoft.monitor/accounts": BY_USE,
    "microsoft.network/applicationsecuritygroups": FREE,
    "microsoft.network/networkinterfaces": FREE,
    "microsoft.network/networksecuritygroups": FREE,
    "microsoft.network/privatednszones/virtualnetworklinks": FREE,
    "microsoft.network/routetables": FREE,
    "microsoft.network/virtualnetworks": FREE,
    "microsoft.operationalinsights/workspaces": BY_USE,
    "microsoft.operationsmanagement/solutions": FREE,
    "microsoft.storage/storageaccounts": BY_USE,
}


def hourly_usd(row: models.resources.GenericResource, prices: Prices) -> float | None:
    """Return USD an hour; None if unknown. A stopped machine has the price of a running one.

    Args:
        row: the resource.
        prices: those of its region.
    """
    of_type = (row.type or "").lower()
    if of_type in _UNCHARGED:
        return _UNCHARGED[of_type]
    if of_type in _SERVICES:
        return prices.service(_SERVICES[of_type])
    priced = _BY_SETTINGS.get(of_type)
    return priced(row, row.properties or {}, prices) if priced else None


def _machine(
    row: models.resources.GenericResource, properties: Mapping[str, Any], prices: Prices
) -> float | None:
    del row
    size: str = (properties.get("hardwareProfile") or {}).get("vmSize") or ""
    return prices.node(size, _market(properties)) if size else None


def _machines(
    row: models.resources.GenericResource, properties: Mapping[str, Any], prices: Prices
) -> float | None:
    """Return the price of a scale set, or of a reservation, which costs as much as its machines."""
    if row.sku is None or row.sku.name is None or row.sku.capacity is None:
        return None
    market = _market(properties.get("virtualMachineProfile") or {})
    return prices.nodes(row.sku.name, row.sku.capacity, market)


def _disk(
    row: models.resources.GenericResource, properties: Mapping[str, Any], prices: Prices
) -> float | None:
    del row
    size: int = properties.get("diskSizeGB") or 0
    return prices.service("disk-premium-gib", size)


def _registry(
    row: models.resources.GenericResource, properties: Mapping[str, Any], prices: Prices
) -> float | None:
    del properties
    return prices.service(f"acr-{row.sku.name.lower()}") if row.sku and row.sku.name else None


def _cluster(
    row: models.resources.GenericResource, properties: Mapping[str, Any], prices: Prices
) -> float | None:
    """Return the price of the control plane; its nodes are a scale set, which is separate."""
    del properties
    return prices.service(f"aks-{row.sku.tier.lower()}") if row.sku and row.sku.tier else None


def _market(profile: Mapping[str, Any]) -> str:
    return SPOT if profile.get("priority") == "Spot" else ON_DEMAND


_BY_SETTINGS = {
    _MACHINE: _machine,
    _SCALE_SET: _machines,
    _RESERVATION: _machines,
    _DISK: _disk,
    _REGISTRY: _registry,
    _CLUSTER: _cluster,
}
