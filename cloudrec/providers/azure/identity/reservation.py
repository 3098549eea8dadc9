"""The right of the cluster's identity to use a capacity reservation group, which is not cloudrec's.

AKS needs Contributor for it on the group's resource group (azure-aks-docs,
use-capacity-reservation-groups.md). A deployer who may not assign that role is refused before the cluster is
created, with the command for the group's owner. An assignment made by hand is
used as it is and never removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.providers.azure.identity import identity
from cloudrec.providers.azure.identity.roles import CONTRIBUTOR, OWNER, POWERFUL
from cloudrec.providers.azure.identity.shared_role import SharedRoleDriver

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.api.driver import AzureDriver
    from cloudrec.providers.azure.layout import AzureLayout

RESERVATION = "reservation-role"
KINDS: Mapping[str, AbstractSet[str]] = {RESERVATION: frozenset({identity.IDENTITY})}
_SUFFICIENT = frozenset({POWERFUL[CONTRIBUTOR], POWERFUL[OWNER]})


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the role assignment; none without a capacity reservation group."""
    group = layout.settings.capacity_reservation_group
    if not group:
        return []
    role = layout.resource(
        RESERVATION,
        needs=(layout.key(identity.IDENTITY, identity.CONTROL),),
        properties=identity.AzureScopedRoleProperties(
            role=CONTRIBUTOR,
            scope=group.lower().partition("/providers/")[0],
            principal="",
            identity=f"{layout.name}-{identity.CONTROL}",
            principal_type="ServicePrincipal",
        ),
        is_shared=True,
        hourly_usd=FREE,
    )
    return [role]


def keys(layout: AzureLayout) -> tuple[str, ...]:
    """Return the key of the assignment, which a cluster with reserved nodes needs."""
    return (layout.key(RESERVATION),) if layout.settings.capacity_reservation_group else ()


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the driver, by kind."""
    return {RESERVATION: ReservationRoleDriver(azure)}


class ReservationRoleDriver(SharedRoleDriver):
    """Handles the assignment. A search finds cloudrec's own alone, by its description."""

    kind = RESERVATION

    def sufficient(self, resource: Resource[identity.AzureScopedRoleProperties]) -> frozenset[str]:
        """Return the roles that allow the use."""
        del resource
        return _SUFFICIENT

    def refusal(self, resource: Resource[identity.AzureScopedRoleProperties]) -> str:
        """Return what the identity may not do."""
        of = resource.properties
        return f"the cluster's identity {of.identity} may not use the capacity reservations in {of.scope}"
