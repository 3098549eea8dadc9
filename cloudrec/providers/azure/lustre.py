"""Azure Managed Lustre: a fast file system in the network, in the GPUs' zone.

It is filled from the container, and what is to stay is copied back; so it is a cache, and `down --keep-data`
does not keep it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import all_needed, needed
from cloudrec.providers.azure import groups, ids, network
from cloudrec.providers.azure.layout import NO_ZONE
from cloudrec.providers.azure.settings import lustre_price
from cloudrec.providers.azure.tracked import GroupDriver

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.driver import AzureDriver
    from cloudrec.providers.azure.layout import Layout

FILE_SYSTEM = "lustre"
_GPU_NODES = "gpu-nodes"  # which know nothing of this file
KINDS: Mapping[str, AbstractSet[str]] = {
    FILE_SYSTEM: frozenset({groups.GROUP, groups.REGISTRATION, network.SUBNET, _GPU_NODES})
}

_MAINTENANCE_DAY, _MAINTENANCE_TIME = "Sunday", "04:00"  # which Azure wants to be told


def resources(layout: Layout) -> list[Resource]:
    """Describe the file system, if the settings ask for one."""
    settings = layout.settings
    if not settings.lustre_tib:
        return []
    # It lives in one zone. Which one is known from the start, or once GPUs were had in one of several.
    after = [layout.key(_GPU_NODES)] if len(layout.gpu_zones) > 1 else []
    zone = layout.gpu_zones[0] if layout.gpu_zones else NO_ZONE
    return [
        layout.resource(
            FILE_SYSTEM,
            needs=(
                *groups.needs(layout, "storagecache"),
                layout.key(network.SUBNET, network.LUSTRE),
                *after,
            ),
            properties={
                "location": layout.region,
                "zone": zone,
                "capacity_tib": settings.lustre_tib,
                "sku": settings.lustre_sku,
            },
            hourly_usd=lustre_price(settings.lustre_sku, settings.lustre_tib),
        )
    ]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the driver by its kind."""
    return {FILE_SYSTEM: LustreDriver(azure)}


class LustreDriver(GroupDriver):
    """Handles file systems."""

    kind = FILE_SYSTEM
    service, collection = "storagecache", "aml_filesystems"
    of_type = "Microsoft.StorageCache/amlFilesystems"
    listing = "list_by_resource_group"
    deadline_s = 3600.0
    poll_s = 10.0

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return a file system where the GPUs are."""
        models, wanted = self.models, resource.properties
        zone = self._zone(resource, identities)
        return models.AmlFilesystem(
            location=wanted["location"],
            tags=dict(resource.tags),
            zones=[zone] if zone else None,
            sku=models.SkuName(name=wanted["sku"]),
            storage_capacity_ti_b=float(wanted["capacity_tib"]),
            filesystem_subnet=needed(resource, identities, network.SUBNET),
            maintenance_window=models.AmlFilesystemPropertiesMaintenanceWindow(
                day_of_week=_MAINTENANCE_DAY, time_of_day_utc=_MAINTENANCE_TIME
            ),
        )

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's model
        """Tell its size and kind."""
        return {"capacity_tib": row.storage_capacity_ti_b, "sku": row.sku.name if row.sku else ""}

    def hourly_usd(self, row: Any) -> float:  # noqa: ANN401 - the SDK's model
        """Tell what it costs."""
        return lustre_price(row.sku.name, row.storage_capacity_ti_b) if row.sku else 0.0

    def _zone(self, resource: Resource, identities: Mapping[str, str]) -> str:
        """Return the zone of the GPU nodes, or the only one."""
        pools = self.azure.client("containerservice").agent_pools
        for pool in all_needed(resource, identities, _GPU_NODES):
            row = self.azure.read(pools.get, ids.group_of(pool), *ids.names(pool))
            for zone in row.availability_zones or ():
                return str(zone)
        return str(resource.properties["zone"])
