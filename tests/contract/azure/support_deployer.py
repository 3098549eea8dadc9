"""A service principal with the roles of infra/azure, in a resource group that was prepared for it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest

from cloudrec.errors import CloudrecError
from cloudrec.providers.azure.api import models as azure_models
from cloudrec.providers.azure.layout import TAG_PREPARED
from tests.contract.azure.support import Site
from tests.sandbox.azure.support import LOCATION, Azure

INFRA = Path(__file__).parents[3] / "infra" / "azure"
CONDITION = (INFRA / "grants.condition").read_text(encoding="utf-8")
GROUP = "cloudrec-t"
CLIENT, OBJECT = (str(uuid5(NAMESPACE_DNS, name)) for name in ("deployer.client", "deployer.object"))


def shipped(name: str) -> dict[str, Any]:
    """A role of infra/azure."""
    document: dict[str, Any] = json.loads((INFRA / f"{name}-role.json").read_text(encoding="utf-8"))
    return document


# The roles and where README.md assigns each: in the group, or in the subscription.
ROLES = {name: shipped(name) for name in ("deployer", "subscription")}
ACTIONS: dict[str, str] = {action: name for name, role in ROLES.items() for action in role["Actions"]}


class Deployer:
    """A service principal with the shipped roles, and its cluster; `wide`: all in the subscription."""

    def __init__(self, azure: Azure, folder: Path, *, wide: bool = False, **cluster: Any) -> None:
        self.azure = azure
        self.site = Site(azure, folder, **{"ttl": "8h", **cluster})
        self.owner = dict(azure.env)
        self.keys = {"AZURE_CLIENT_ID": CLIENT, "AZURE_CLIENT_SECRET": "deployer"}
        azure.control(clients={CLIENT: {"secret": "deployer", "object_id": OBJECT}})
        self.subscription = f"/subscriptions/{azure.env['AZURE_SUBSCRIPTION_ID']}"
        self.group = f"{self.subscription}/resourceGroups/{GROUP}"
        self._roles = dict(ROLES)
        if wide:
            self._roles["groups"] = shipped("groups")
        else:
            owned = azure_models.resources.ResourceGroup(location=LOCATION, tags={TAG_PREPARED: "ml"})
            self.site.sdk.resources.resource_groups.create_or_update(GROUP, owned)
        for name in self._roles:
            self.permit(name, self._roles[name]["Actions"])
            place = self.group if name == "deployer" and not wide else self.subscription
            # The other roles have no action that a condition can limit.
            limit = {"condition": CONDITION, "condition_version": "2.0"} if name == "deployer" else {}
            self.assign(place, _guid(name), **limit)
        azure.advance(3600)
        self.before = azure.state()
        azure.control(enforce_iam=True)

    def assign_in_group(self, group: str) -> None:
        """Assign the deployer's role in another resource group too, as README.md says for `--storage-of`."""
        place = f"{self.subscription}/resourceGroups/{group}"
        self.assign(place, _guid("deployer"), condition=CONDITION, condition_version="2.0")

    def permit(self, name: str, actions: Sequence[str]) -> None:
        """Set a role's actions."""
        models, role = azure_models.authorization, self._roles[name]
        self.site.sdk.authorization.role_definitions.create_or_update(
            self.subscription,
            _guid(name),
            models.RoleDefinition(
                role_name=role["Name"],
                description=role["Description"],
                role_type="CustomRole",
                permissions=[models.Permission(actions=list(actions), not_actions=[])],
                assignable_scopes=[self.subscription],
            ),
        )

    def allow(self, actions: Sequence[str]) -> None:
        """Leave these actions of the shipped roles, each where it is assigned."""
        for name, role in ROLES.items():
            self.permit(name, [action for action in role["Actions"] if action in actions])

    def assign(self, scope: str, role: str, principal: str = OBJECT, **condition: str) -> None:
        """Assign a role by its GUID."""
        models = azure_models.authorization
        self.site.sdk.authorization.role_assignments.create(
            scope,
            str(uuid5(NAMESPACE_DNS, f"{role}{scope}{principal}")),
            models.RoleAssignmentCreateParameters(
                role_definition_id=f"{self.subscription}/providers/Microsoft.Authorization/roleDefinitions/{role}",
                principal_id=principal,
                principal_type="ServicePrincipal",
                **condition,
            ),
        )

    def grant(self, action: str) -> None:
        """Give the deployer one more action in the whole subscription, without a condition."""
        self._roles["mutant"] = {"Name": "mutant", "Description": "one action more"}
        self.permit("mutant", [action])
        self.assign(self.subscription, _guid("mutant"))
        self.azure.advance(3600)

    def act(self, command: str) -> Any:
        """Run `up`, `down` or a look as the deployer, and return the result."""
        self.azure.env.update(self.keys)
        try:
            return getattr(self.site, command)()
        finally:
            self.azure.env.update(self.owner)

    def come_and_go(self) -> None:
        """`up`, then `down`."""
        self.act("up")
        self.act("down")

    def lacks(self, action: str) -> None:
        """Without the action `up` or `down` fails and names it; once it is restored, both succeed."""
        assert action in ACTIONS, f"the roles do not name {action}"
        name = ACTIONS[action]
        actions = self._roles[name]["Actions"]
        self.permit(name, [other for other in actions if other != action])
        with pytest.raises(CloudrecError, match=re.escape(action)):
            self.come_and_go()
        self.permit(name, actions)
        self.act("down")
        assert self.azure.state() == self.before


def _guid(name: str) -> str:
    return str(uuid5(NAMESPACE_DNS, f"{name}.role"))
