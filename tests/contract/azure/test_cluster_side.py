"""The cluster and its nodes on Azure: placement, changes in place, cleanup and reporting."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.engine.graph import Condition, ErrorVerdict
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import CloudrecError, NoCapacityError, PreflightError, SpecError
from cloudrec.providers.azure.api import models as azure_models
from cloudrec.providers.azure.identity import federation, identity
from cloudrec.transport import profile_of
from tests.contract.azure.support import Site
from tests.dates import in_days
from tests.sandbox.azure.support import Azure

ND, T4 = "Standard_ND96asr_v4", "Standard_NC4as_T4_v3"
ZONES = ("1", "2")
GROUP = "cloudrec-t"
GPUS = "gpu-nodes/t"
_ATTEMPT = "00000000-0000-4000-8000-000000000000"


def none_left(*places: str) -> dict[str, int]:
    """The faults for missing capacity at each SIZE/PLACE/MARKET."""
    return dict.fromkeys(places, 0)


def pools(site: Site) -> list[str]:
    return [key for key in site.found() if key.startswith("gpu-nodes/")]


def cluster(site: Site) -> Any:
    return site.sdk.containerservice.managed_clusters.get(GROUP, GROUP)


def puts(site: Site, since: int, of: str) -> int:
    return sum(call == f"containerservice:Put {of}" for call in site.changes(since))


def test_spot_is_tried_in_every_zone_before_the_first_regular_node(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path, zones=ZONES, capacity="spot-first")
    azure.control(capacity=none_left(*(f"{ND}/eastus-{zone}/spot" for zone in ZONES)))
    site.up()
    assert pools(site) == [f"gpu-nodes/t-{ND}-1-on-demand"]
    tried = [event for event in site.application.journal.events("t") if event.event == "unavailable"]
    assert [event.key for event in tried] == [f"gpu-nodes/t-{ND}-{zone}-spot" for zone in ZONES]
    assert all("AllocationFailed" in event.detail for event in tried)
    assert site.planned() == {}
    site.down()
    assert azure.state() == []


def test_a_failed_pool_is_deleted_before_the_next_candidate_is_tried(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path, zones=ZONES)
    azure.control(capacity=none_left(f"{ND}/eastus-1/on-demand"))
    site.up()
    of_pools = [call.rpartition(":")[2] for call in site.changes() if "agentPools" in call]
    assert of_pools == [f"{verb} managedClusters/agentPools" for verb in ("Put", "Delete", "Put")]


def test_multi_node_pools_without_infiniband_use_a_proximity_placement_group(
    azure: Azure, tmp_path: Path
) -> None:
    site = Site(azure, tmp_path, zones=ZONES, instance_types=(T4,), nodes=2)
    azure.control(capacity=none_left(f"{T4}/eastus-1/on-demand"))
    site.up()
    (pool,) = pools(site)
    assert pool.endswith("-2-on-demand")
    row = next(row for row in site.sdk.containerservice.agent_pools.list(GROUP, GROUP) if row.mode == "User")
    assert row.proximity_placement_group_id.lower().endswith(f"{GROUP}-{T4}-2".lower())
    groups = site.sdk.compute.proximity_placement_groups.list_by_resource_group(GROUP)
    intents = {tuple(each.zones): list(each.intent.vm_sizes) for each in groups}
    assert intents == {("1",): [T4], ("2",): [T4]}
    site.down()
    assert azure.state() == []


def test_up_without_capacity_keeps_other_resources_and_a_later_up_continues(
    azure: Azure, tmp_path: Path
) -> None:
    site = Site(azure, tmp_path, zones=ZONES)
    places = [f"{ND}/eastus-{zone}/on-demand" for zone in ZONES]
    azure.control(capacity=none_left(*places))
    with pytest.raises(NoCapacityError, match="none of 2 candidates") as caught:
        site.up()
    assert all(f"{ND}-{zone}-on-demand" in caught.value.message for zone in ZONES)
    assert "cluster/t" in site.found()
    assert pools(site) == []
    azure.control(capacity=dict.fromkeys(places))
    since = len(azure.calls())
    site.up()
    assert puts(site, since, "managedClusters") == 0
    assert len(pools(site)) == 1


def test_an_exhausted_quota_counts_as_missing_capacity(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path, zones=("1",))
    quota = {"code": "QuotaExceeded", "message": "Operation results in exceeding quota limits of Core."}
    fault = {"service": "containerservice", "action": "Put managedClusters/agentPools", "kind": "async"}
    azure.control(faults=[{**fault, "times": 1, **quota}])
    with pytest.raises(NoCapacityError, match="QuotaExceeded"):
        site.up()


@pytest.mark.parametrize(
    ("change", "call"),
    [
        ({"nodes": 2}, "Put managedClusters/agentPools"),
        ({"settings": {"labels": {"team": "ads"}}}, "Put managedClusters/agentPools"),
        ({"settings": {"system_nodes": 3}}, "Put managedClusters/agentPools"),
        ({"settings": {"uptime_sla": True}}, "Put managedClusters"),
        ({"expires": in_days(31)}, "Patch managedClusters"),
    ],
)
def test_mutable_aks_settings_are_changed_in_place(
    azure: Azure, tmp_path: Path, change: dict[str, Any], call: str
) -> None:
    # A first end makes its schedule.
    ends = {"expires": in_days(30)} if "expires" in change else {}
    before = Site(azure, tmp_path, zones=("1",), **ends)
    before.up()
    since = len(azure.calls())
    after = Site(azure, tmp_path, zones=("1",), **change)
    assert {action.step for action in after.planned().values()} == {PlanStep.CHANGE}
    after.up()
    assert f"containerservice:{call}" in after.changes(since)
    assert not [name for name in after.changes(since) if "Delete" in name]
    assert after.planned() == {}


def public_site(azure: Azure, folder: Path, block: str, **more: Any) -> Site:
    return Site(azure, folder, zones=("1",), access=block, **more)


def authorised(site: Site) -> set[str]:
    return set(cluster(site).api_server_access_profile.authorized_ip_ranges)


def egress(site: Site) -> str:
    """The public egress address of the nodes."""
    return f"{site.sdk.network.public_ip_addresses.get(GROUP, GROUP).ip_address}/32"


def test_nodes_reach_a_public_api_server_from_the_nat_gateway_address(azure: Azure, tmp_path: Path) -> None:
    site = public_site(azure, tmp_path, "203.0.113.0/24")
    site.up()
    assert authorised(site) == {"203.0.113.0/24", egress(site)}
    assert site.planned() == {}


def test_a_change_of_the_authorized_ranges_keeps_the_address_of_the_nodes(
    azure: Azure, tmp_path: Path
) -> None:
    public_site(azure, tmp_path, "203.0.113.0/24").up()
    site = public_site(azure, tmp_path, "198.51.100.0/24", nodes=2)
    site.up()
    assert authorised(site) == {"198.51.100.0/24", egress(site)}
    assert site.planned() == {}
    with pytest.raises(SpecError, match="private is False, not True"):
        Site(azure, tmp_path, zones=("1",)).up()


def test_a_removed_egress_address_is_authorized_again(azure: Azure, tmp_path: Path) -> None:
    site = public_site(azure, tmp_path, "203.0.113.0/24")
    site.up()
    row = cluster(site)
    row.api_server_access_profile.authorized_ip_ranges = ["203.0.113.0/24"]
    site.sdk.containerservice.managed_clusters.begin_create_or_update(GROUP, GROUP, row).result()
    assert site.planned()["cluster/t"].step is PlanStep.CHANGE
    site.up()
    assert authorised(site) == {"203.0.113.0/24", egress(site)}


def test_kubernetes_and_its_nodes_are_upgraded_one_minor_version_at_a_time(
    azure: Azure, tmp_path: Path
) -> None:
    some = Site(azure, tmp_path)
    calls = some.sdk.containerservice
    offered = calls.managed_clusters.list_kubernetes_versions("eastus").values_property
    versions = sorted(
        (row.version for row in offered if not row.is_preview), key=lambda each: int(each.split(".")[1])
    )
    first, *_, last = versions[-3:]
    Site(azure, tmp_path, zones=("1",), kubernetes_version=first).up()
    site = Site(azure, tmp_path, zones=("1",), kubernetes_version=last)
    site.up()
    assert cluster(site).current_kubernetes_version.startswith(f"{last}.")
    for pool in calls.agent_pools.list(GROUP, GROUP):
        assert pool.current_orchestrator_version.startswith(f"{last}.")
    assert site.planned() == {}
    with pytest.raises(SpecError, match="cannot change that in place"):
        Site(azure, tmp_path, zones=("1",), kubernetes_version=first).up()


def test_a_failed_change_is_reported_and_retried_without_replacing_the_cluster(
    azure: Azure, tmp_path: Path
) -> None:
    Site(azure, tmp_path, zones=("1",)).up()
    site = Site(azure, tmp_path, zones=("1",), settings={"uptime_sla": True})
    failure = {"code": "VMExtensionProvisioningError", "message": "It did not work."}
    fault = {"service": "containerservice", "action": "Put managedClusters", "kind": "async", "times": 1}
    azure.control(faults=[{**fault, **failure}])
    with pytest.raises(CloudrecError, match="It did not work"):
        site.up()
    assert {action.step for action in site.planned().values()} == {PlanStep.CHANGE}
    since = len(azure.calls())
    site.up()
    assert not [name for name in site.changes(since) if "Delete" in name]
    assert site.planned() == {}


def test_a_federated_credential_is_retried_until_the_issuer_of_the_cluster_is_known(standing: Site) -> None:
    of_identities = standing.sdk.managedidentity.federated_identity_credentials
    names = (GROUP, f"{GROUP}-pod", f"{GROUP}-pod")
    issuer = cluster(standing).oidc_issuer_profile.issuer_url
    assert issuer
    assert of_identities.get(*names).issuer == issuer
    provider, kind = standing.provider, federation.FEDERATED
    credential = next(
        each for each in provider.resources(standing.cluster) if each.key == f"{kind}/t-{identity.POD}"
    )
    driver = provider.drivers(standing.cluster)[kind]
    identities = {key: seen.identity for key, seen in standing.found().items()}
    of_identities.delete(*names)
    standing.azure.control(advance_s=5)  # writes to the credentials of one identity are serialized
    unseen = {"service": "containerservice", "action": "Get managedClusters", "kind": "error", "times": 1}
    standing.azure.control(faults=[{**unseen, "code": "ResourceNotFound", "status": 404}])
    with pytest.raises(federation.NoIssuerError) as caught:
        driver.create(credential, token=_ATTEMPT, identities=identities)
    assert driver.verdict(caught.value) is ErrorVerdict.RETRY
    assert GROUP in driver.explain(caught.value).message
    assert driver.find(credential) is None
    driver.create(credential, token=_ATTEMPT, identities=identities)  # the engine's reaction to that verdict
    assert of_identities.get(*names).issuer == issuer


def test_the_cluster_is_private_and_has_no_passwords(site: Site) -> None:
    site.up()
    row = cluster(site)
    assert row.api_server_access_profile.enable_private_cluster
    assert row.disable_local_accounts
    assert row.aad_profile.enable_azure_rbac
    assert row.network_profile.outbound_type == "userAssignedNATGateway"
    assert row.node_resource_group == f"{GROUP}-nodes"
    (system,) = [pool for pool in row.agent_pool_profiles if pool.mode == "System"]
    assert system.scale_set_priority != "Spot"


def test_a_creation_in_progress_is_aborted_before_deletion(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path, zones=("1",))
    site.up()
    azure.control(durations={"*": 100_000})
    drivers = site.provider.drivers(site.cluster)
    pool = next(seen for key, seen in site.found().items() if key.startswith("gpu-nodes/"))
    aks, models = site.sdk.containerservice, azure_models.containerservice
    name = pool.identity.rpartition("/")[2]
    row = aks.agent_pools.get(GROUP, GROUP, name)
    row.count = 2
    aks.agent_pools.begin_create_or_update(GROUP, GROUP, name, models.AgentPool(row), polling=False)
    assert drivers["gpu-nodes"].condition("gpu-nodes", pool.identity)[0] is Condition.PENDING
    azure.control(durations={"*": 5})
    since = len(azure.calls())
    site.down()
    of_pools = [call for call in site.changes(since) if "agentPools" in call]
    assert of_pools[0] == "containerservice:Post managedClusters/agentPools/abort"
    assert azure.state() == []


def stray(site: Site) -> None:
    """Create the resources that controllers in the cluster create outside the node resource group."""
    network, compute = site.sdk.network, site.sdk.compute
    of_network: Any = azure_models.network
    of_compute: Any = azure_models.compute
    network.public_ip_addresses.begin_create_or_update(
        GROUP,
        "kubernetes-a1",
        of_network.PublicIPAddress(
            location="eastus",
            sku=of_network.PublicIPAddressSku(name="Standard"),
            public_ip_allocation_method="Static",
        ),
        polling=False,
    )
    compute.disks.begin_create_or_update(
        GROUP,
        "pvc-1",
        of_compute.Disk(
            location="eastus",
            disk_size_gb=100,
            creation_data=of_compute.CreationData(create_option="Empty"),
        ),
        polling=False,
    )
    site.azure.advance(60)


def test_up_keeps_resources_of_controllers_and_down_deletes_them(site: Site) -> None:
    site.up()
    stray(site)
    assert site.planned() == {}
    assert "stray" not in {seen.kind for seen in site.found().values()}
    site.down()
    assert site.azure.state() == []


def test_orphaned_resources_of_a_deleted_cluster_are_listed_with_their_cost(site: Site) -> None:
    site.up()
    stray(site)
    site.sdk.containerservice.managed_clusters.begin_delete(GROUP, GROUP, polling=False)
    site.azure.advance(3600)
    left = [leak.found for leak in app.leaks(site.application, "azure").leaks if leak.found.kind == "stray"]
    usd = {seen.identity.rpartition("/")[2]: seen.hourly_usd for seen in left}
    assert usd == {"kubernetes-a1": 0.005, "pvc-1": None}  # the price of a disk is not known
    assert "leftovers" in {
        finding.check for finding in app.doctor(site.application, site.cluster) if not finding.ok
    }
    site.down()
    assert site.azure.state() == []


def test_access_writes_a_private_kubeconfig_without_a_secret(site: Site) -> None:
    with pytest.raises(PreflightError, match="is not up: there is no cloudrec-t"):
        site.provider.access(site.cluster)
    site.up()
    access = site.provider.access(site.cluster)
    path = Path(access.target.kubeconfig)
    assert path.is_relative_to(site.home.root)
    assert path.stat().st_mode & 0o777 == 0o600
    config = json.loads(path.read_text(encoding="utf-8"))
    passed_on = {each["name"]: each["value"] for each in config["users"][0]["user"]["exec"]["env"]}
    assert "AZURE_CLIENT_ID" in passed_on
    assert site.azure.env["AZURE_CLIENT_SECRET"] not in passed_on.values()
    assert (access.nodes, access.gpus_per_node, access.target.fabric) == (1, 8, "infiniband")
    assert access.target.resources == {"nvidia.com/gpu": "8", "rdma/ib": "8"}
    target = access.target
    assert (target.notices, target.is_preempted, target.capabilities) == ("azure", False, ["IPC_LOCK"])
    assert target.image_repository.endswith(".azurecr.io/cloudrec/trainer")
    assert [volume["name"] for volume in target.volumes] == ["bucket"]
    assert profile_of(target.fabric, target.instance_type).name.startswith("azure-nd")
    written = path.stat().st_mtime_ns
    site.provider.access(site.cluster)
    assert path.stat().st_mtime_ns == written


def test_the_kubeconfig_command_prints_a_token_of_the_caller(site: Site) -> None:
    site.up()
    access = site.provider.access(site.cluster)
    config = json.loads(Path(access.target.kubeconfig).read_text(encoding="utf-8"))
    run = config["users"][0]["user"]["exec"]
    passed_on = {each["name"]: each["value"] for each in run["env"]}
    secret = {"AZURE_CLIENT_SECRET": site.azure.env["AZURE_CLIENT_SECRET"]}

    def ask(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [run["command"], *run["args"]],
            env={**os.environ, **passed_on, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    assert run["command"] == sys.executable
    answer = ask(secret)
    told = json.loads(answer.stdout)
    assert told["kind"] == "ExecCredential"
    assert told["status"]["token"].count(".") == 2
    refused = ask({"AZURE_CLIENT_SECRET": "wrong"})
    assert refused.returncode == 3
    assert "AADSTS7000215" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("control", "asked", "told"),
    [
        (
            {"quotas": {"Standard NDASv4_A100 Family": 50}},
            {},
            "quota: on-demand vCPUs .*: 50, of which 0 are used by others; needed: 96",
        ),
        ({"quotas": {"cores": 4}}, {}, "quota: vCPUs of 2 x Standard_D4s_v5 .*: 4, of which 0"),
        ({"quotas": {"lowPriorityCores": 3}}, {"capacity": "spot"}, "quota: spot vCPUs .*: 3, of which 0"),
        (
            {"restrictions": {f"{ND}/eastus": "NotAvailableForSubscription"}},
            {},
            f"VM size {ND}: NotAvailableForSubscription",
        ),
        ({}, {"kubernetes_version": "1.20"}, "Kubernetes version: AKS offers .* needed: 1.20"),
        (
            {},
            {"access": "auto,10.0.0.0/8,203.0.113.0/24"},
            "setting: access: 10.0.0.0/8: the public endpoints .* admit no private addresses",
        ),
    ],
)
def test_preflight_reports_blocking_problems_before_any_change(
    azure: Azure, tmp_path: Path, control: dict[str, Any], asked: dict[str, Any], told: str
) -> None:
    azure.control(**control)
    with pytest.raises(PreflightError, match=told):
        Site(azure, tmp_path, **asked).up()
    assert azure.state() == []


@pytest.mark.parametrize("block", ["10.0.0.0/8", "172.24.0.0/13", "192.168.1.7", "100.64.0.0/16"])
def test_a_running_cluster_is_not_opened_to_private_addresses(
    azure: Azure, tmp_path: Path, block: str
) -> None:
    site = Site(azure, tmp_path, access="203.0.113.0/24")
    site.up()
    since = len(azure.calls())
    asked = Site(azure, tmp_path, access=f"203.0.113.0/24,{block}")
    with pytest.raises(PreflightError, match="admit no private addresses") as error:
        asked.up()
    assert "--access private" in (error.value.remedy or "")
    assert site.changes(since) == []


def test_a_cluster_of_the_same_name_without_cloudrec_tags_is_left_alone(site: Site) -> None:
    site.up()
    aks, models = site.sdk.containerservice, azure_models.containerservice
    aks.managed_clusters.begin_update_tags(GROUP, GROUP, models.TagsObject(tags={}), polling=False)
    site.azure.advance(600)
    with pytest.raises(PreflightError, match="does not belong to"):
        site.up()
    with pytest.raises(PreflightError, match="does not belong to"):
        site.provider.access(site.cluster)


def test_offers_list_the_candidates_and_their_prices(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path, zones=ZONES, capacity="spot-first")
    offers = site.provider.offers(site.cluster)
    assert [(offer.capacity, offer.location) for offer in offers] == [
        (capacity, f"eastus-{zone}") for capacity in ("spot", "on-demand") for zone in ZONES
    ]
    assert offers[0].hourly_usd is not None
    assert offers[-1].hourly_usd is not None
    assert 0 < offers[0].hourly_usd < offers[-1].hourly_usd


def test_the_catalogue_is_refreshed_from_the_price_list(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path)
    listed = site.provider.catalog(site.cluster, refresh=True)
    of = {offer.instance_type: offer for offer in listed if offer.capacity == "on-demand"}
    assert of[T4].hourly_usd == 0.526
    assert "Azure retail prices" in of[T4].priced
    assert {offer.location for offer in listed if offer.capacity == "spot"} >= {"eastus-1", "eastus-2"}
    assert site.provider.account().prices.region == "eastus"


def test_deletion_errors_name_the_remaining_resources(site: Site) -> None:
    site.up()
    message = (
        "The client 'x' with object id 'y' does not have authorization to perform action "
        "'Microsoft.ContainerService/managedClusters/delete' over scope '/z' or the scope is invalid."
    )
    denied = {"service": "containerservice", "action": "Delete managedClusters", "kind": "error", "times": 99}
    refusal = {"code": "AuthorizationFailed", "status": 403, "message": message}
    site.azure.control(faults=[{**denied, **refusal}])
    with pytest.raises(CloudrecError, match=r"cluster/t .*managedClusters/delete"):
        site.down()
    site.azure.control(faults=[])
    site.down()
    assert site.azure.state() == []
