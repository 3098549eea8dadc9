"""The registry of the trainer's images, which accepts only Entra ID's tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.providers.azure import groups
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.rows import plain
from cloudrec.providers.azure.api.tracked import LocatedProperties, TrackedCalls, TrackedDriver

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.api.driver import AzureDriver
    from cloudrec.providers.azure.layout import AzureLayout
    from cloudrec.providers.base.prices import Prices

REGISTRY = "registry"
KINDS: Mapping[str, AbstractSet[str]] = {REGISTRY: frozenset({groups.GROUP, groups.REGISTRATION})}


@dataclass(frozen=True, kw_only=True)
class RegistryProperties(LocatedProperties):
    """The requested properties of an image registry.

    Attributes:
        registry: its name in Azure.
        sku: its service tier, such as Premium.
        admin_user: whether it has a user with a password.
    """

    registry: str
    sku: str
    admin_user: bool = False


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the registry."""
    sku = layout.settings.registry_sku
    return [
        layout.resource(
            REGISTRY,
            needs=groups.needs(layout, "containerregistry"),
            properties=RegistryProperties(location=layout.region, registry=layout.registry, sku=sku),
            hourly_usd=_price(layout.prices, sku),
        )
    ]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the driver, by kind."""
    return {REGISTRY: RegistryDriver(azure)}


def _price(prices: Prices, sku: str) -> float | None:
    return prices.service(f"acr-{sku.lower()}")


class RegistryDriver(TrackedDriver["models.containerregistry.Registry", RegistryProperties]):
    """Handles image registries."""

    kind, repairs = REGISTRY, True
    of_type = "Microsoft.ContainerRegistry/registries"
    changeable = frozenset({"sku", "admin_user"})

    @property
    def calls(self) -> TrackedCalls[models.containerregistry.Registry]:
        """The client's methods for this kind."""
        of = self.azure.containerregistry.registries
        return TrackedCalls(
            list=of.list_by_resource_group, get=of.get, put=of.begin_create, delete=of.begin_delete
        )

    def named(self, resource: Resource[RegistryProperties]) -> str:
        """Return the registry's name."""
        return resource.properties.registry

    def body(
        self, resource: Resource[RegistryProperties], identities: Mapping[str, str]
    ) -> models.containerregistry.Registry:
        """Return a registry without an admin user."""
        del identities
        return models.containerregistry.Registry(
            location=resource.properties.location,
            tags=dict(resource.tags),
            sku=models.containerregistry.Sku(name=resource.properties.sku),
            properties=models.containerregistry.RegistryProperties(admin_user_enabled=False),
        )

    def change(
        self, resource: Resource[RegistryProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Disable the admin user, and set the service tier."""
        del identities
        wanted = models.containerregistry.RegistryUpdateParameters(
            sku=models.containerregistry.Sku(name=resource.properties.sku),
            properties=models.containerregistry.RegistryPropertiesUpdateParameters(admin_user_enabled=False),
        )
        # An update changes only the settings that it has.
        it, update = observed.identity, self.azure.containerregistry.registries.begin_update
        self.start(it, update, ids.group_of(it), *ids.names(it), wanted)

    def properties(self, row: models.containerregistry.Registry) -> Mapping[str, Any]:
        """Return the service tier, and whether there is an admin user."""
        return {"sku": plain(row.sku.name), "admin_user": bool(row.admin_user_enabled)}

    def hourly_usd(self, row: models.containerregistry.Registry) -> float | None:
        """Return the price of a registry in USD an hour; None if it is not known."""
        return _price(self.azure.prices_at(row.location), plain(row.sku.name))
