"""Role assignments that an administrator may have to make, because they let the holder do more than cloudrec.

A deployer who may not assign such a role is refused with the command for one who may. An assignment made by
hand is used as it is and never removed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from azure.core.exceptions import HttpResponseError

from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.errors import PreflightError
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.identity.identity import AzureScopedRoleProperties, RoleDriver
from cloudrec.providers.azure.identity.roles import POWERFUL, ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.azure.api import models


class SharedRoleDriver(RoleDriver[AzureScopedRoleProperties]):
    """Handles such assignments."""

    @abstractmethod
    def sufficient(self, resource: Resource[AzureScopedRoleProperties]) -> frozenset[str]:
        """Return the ids of the roles that allow what the assignment is for."""

    @abstractmethod
    def refusal(self, resource: Resource[AzureScopedRoleProperties]) -> str:
        """Return what the principal may not do without the assignment."""

    def scope(
        self, resource: Resource[AzureScopedRoleProperties], identities: Mapping[str, str] | None
    ) -> str:
        """Return the id of the resource that the role is assigned on."""
        del identities
        return resource.properties.scope

    def fetch(self, resource: Resource[AzureScopedRoleProperties]) -> Observed | None:
        """Return an assignment that suffices, also one made by hand; None if there is none."""
        principal = self._principal(resource, None)
        if not principal:
            return None
        scope, sufficient = resource.properties.scope, self.sufficient(resource)
        rows = self.azure.rows(self.calls.list_for_scope, scope, filter=f"principalId eq '{principal}'")
        row = next((row for row in rows if _suffices(row, scope, sufficient)), None)
        if row is None:
            return None
        # An assignment made by hand may be seconds old; services see it minutes later.
        self._note(resource, principal)
        return replace(self._observe(row), name=resource.name, tags=resource.tags)

    def make(
        self,
        resource: Resource[AzureScopedRoleProperties],
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
            role = (ROLES | POWERFUL)[wanted.role]
            raise PreflightError(
                f"{self.refusal(resource)}, and these credentials may not assign it a role there",
                remedy=f"have an owner run `az role assignment create --role {role} "
                f"--assignee-object-id {principal} --assignee-principal-type ServicePrincipal "
                f"--scope {wanted.scope}`, then run `cloudrec up azure --cluster "
                f"{resource.tags[TAG_CLUSTER]}` again: it continues from here",
            ) from error


def _suffices(row: models.authorization.RoleAssignment, scope: str, sufficient: frozenset[str]) -> bool:
    """Return whether an assignment gives the rights at the scope: made there or above it."""
    role = (row.role_definition_id or "").rpartition("/")[2].lower()
    at = str(row.scope).lower().rstrip("/")
    return role in sufficient and f"{scope.lower()}/".startswith(f"{at}/")
