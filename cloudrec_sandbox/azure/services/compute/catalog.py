"""Compute's lists of sizes and of quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.pages import matching, page
from cloudrec_sandbox.azure.arm.regions import REGIONS
from cloudrec_sandbox.azure.arm.registry import route
from cloudrec_sandbox.azure.services.compute import machines, quotas, sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.services.compute.sizes import Size
    from cloudrec_sandbox.core.http import Reply
    from cloudrec_sandbox.core.world import World

_PAGE = 500
_OTHERS = (("disks", "Premium_LRS"), ("disks", "StandardSSD_LRS"), ("availabilitySets", "Aligned"))
# Region names that only this service spells differently.
_SPELT = {"westus3": "WestUS3", "swedencentral": "SwedenCentral"}


@route("GET", "Microsoft.Compute/skus")
def skus(call: Call) -> Reply:
    """Return sizes by region, with the restrictions of the subscription."""
    places = [
        {"size": size.name, "location": region}
        for size in sizes.SIZES.values()
        for region in size.family.zones
    ]
    found = matching(call, places, code="InvalidParameter", names=("location",))
    rows = [_row(call.world, sizes.SIZES[each["size"].lower()], each["location"]) for each in found]
    regions = matching(call, [{"location": region} for region in REGIONS], code="InvalidParameter")
    rows += [_other(kind, name, each["location"]) for each in regions for kind, name in _OTHERS]
    return page(call, rows, _PAGE)


def _other(kind: str, name: str, region: str) -> dict[str, Any]:
    """Return a row of another kind of resource, which has no family and other capabilities than machines."""
    place = _SPELT.get(region, region)
    return {
        "resourceType": kind,
        "name": name,
        "tier": name.partition("_")[0],
        "locations": [place],
        "locationInfo": [{"location": place, "zones": [], "zoneDetails": []}],
        "capabilities": [{"name": "MaximumPlatformFaultDomainCount", "value": "3"}],
        "restrictions": [],
    }


def _row(world: World, size: Size, region: str) -> dict[str, Any]:
    # Azure lists zones in no order: a client must sort them.
    zones, place = list(reversed(size.family.zones[region])), _SPELT.get(region, region)  # in no order
    return {
        "resourceType": "virtualMachines",
        "name": size.name,
        "tier": "Standard",
        "size": size.name.removeprefix("Standard_"),
        "family": size.family.sku,
        "locations": [place],
        "locationInfo": [{"location": place, "zones": zones, "zoneDetails": []}],
        "capabilities": [{"name": name, "value": value} for name, value in _capabilities(size).items()],
        "restrictions": list(_restrictions(world, size, region, zones)),
    }


def _capabilities(size: Size) -> dict[str, str]:
    found = {
        "MaxResourceVolumeMB": str(size.temp_disk_mib),
        "OSVhdSizeMB": "1047552",
        "vCPUs": str(size.vcpus),
        "vCPUsAvailable": str(size.vcpus),
        "vCPUsPerCore": "2",
        "MemoryGB": str(size.memory_gib),
        "HyperVGenerations": "V2" if size.family.infiniband else "V1,V2",
        "CpuArchitectureType": "x64",
        "LowPriorityCapable": str(size.family.spot),
        "PremiumIO": "True",
        "CapacityReservationSupported": "True",
        "AcceleratedNetworkingEnabled": "True",
        "RdmaEnabled": str(size.family.infiniband),
        "EncryptionAtHostSupported": "True",
        "EphemeralOSDiskSupported": str(size.temp_disk_mib > 0),
    }
    return found | ({"GPUs": str(size.gpus)} if size.gpus else {})


def _restrictions(world: World, size: Size, region: str, zones: list[str]) -> Iterator[dict[str, Any]]:
    if reason := machines.restriction(world, size, region):
        yield {
            "type": "Location",
            "values": [region],
            "restrictionInfo": {"locations": [region], "zones": zones},
            "reasonCode": reason,
        }
    barred = [zone for zone in zones if machines.restriction(world, size, f"{region}-{zone}")]
    if barred:
        yield {
            "type": "Zone",
            "values": [region],
            "restrictionInfo": {"locations": [region], "zones": barred},
            "reasonCode": machines.restriction(world, size, f"{region}-{barred[0]}"),
        }


@route("GET", "Microsoft.Compute/locations/usages")
def usages(call: Call) -> Reply:
    """Return the vCPUs in use and their limits; the names are spelt differently from the sizes' families."""
    region = call.path.names[0].lower().replace(" ", "")
    if region not in REGIONS:
        raise ArmError(
            "NoRegisteredProviderFound",
            f"No registered resource provider found for location '{call.path.names[0]}'.",
        )
    used = machines.usage(call.world, region)
    rows = [
        {
            "limit": quotas.limit(call.world, region, name),
            "unit": "Count",
            "currentValue": used.get(name, 0),
            "name": {"value": name, "localizedValue": quota.title},
        }
        for name, quota in quotas.QUOTAS.items()
        if quota.service == "compute"
    ]
    return page(call, rows, _PAGE)
