"""The registry of the trainer's images: entered with Entra ID's tokens alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.providers.azure import groups, ids
from cloudrec.providers.azure.prices import shipped
from cloudrec.providers.azure.rows import plain
from cloudrec.providers.azure.tracked import GroupDriver

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.driver import AzureDriver
    from cloudrec.providers.azure.layout import Layout

REGISTRY = "registry"
KINDS: Mapping[str, AbstractSet[str]] = {REGISTRY: frozenset({groups.GROUP, groups.REGISTRATION})}


def resources(layout: Layout) -> list[Resource]:
    """Describe the registry."""
    sku = layout.settings.registry_sku
    return [
        layout.resource(
            REGISTRY,
            needs=groups.needs(layout, "containerregistry"),
            properties={
                "location": layout.region,
                "registry": layout.registry,
                "sku": sku,
                "admin_user": False,
            },
            hourly_usd=_price(sku),
        )
    ]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the driver by its kind."""
    return {REGISTRY: RegistryDriver(azure)}


def _price(sku: str) -> float:
    return shipped().service(f"acr-{sku.lower()}")


class RegistryDriver(GroupDriver):
    """Handles image registries."""

    kind, mends = REGISTRY, True
    service, collection = "containerregistry", "registries"
    of_type = "Microsoft.ContainerRegistry/registries"
    listing, putting = "list_by_resource_group", "begin_create"
    changeable = frozenset({"sku", "admin_user"})

    def named(self, resource: Resource) -> str:
        """Return the registry's name."""
        return str(resource.properties["registry"])

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return a registry without a password."""
        del identities
        return self.models.Registry(
            location=resource.properties["location"],
            tags=dict(resource.tags),
            sku=self.models.Sku(name=resource.properties["sku"]),
            admin_user_enabled=False,
        )

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Take its password away, or make it another kind."""
        del identities
        wanted = self.models.RegistryUpdateParameters(
            sku=self.models.Sku(name=resource.properties["sku"]), admin_user_enabled=False
        )
        names = ids.names(observed.identity)
        self.call(observed.identity, "begin_update", ids.group_of(observed.identity), *names, wanted)

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's model
        """Tell its kind, and whether it has a password."""
        return {"sku": str(plain(row.sku.name)), "admin_user": bool(row.admin_user_enabled)}

    def hourly_usd(self, row: Any) -> float:  # noqa: ANN401 - the SDK's model
        """Tell what it costs."""
        return _price(str(plain(row.sku.name)))
