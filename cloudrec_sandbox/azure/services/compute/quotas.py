"""Quotas of a region, as a new subscription has them until `/_control` sets others.

`quotas` of /_control: {"cores": 200, "eastus/standardNDSH100v5Family": 96}: in all regions, or in one. The
names are those of the services' `usages`: families, cores, lowPriorityCores, StandardSkuPublicIpAddresses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.regions import REGIONS
from cloudrec_sandbox.azure.arm.registry import setting
from cloudrec_sandbox.azure.services.compute import sizes

if TYPE_CHECKING:
    from cloudrec_sandbox.core.world import World

CORES = "cores"  # vCPUs of all families
SPOT_CORES = "lowPriorityCores"  # vCPUs of all spot machines, which count for no family
PUBLIC_IPS = "StandardSkuPublicIpAddresses"
REGISTRIES = "registries"
STORAGE_ACCOUNTS = "StorageAccounts"
LUSTRE = "AmlFilesystems"


@dataclass(frozen=True, kw_only=True)
class Quota:
    """A quota's title and default."""

    title: str
    limit: int
    service: str = "compute"


QUOTAS: dict[str, Quota] = {
    "availabilitySets": Quota(title="Availability Sets", limit=2500),
    CORES: Quota(title="Total Regional vCPUs", limit=10),
    "virtualMachines": Quota(title="Virtual Machines", limit=25000),
    "virtualMachineScaleSets": Quota(title="Virtual Machine Scale Sets", limit=2500),
    SPOT_CORES: Quota(title="Total Regional Low-priority vCPUs", limit=3),
    **{name: Quota(title=family.title, limit=family.limit) for name, family in sizes.FAMILIES.items()},
    PUBLIC_IPS: Quota(title="Standard Sku Public IP Addresses", limit=20, service="network"),
    STORAGE_ACCOUNTS: Quota(title="Storage Accounts", limit=250, service="storage"),
    LUSTRE: Quota(title="Azure Managed Lustre file systems", limit=4, service="storagecache"),
}


@dataclass
class Quotas:
    """The quotas that were set, by "name" or "region/name", in lower case."""

    values: dict[str, int] = field(default_factory=dict)


def limit(world: World, region: str, name: str) -> int:
    """Return the quota in force."""
    values, key = world.state(Quotas).values, name.lower()
    return values.get(f"{region}/{key}", values.get(key, QUOTAS[name].limit))


def _write(world: World, wishes: dict[str, Any]) -> None:
    known = {name.lower() for name in QUOTAS}
    for wish in wishes:
        region, _, name = wish.rpartition("/")
        if name.lower() not in known or (region and region not in REGIONS):
            raise ValueError(
                f"unknown quota {wish!r}; there are, alone or after REGION/: {', '.join(QUOTAS)}"
            )
    world.state(Quotas).values.update({wish.lower(): int(value) for wish, value in wishes.items()})


def _read(world: World) -> dict[str, int]:
    return {name: quota.limit for name, quota in QUOTAS.items()} | world.state(Quotas).values


setting("quotas", read=_read, write=_write)
