"""The regions of the stand-in, the zones of each, and its paired region.

Source of the pairs: "List of Azure region pairs" ("Cross-region replication in Azure"). West US 3 is paired
in one direction alone.
"""

from __future__ import annotations

from cloudrec_sandbox.azure.arm.errors import ArmError

_ALL = ("1", "2", "3")
# Regions, with the zones that a subscription sees there; () for a region without zones.
REGIONS: dict[str, tuple[str, ...]] = {
    "eastus": _ALL,
    "eastus2": _ALL,
    "southcentralus": _ALL,
    "centralus": _ALL,
    "westus": (),
    "westus2": _ALL,
    "westus3": _ALL,
    "northeurope": _ALL,
    "westeurope": _ALL,
    "swedencentral": _ALL,
    "uksouth": _ALL,
    "japaneast": _ALL,
}
PAIRS = {
    "eastus": "westus",
    "eastus2": "centralus",
    "southcentralus": "northcentralus",
    "centralus": "eastus2",
    "westus": "eastus",
    "westus2": "westcentralus",
    "westus3": "eastus",
    "northeurope": "westeurope",
    "westeurope": "northeurope",
    "swedencentral": "swedensouth",
    "uksouth": "ukwest",
    "japaneast": "japanwest",
}


def check_zones(owner: str, zones: list[str], region: str) -> None:
    """Raise ArmError for zones that a region does not have."""
    if unknown := set(zones) - set(REGIONS.get(region, ())):
        raise ArmError(
            "ResourceAvailabilityZonesNotSupported" if not REGIONS.get(region) else "InvalidAvailabilityZone",
            f"The zone(s) '{', '.join(sorted(unknown))}' for resource '{owner}' is not supported. The "
            f"supported zones for location '{region}' are '{', '.join(REGIONS.get(region, ()))}'",
        )
