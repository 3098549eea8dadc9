"""The network, identities and storage of a cluster on Azure: creation, discovery, repair and deletion."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.engine.graph import Graph, cost_of
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import CloudrecError, PreflightError, SpecError
from cloudrec.providers.azure.api import models as azure_models
from tests.contract.azure.support import Site
from tests.sandbox.azure.support import Azure

GROUP = "cloudrec-t"
# Every call that creates a resource.
CREATIONS = [
    ("resources", "Put resourceGroups"),
    ("network", "Put virtualNetworks"),
    ("network", "Put virtualNetworks/subnets"),
    ("network", "Put networkSecurityGroups"),
    ("network", "Put publicIPAddresses"),
    ("network", "Put natGateways"),
    ("managedidentity", "Put userAssignedIdentities"),
    ("managedidentity", "Put userAssignedIdentities/federatedIdentityCredentials"),
    ("authorization", "Put roleAssignments"),
    ("storage", "Put storageAccounts"),
    ("storage", "Put storageAccounts/blobServices/containers"),
    ("containerregistry", "Put registries"),
]
# Calls that configure existing resources.
COMPLETIONS = [("storage", "Put storageAccounts/blobServices")]


def kinds(state: list[str]) -> Counter[str]:
    """The number of resources of each kind."""
    return Counter(line.split("/providers/", 1)[0].rsplit(":", 1)[0] for line in state)


def at(faults: list[tuple[str, str]], kind: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {"service": service, "action": action, "kind": kind, "times": 1, **more} for service, action in faults
    ]


def changed(site: Site, begin: Any, *arguments: Any) -> None:
    """Run a manual change and wait for its end."""
    begin(*arguments, polling=False)
    site.azure.advance(60)


def test_a_second_up_changes_nothing_and_down_leaves_nothing(site: Site) -> None:
    assert {action.step for action in site.up().actions} == {PlanStep.CREATE}
    since = len(site.azure.calls())
    assert {action.step for action in site.up().actions} == {PlanStep.KEEP}
    assert site.changes(since) == []
    assert [view.state for view in app.clusters(site.application)] == ["READY"]
    site.down()
    assert site.azure.state() == []
    assert app.leaks(site.application, "azure").leaks == ()


def test_resources_are_tagged_and_billed_resources_show_their_cost(site: Site) -> None:
    plan = site.up()
    found = site.found()
    places = Graph.of(site.provider.resources(site.cluster)).places()
    # Registrations belong to the subscription, so a search by tag does not find them.
    unseen = {"registration"}
    assert {places[key] for key in found} == {
        action.key for action in plan.actions if action.key.partition("/")[0] not in unseen
    }
    assert {seen.cluster for seen in found.values()} == {"t"}
    assert {seen.owner for seen in found.values()} == {"tester"}
    assert plan.cost.usd  # every price is known
    assert cost_of(found.values()).usd == pytest.approx(plan.cost.usd)


def test_a_lost_create_response_creates_no_duplicate(site: Site) -> None:
    site.up()
    undisturbed = kinds(site.azure.state())
    site.down()
    site.azure.control(faults=at(CREATIONS, "lost"))
    site.up()
    assert kinds(site.azure.state()) == undisturbed
    assert site.planned() == {}
    site.down()
    assert site.azure.state() == []


@pytest.mark.parametrize("kind", ["throttle", "5xx", "drop"])
def test_a_call_with_a_transient_failure_is_retried(site: Site, kind: str) -> None:
    site.azure.control(faults=at(CREATIONS + COMPLETIONS, kind))
    site.up()
    assert site.planned() == {}


def test_an_operation_with_a_transient_failure_is_retried(site: Site) -> None:
    busy = {"code": "AnotherOperationInProgress", "message": "Another operation is in progress."}
    site.azure.control(
        faults=at([("network", r"Put (virtualNetworks/subnets|natGateways)")], "async", **busy)
    )
    site.up()
    assert site.planned() == {}
    site.azure.control(faults=at([("network", r"Delete virtualNetworks/subnets")], "async", **busy))
    site.down()
    assert site.azure.state() == []


def test_a_failed_operation_is_reported_with_its_cause_and_repaired(site: Site) -> None:
    refusal = {"code": "PublicIPCountLimitReached", "message": "Cannot create more than 10 public IPs."}
    site.azure.control(faults=at([("network", "Put publicIPAddresses")], "async", **refusal))
    with pytest.raises(CloudrecError, match=r"quota of the subscription.*more than 10 public IPs"):
        site.up()
    # The journal records the operation, so another process reports it too.
    action = site.planned()["public-ip/t"]
    assert action.step is PlanStep.CHANGE
    assert "more than 10 public IPs" in action.reason
    site.up()
    assert site.planned() == {}


def test_a_denied_action_is_reported_at_once_by_name(site: Site) -> None:
    # The caller was granted roles on unrelated resources a moment before.
    caller = site.sdk.caller.object_id
    message = (
        f"The client 'x' with object id '{caller}' does not have authorization to perform action "
        "'Microsoft.ContainerService/managedClusters/agentPools/write' over scope '/subscriptions/z' or the "
        "scope is invalid."
    )
    refusal = {"code": "AuthorizationFailed", "status": 403, "message": message, "times": 99}
    pools = ("containerservice", "Put managedClusters/agentPools")
    site.azure.control(faults=[{"service": pools[0], "action": pools[1], "kind": "error", **refusal}])
    with pytest.raises(
        PreflightError, match=r"may not do Microsoft\.ContainerService/managedClusters/agentP"
    ):
        site.up()
    assert site.changes().count(":".join(pools)) == 1
    site.azure.control(faults=[])
    site.up()
    assert site.planned() == {}


def test_down_works_from_another_machine_without_a_journal(standing: Site, tmp_path: Path) -> None:
    Site(standing.azure, tmp_path / "elsewhere").down()
    assert standing.azure.state() == []


def test_manual_changes_are_detected_and_repaired(standing: Site) -> None:
    found = {key: seen.identity for key, seen in standing.found().items()}
    sdk = standing.sdk
    network, storage = sdk.network, sdk.storage
    account = found["storage-account/t"].rpartition("/")[2]
    rules = network.network_security_groups.get(GROUP, GROUP)
    rules.security_rules = rules.security_rules[:1]
    changed(standing, network.network_security_groups.begin_create_or_update, GROUP, GROUP, rules)
    subnet = network.subnets.get(GROUP, GROUP, f"{GROUP}-nodes")
    subnet.nat_gateway = None
    changed(standing, network.subnets.begin_create_or_update, GROUP, GROUP, subnet.name, subnet)
    models: Any = azure_models.storage
    opened = models.StorageAccountUpdateParameters(allow_shared_key_access=True)
    storage.storage_accounts.update(GROUP, account, opened)
    keep = models.DeleteRetentionPolicy(enabled=True, days=7)
    kept = models.BlobServiceProperties(delete_retention_policy=keep)
    storage.blob_services.set_service_properties(GROUP, account, kept)
    registries: Any = azure_models.containerregistry
    password = registries.RegistryUpdateParameters(admin_user_enabled=True)
    changed(standing, sdk.containerregistry.registries.begin_update, GROUP, account, password)
    sdk.authorization.role_assignments.delete_by_id(found["role-assignment/t-cluster-network"])
    assert standing.planned().keys() == {
        "network-security-group/t",
        "subnet/t-nodes",
        "storage-account/t",
        "container/t",
        "registry/t",
        "role-assignment/t-cluster-network",
    }
    standing.up()
    assert standing.planned() == {}


def test_rules_created_by_others_are_kept(standing: Site) -> None:
    groups = standing.sdk.network.network_security_groups
    models: Any = azure_models.network
    theirs = models.SecurityRule(
        name="theirs",
        priority=4000,
        direction="Inbound",
        access="Deny",
        protocol="Tcp",
        source_address_prefix="*",
        source_port_range="*",
        destination_address_prefix="*",
        destination_port_range="22",
    )
    group = groups.get(GROUP, GROUP)
    group.security_rules = [*group.security_rules[:1], theirs]
    changed(standing, groups.begin_create_or_update, GROUP, GROUP, group)
    standing.up()
    rules = {rule.name for rule in groups.get(GROUP, GROUP).security_rules}
    assert rules == {"cloudrec-nodes-to-pods", "cloudrec-pods-to-pods", "theirs"}


def test_role_assignments_follow_a_recreated_identity(standing: Site) -> None:
    before = standing.found()["role-assignment/t-pod-storage"].identity
    standing.sdk.managedidentity.user_assigned_identities.delete(GROUP, f"{GROUP}-pod")
    standing.up()
    # The role assignments of the deleted identity are recognized as stale.
    assert standing.planned()["role-assignment/t-pod-storage"].step is PlanStep.DELETE
    standing.up()
    mine = [seen for seen in standing.provider.search("t") if seen.key == "role-assignment/t-pod-storage"]
    assert [seen.identity for seen in mine] != [before]
    assert len(mine) == 1
    assert standing.planned() == {}


def test_role_assignments_that_become_visible_late_are_created_once(site: Site) -> None:
    site.azure.control(lag_s={"role-assignments": 60})
    site.up()
    site.azure.advance(60)
    roles = [key for key in site.found() if key.startswith(("role-assignment/", "guard-role/"))]
    assert len(roles) == kinds(site.azure.state())["authorization:roleAssignments"]
    assert site.planned() == {}


def test_keep_data_keeps_the_storage_account_and_up_reuses_it(standing: Site) -> None:
    account = standing.found()["storage-account/t"].identity
    standing.down(keep_data=True)
    assert standing.found().keys() == {"resource-group/t", "storage-account/t", "container/t"}
    standing.up()
    assert standing.found()["storage-account/t"].identity == account
    assert standing.planned() == {}
    standing.down()
    assert standing.azure.state() == []


def test_a_resource_group_of_the_same_name_without_cloudrec_tags_is_left_alone(site: Site) -> None:
    sdk = site.sdk
    groups, models = sdk.resources.resource_groups, azure_models.resources
    groups.create_or_update(GROUP, models.ResourceGroup(location="eastus"))
    with pytest.raises(PreflightError, match="resource group cloudrec-t exists, and does not belong to"):
        site.up()


def test_a_cluster_is_not_moved_to_another_region(standing: Site, tmp_path: Path) -> None:
    elsewhere = Site(standing.azure, tmp_path, region="westeurope")
    with pytest.raises(SpecError, match="location is 'eastus', not 'westeurope'"):
        elsewhere.up()


def test_a_cluster_keeps_its_zones(azure: Azure, tmp_path: Path) -> None:
    Site(azure, tmp_path, zones=("2",)).up()
    later = Site(azure, tmp_path)
    assert later.provider.layout(later.cluster).gpu_zones == ("2",)
    assert later.planned() == {}


def test_an_unknown_zone_region_or_size_is_reported(azure: Azure, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="'7', which is no zone of region eastus"):
        Site(azure, tmp_path, zones=("7",)).up()
    with pytest.raises(SpecError, match="has no region 'eastuss'"):
        Site(azure, tmp_path, region="eastuss").up()
    with pytest.raises(SpecError, match="region eastus has no VM size 'Standard_Q9'"):
        Site(azure, tmp_path, instance_types=("Standard_Q9",)).up()


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("AZURE_CLIENT_SECRET", "wrong", "AADSTS7000215"),
        ("AZURE_CLIENT_ID", "00000000-0000-0000-0000-000000000001", "AADSTS700016"),
        ("AZURE_TENANT_ID", "00000000-0000-0000-0000-000000000001", "no Azure credentials"),
        ("AZURE_SUBSCRIPTION_ID", "00000000-0000-0000-0000-000000000001", "no such subscription"),
        ("AZURE_RESOURCE_MANAGER_ENDPOINT_URL", "https://127.0.0.1:1", "cannot be reached"),
    ],
)
def test_rejected_credentials_are_reported(
    site: Site, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setitem(site.azure.env, variable, value)
    with pytest.raises(PreflightError, match=words):
        site.provider.search("t")


def test_a_single_subscription_is_the_default(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    named = site.azure.env["AZURE_SUBSCRIPTION_ID"]
    monkeypatch.delitem(site.azure.env, "AZURE_SUBSCRIPTION_ID")
    assert site.provider.account().subscription == named


def test_the_file_system_is_created_in_the_zone_of_the_gpus(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path, settings={"lustre_tib": 8})
    site.up()
    files = site.sdk.storagecache.aml_filesystems.get(GROUP, GROUP)
    (pool,) = [seen for key, seen in site.found().items() if key.startswith("gpu-nodes/")]
    assert [pool.properties["zone"]] == list(files.zones)
    assert site.planned() == {}
    site.down()
    assert site.azure.state() == []


def test_down_keeps_resource_provider_registrations(standing: Site) -> None:
    standing.down()
    providers = standing.sdk.resources.providers
    assert providers.get("Microsoft.ContainerRegistry").registration_state == "Registered"
    standing.azure.control(unregistered=["Microsoft.ContainerRegistry"])
    assert standing.planned()["registration/t-containerregistry"].step is PlanStep.CREATE
