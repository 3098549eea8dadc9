"""The deployer's role covers every call, and suffices to create and delete a cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cloudrec import app
from cloudrec.providers.azure.layout import TAG_PREPARED
from tests.contract.azure.support import Site
from tests.contract.azure.support_deployer import ACTIONS, GROUP, Deployer, shipped
from tests.contract.azure.test_cluster_side import ZONES, stray
from tests.sandbox.azure.support import Azure
from tests.tallies import Tally

# Without these, `down` succeeds and reports what it could not search: see test_audit.py.
REPORTED = {
    "Microsoft.Resources/subscriptions/resources/read",
    "Microsoft.Compute/virtualMachineScaleSets/read",  # the machines of a pool are then unknown
}
# Held for what that lifecycle does not do, or does without a call that names the action.
BESIDE: dict[str, str] = {
    r"/(join|joinViaServiceEndpoint|assign)/action$": "a PUT needs it on what it refers to",
    r"/(locations/.*|operationStatuses|operationresults)/read$": "polls of operations need it in Azure",
    r"/abort/action$": "an operation of an earlier `up` is still running",
    r"roleDefinitions/read$": "`doctor` names the roles of others",
    r"capacityReservation": "with `capacity_reservation_group`",
    r"proximityPlacementGroups/(write|delete)$": "several nodes without InfiniBand",
    r"importJobs/|ResourceGroup/amlFilesystems": "with `lustre_importer`, or a new file system",
    r"(snapshots|loadBalancers|networkInterfaces|privateDnsZones.*|privateEndpoints|workspaces|solutions)/": (
        "what controllers leave in the group"
    ),
    r"(images|virtualMachines|DevTestLab/schedules)/read$": "`leaks` and `down` name what others left",
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
    # This cluster's group is not a prepared one: `down` deletes it.
    allowed = {action.lower() for action in (*ACTIONS, *shipped("groups")["Actions"])}
    assert len(actions) > 50
    assert {action for action in actions if action.lower() not in allowed} == set()
    unused = {action for action in ACTIONS if action.lower() not in {each.lower() for each in actions}}
    assert sorted(action for action in unused if not any(re.search(each, action) for each in BESIDE)) == []
    print(f"{len(ACTIONS) - len(unused)} actions are used, {len(unused)} have another reason")


def test_the_role_suffices_to_create_and_delete_a_cluster(deployer: Deployer) -> None:
    deployer.act("up")
    assert len(deployer.azure.state()) > len(deployer.before) + 20
    deployer.act("down")
    assert deployer.azure.state() == deployer.before


def test_a_prepared_group_stays_with_the_tags_of_its_owner(deployer: Deployer) -> None:
    deployer.act("up")
    groups = deployer.site.sdk.resources.resource_groups
    assert groups.get(GROUP).tags["cloudrec-cluster"] == "t"
    deployer.act("down")
    assert groups.get(GROUP).tags == {TAG_PREPARED: "ml"}
    assert deployer.site.found() == {}
    deployer.come_and_go()


def test_the_roles_in_the_whole_subscription_suffice_without_a_prepared_group(
    azure: Azure, tmp_path: Path
) -> None:
    wide = Deployer(azure, tmp_path, wide=True)
    wide.come_and_go()
    assert azure.state() == wide.before


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
            deployer.assign(deployer.group, "8e3af657-a8ff-443c-a75c-2fe8c4bcb635")  # Owner
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
    wanted = [action for action in ACTIONS if "register/action" not in action]
    actions = [action for action in wanted if action.lower() in needed and action not in REPORTED]
    for action in actions:
        deployer.lacks(action)
    tally(f"each of {len(actions)} actions is needed")
