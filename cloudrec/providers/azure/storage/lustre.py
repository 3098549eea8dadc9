"""Azure Managed Lustre: a fast file system in the zone of the GPU nodes.

It is a cache of the container: `importing` says how data gets there. So `down --keep-data` does not keep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import ErrorVerdict
from cloudrec.providers.azure import groups
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.tracked import LocatedProperties, TrackedCalls, TrackedDriver
from cloudrec.providers.azure.layout import NO_ZONE
from cloudrec.providers.azure.network import network
from cloudrec.providers.azure.settings import LUSTRE_LOGS
from cloudrec.providers.azure.storage import importing, storage
from cloudrec.providers.base.driver import all_needed, needed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.errors import CloudrecError
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.api.driver import AzureDriver
    from cloudrec.providers.azure.layout import AzureLayout
    from cloudrec.providers.base.prices import Prices

FILE_SYSTEM = "lustre"
_GPU_NODES = "gpu-nodes"  # the kind of the GPU node pools, in another module
KINDS: Mapping[str, AbstractSet[str]] = {
    importing.ROLE: importing.NEEDS,
    FILE_SYSTEM: frozenset(
        {groups.GROUP, groups.REGISTRATION, network.SUBNET, importing.ROLE, storage.CONTAINER, _GPU_NODES}
    ),
}

_MAINTENANCE_DAY, _MAINTENANCE_TIME = "Sunday", "04:00"  # in UTC; Azure requires a maintenance window


@dataclass(frozen=True, kw_only=True)
class AzureLustreProperties(LocatedProperties):
    """The requested properties of a Lustre file system.

    Attributes:
        zone: where it is unless the GPU nodes get another zone; empty in a region without zones.
        capacity_tib: its size in TiB.
        sku: its service tier, which ends with the MB/s of each TiB.
        container: id of the container that fills it, in lower case; empty if none does.
        logs: id of the container for the logs of imports, in lower case; empty without imports.
    """

    zone: str
    capacity_tib: int
    sku: str
    container: str = ""
    logs: str = ""


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the file system, and the roles of the service that fills it; empty if the settings have none."""
    settings = layout.settings
    if not settings.lustre_tib:
        return []
    # A file system is in one zone. With several GPU zones, the right one is known only when the GPU nodes
    # exist.
    after = [layout.key(_GPU_NODES)] if len(layout.gpu_zones) > 1 else []
    zone = layout.gpu_zones[0] if layout.gpu_zones else NO_ZONE
    return [
        *importing.resources(layout),
        layout.resource(
            FILE_SYSTEM,
            needs=(
                *groups.needs(layout, "storagecache"),
                layout.key(network.SUBNET, network.LUSTRE),
                *importing.keys(layout),
                *after,
            ),
            properties=AzureLustreProperties(
                location=layout.region,
                zone=zone,
                capacity_tib=settings.lustre_tib,
                sku=settings.lustre_sku,
                container=importing.container(layout, settings.container),
                logs=importing.container(layout, LUSTRE_LOGS),
            ),
            hourly_usd=_price(layout.prices, settings.lustre_sku, settings.lustre_tib),
        ),
    ]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers, by kind."""
    return {importing.ROLE: importing.ImporterRoleDriver(azure), FILE_SYSTEM: AzureLustreDriver(azure)}


def _price(prices: Prices, sku: str, tib: float) -> float | None:
    return prices.service(f"aml-{sku.rpartition('-')[2]}-tib", tib)


class AzureLustreDriver(TrackedDriver["models.storagecache.AmlFilesystem", AzureLustreProperties]):
    """Handles Lustre file systems."""

    kind = FILE_SYSTEM
    of_type = "Microsoft.StorageCache/amlFilesystems"
    deadline_s = 3600.0
    poll_s = 10.0

    @property
    def calls(self) -> TrackedCalls[models.storagecache.AmlFilesystem]:
        """The client's methods for this kind."""
        of = self.azure.storagecache.aml_filesystems
        return TrackedCalls(
            list=of.list_by_resource_group, get=of.get, put=of.begin_create_or_update, delete=of.begin_delete
        )

    def body(
        self, resource: Resource[AzureLustreProperties], identities: Mapping[str, str]
    ) -> models.storagecache.AmlFilesystem:
        """Return a file system in the zone of the GPU nodes."""
        wanted = resource.properties
        zone = self._zone(resource, identities)
        of = models.storagecache
        return of.AmlFilesystem(
            location=wanted.location,
            tags=dict(resource.tags),
            zones=[zone] if zone else None,
            sku=of.SkuName(name=wanted.sku),
            properties=of.AmlFilesystemProperties(
                storage_capacity_ti_b=float(wanted.capacity_tib),
                filesystem_subnet=needed(resource, identities, network.SUBNET),
                maintenance_window=of.AmlFilesystemPropertiesMaintenanceWindow(
                    day_of_week=_MAINTENANCE_DAY, time_of_day_utc=_MAINTENANCE_TIME
                ),
                hsm=of.AmlFilesystemPropertiesHsm(
                    settings=of.AmlFilesystemHsmSettings(
                        container=wanted.container, logging_container=wanted.logs
                    )
                )
                if wanted.container
                else None,
            ),
        )

    def properties(self, row: models.storagecache.AmlFilesystem) -> Mapping[str, Any]:
        """Return the size, the service tier and the containers."""
        settings = row.hsm.settings if row.hsm else None
        return {
            "capacity_tib": row.storage_capacity_ti_b,
            "sku": row.sku.name if row.sku else "",
            "container": settings.container.lower() if settings else "",
            "logs": settings.logging_container.lower() if settings else "",
        }

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return whether the call may be made again; a role that is minutes old may have no effect yet."""
        if importing.is_closed(error) and self.azure.grants.may_lag(""):
            return ErrorVerdict.RETRY
        return super().verdict(error)

    def explain(self, error: Exception) -> CloudrecError:
        """Return an error of cloudrec; the service's refusal of a container with what it lacks."""
        return importing.explained(error) if importing.is_closed(error) else super().explain(error)

    def hourly_usd(self, row: models.storagecache.AmlFilesystem) -> float | None:
        """Return the price of a file system in USD an hour; None if it is not known."""
        prices = self.azure.prices_at(row.location)
        tib = row.storage_capacity_ti_b
        return _price(prices, row.sku.name, tib) if row.sku and row.sku.name and tib else None

    def _zone(self, resource: Resource[AzureLustreProperties], identities: Mapping[str, str]) -> str:
        """Return the zone of the GPU nodes; the requested one if the file system does not depend on them."""
        pools = self.azure.containerservice.agent_pools
        for pool in all_needed(resource, identities, _GPU_NODES):
            row = self.azure.read(pools.get, ids.group_of(pool), *ids.names(pool))
            for zone in row.availability_zones or ():
                return str(zone)
        return resource.properties.zone
