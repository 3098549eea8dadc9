"""The right of the cluster's identity to use a capacity reservation group, which is not cloudrec's.

AKS needs Contributor for it on the group's resource group (azure-aks-docs,
use-capacity-reservation-groups.md). A deployer who may not assign that role is refused before the cluster is
created, with the command for the group's owner. An assignment made by hand is
used as it is and never removed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from azure.core.exceptions import HttpResponseError

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.errors import PreflightError
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.identity import identity
from cloudrec.providers.azure.identity.roles import CONTRIBUTOR, POWERFUL

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.azure.api import models
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.api.driver import AzureDriver
    from cloudrec.providers.azure.layout import AzureLayout

RESERVATION = "reservation-role"
KINDS: Mapping[str, AbstractSet[str]] = {RESERVATION: frozenset({identity.IDENTITY})}
_SUFFICIENT = frozenset(POWERFUL.values())


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


class ReservationRoleDriver(identity.RoleDriver[identity.AzureScopedRoleProperties]):
    """Handles the assignment. A search finds cloudrec's own alone, by its description."""

    kind = RESERVATION

    def scope(
        self, resource: Resource[identity.AzureScopedRoleProperties], identities: Mapping[str, str] | None
    ) -> str:
        """Return the id of the resource group that the capacity reservation group is in."""
        del identities
        return resource.properties.scope

    def fetch(self, resource: Resource[identity.AzureScopedRoleProperties]) -> Observed | None:
        """Return an assignment that suffices, also one made by hand; None if there is none."""
        principal = self._principal(resource, None)
        if not principal:
            return None
        scope = resource.properties.scope
        rows = self.azure.rows(self.calls.list_for_scope, scope, filter=f"principalId eq '{principal}'")
        row = next((row for row in rows if _suffices(row, scope)), None)
        if row is None:
            return None
        # An assignment made by hand may be seconds old; AKS sees it minutes later.
        self._note(resource, principal)
        return replace(self._observe(row), name=resource.name, tags=resource.tags)

    def make(
        self,
        resource: Resource[identity.AzureScopedRoleProperties],
        *,
        token: str,
        identities: Mapping[str, str],
    ) -> str:
        """Assign the role.

        Raises:
            PreflightError: the caller may not assign it; the remedy is the command for one who may.
        """
        try:
            return super().make(resource, token=token, identities=identities)
        except HttpResponseError as error:
            if errors.code(error) != "AuthorizationFailed":
                raise
            wanted, principal = resource.properties, self._principal(resource, identities)
            raise PreflightError(
                f"the cluster's identity {wanted.identity} may not use the capacity reservations in "
                f"{wanted.scope}, and these credentials may not assign it a role there",
                remedy=f"have an owner run `az role assignment create --role {CONTRIBUTOR} "
                f"--assignee-object-id {principal} --assignee-principal-type ServicePrincipal "
                f"--scope {wanted.scope}`, then run `cloudrec up azure --cluster "
                f"{resource.tags[TAG_CLUSTER]}` again: it continues from here",
            ) from error


def _suffices(row: models.authorization.RoleAssignment, scope: str) -> bool:
    """Whether an assignment gives the rights at the scope: made there or above it."""
    role = (row.role_definition_id or "").rpartition("/")[2].lower()
    at = str(row.scope).lower().rstrip("/")
    return role in _SUFFICIENT and f"{scope}/".startswith(f"{at}/")
