"""The deployer's role covers every call, and suffices to create and delete a cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest

from cloudrec import app
from cloudrec.errors import CloudrecError
from cloudrec.providers.azure.api import models as azure_models
from tests.contract.azure.support import Site
from tests.contract.azure.test_cluster_side import ZONES, stray
from tests.sandbox.azure.support import Azure
from tests.tallies import Tally

INFRA = Path(__file__).parents[3] / "infra" / "azure"
ROLE: dict[str, Any] = json.loads((INFRA / "deployer-role.json").read_text(encoding="utf-8"))
CONDITION = (INFRA / "grants.condition").read_text(encoding="utf-8")
_CLIENT, _OBJECT = (str(uuid5(NAMESPACE_DNS, name)) for name in ("deployer.client", "deployer.object"))
# Without these, `down` succeeds and reports what it could not search: see test_audit.py.
REPORTED = {
    "Microsoft.Resources/subscriptions/resources/read",
    "Microsoft.Compute/virtualMachineScaleSets/read",  # the machines of a pool are then unknown
}
# A sample of each service's create and delete calls; `make soak` covers every call of a cluster lifecycle.
SOME = (
    "Microsoft.Network/natGateways/write",
    "Microsoft.ContainerService/managedClusters/agentPools/write",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.ContainerService/managedClusters/delete",
    "Microsoft.Authorization/roleAssignments/write",
    "Microsoft.ManagedIdentity/userAssignedIdentities/read",
    "Microsoft.Resources/subscriptions/resourcegroups/resources/read",
)


class Deployer:
    """A service principal with a given role, and a cluster that it deploys."""

    def __init__(self, azure: Azure, folder: Path) -> None:
        self.azure = azure
        self.site = Site(azure, folder, ttl="8h")
        self.owner = dict(azure.env)
        self.keys = {"AZURE_CLIENT_ID": _CLIENT, "AZURE_CLIENT_SECRET": "deployer"}
        azure.control(clients={_CLIENT: {"secret": "deployer", "object_id": _OBJECT}})
        self._scope = f"/subscriptions/{azure.env['AZURE_SUBSCRIPTION_ID']}"
        self._own = str(uuid5(NAMESPACE_DNS, "deployer.role"))
        self.permit(ROLE["Actions"])
        self._assign(self._own, condition=CONDITION, condition_version="2.0")
        azure.advance(3600)
        self.before = azure.state()
        azure.control(enforce_iam=True)

    def permit(self, actions: Sequence[str]) -> None:
        """Set the role's actions."""
        sdk = self.site.sdk
        client, models = sdk.authorization, azure_models.authorization
        client.role_definitions.create_or_update(
            self._scope,
            self._own,
            models.RoleDefinition(
                role_name=ROLE["Name"],
                description=ROLE["Description"],
                role_type="CustomRole",
                permissions=[models.Permission(actions=list(actions), not_actions=[])],
                assignable_scopes=[self._scope],
            ),
        )

    def _assign(self, role: str, **condition: str) -> None:
        sdk = self.site.sdk
        client, models = sdk.authorization, azure_models.authorization
        client.role_assignments.create(
            self._scope,
            str(uuid5(NAMESPACE_DNS, role)),
            models.RoleAssignmentCreateParameters(
                role_definition_id=f"{self._scope}/providers/Microsoft.Authorization/roleDefinitions/{role}",
                principal_id=_OBJECT,
                principal_type="ServicePrincipal",
                **condition,
            ),
        )

    def act(self, command: str) -> None:
        """Run `up` or `down` as the deployer."""
        self.azure.env.update(self.keys)
        try:
            getattr(self.site, command)()
        finally:
            self.azure.env.update(self.owner)

    def come_and_go(self) -> None:
        """`up`, then `down`."""
        self.act("up")
        self.act("down")

    def lacks(self, action: str) -> None:
        """Without the action `up` or `down` fails and names it; once it is restored, both succeed."""
        assert action in ROLE["Actions"], f"the role does not name {action}"
        self.permit([other for other in ROLE["Actions"] if other != action])
        with pytest.raises(CloudrecError, match=re.escape(action)):
            self.come_and_go()
        self.permit(ROLE["Actions"])
        self.act("down")
        assert self.azure.state() == self.before


@pytest.fixture
def deployer(azure: Azure, tmp_path: Path) -> Deployer:
    return Deployer(azure, tmp_path)


def called(azure: Azure, since: int = 0) -> set[str]:
    """The actions that calls needed."""
    return {call["iam_action"] for call in azure.calls(since) if call["iam_action"]}


def test_every_call_of_a_cluster_lifecycle_is_allowed(azure: Azure, tmp_path: Path) -> None:
    common = {"zones": ZONES, "capacity": "spot-first", "ttl": "8h", "metrics": "managed"}
    born = Site(azure, tmp_path, **common, settings={"lustre_tib": 8})
    since = len(azure.calls())
    born.up()
    app.doctor(born.application, born.cluster)
    volumes = born.provider.access(born.cluster).target.volumes
    (volume,) = [each for each in volumes if each["name"] == "lustre"]
    assert volume["attributes"]["mgs-ip-address"].startswith("10.")
    assert volume["capacity"] == "8Ti"
    born.provider.offers(born.cluster)
    changed = Site(azure, tmp_path, **common, nodes=2, settings={"lustre_tib": 8, "uptime_sla": True})
    changed.up()
    actions = called(azure, since)
    stray(changed)
    since = len(azure.calls())
    changed.down()
    app.leaks(changed.application, "azure")
    actions |= called(azure, since)
    allowed = {action.lower() for action in ROLE["Actions"]}
    assert len(actions) > 50
    assert {action for action in actions if action.lower() not in allowed} == set()
    # A PUT needs the actions on what it refers to, and recovery the ones that end an operation.
    others = ("/join/action", "/joinviaserviceendpoint/action", "/assign/action", "/abort/action")
    verbs = {name for name in allowed if name.endswith("/action") and not name.endswith(others)}
    unused = verbs - {action.lower() for action in actions}
    assert unused == set()


def test_the_role_suffices_to_create_and_delete_a_cluster(deployer: Deployer) -> None:
    deployer.act("up")
    assert len(deployer.azure.state()) > len(deployer.before) + 20
    deployer.act("down")
    assert deployer.azure.state() == deployer.before


def test_the_role_suffices_for_a_budget_whose_end_moves(deployer: Deployer, tmp_path: Path) -> None:
    deployer.site = Site(deployer.azure, tmp_path, budget_usd=100.0)
    deployer.act("up")
    roles = [each for each in deployer.site.found() if each.startswith("role-assignment/")]
    assert {"role-assignment/t-guard-move-end", "role-assignment/t-end-look"} <= set(roles)
    deployer.act("down")
    assert deployer.azure.state() == deployer.before


def test_the_deployer_cannot_grant_other_roles(deployer: Deployer) -> None:
    deployer.azure.env.update(deployer.keys)
    try:
        with pytest.raises(Exception, match="AuthorizationFailed"):
            deployer._assign("8e3af657-a8ff-443c-a75c-2fe8c4bcb635")  # Owner
    finally:
        deployer.azure.env.update(deployer.owner)


def test_a_missing_action_fails_a_command_that_names_it(deployer: Deployer) -> None:
    for action in SOME:
        deployer.lacks(action)


@pytest.mark.soak
def test_each_missing_action_fails_a_command_that_names_it(deployer: Deployer, tally: Tally) -> None:
    since = len(deployer.azure.calls())
    deployer.come_and_go()
    needed = {action.lower() for action in called(deployer.azure, since)}
    # Providers are registered once per subscription; the action is not needed later.
    wanted = [action for action in ROLE["Actions"] if "register/action" not in action]
    actions = [action for action in wanted if action.lower() in needed and action not in REPORTED]
    for action in actions:
        deployer.lacks(action)
    tally(f"each of {len(actions)} actions is needed")
