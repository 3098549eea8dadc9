"""Clusters: their life, what they make, what AKS refuses of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sandbox.azure.support import GROUP, LOCATION, Azure, refused
from tests.sandbox.azure.support_aks import (
    D4,
    NAME,
    NETWORK_CONTRIBUTOR,
    NODES,
    QUOTAS,
    begin_cluster,
    begin_pool,
    body,
    delete_cluster,
    get_cluster,
    grant,
    ground,
    make_cluster,
    make_pool,
    system,
    things,
)


@pytest.fixture(autouse=True)
def aks(azure: Azure) -> Any:
    azure.control(quotas=QUOTAS)
    azure.group()
    return azure.client("containerservice")


def test_a_cluster_takes_minutes_and_creates_a_node_resource_group(azure: Azure) -> None:
    poller = begin_cluster(azure)
    assert get_cluster(azure).properties.provisioning_state == "Creating"
    assert get_cluster(azure).properties.fqdn is None
    azure.advance(20)
    assert things(azure) == []
    groups = azure.client("resource").resource_groups
    assert groups.get(NODES).managed_by.endswith("/managedClusters/one")
    azure.advance(300)
    made = poller.result(30)
    assert (made.properties.provisioning_state, made.properties.power_state.code) == ("Succeeded", "Running")
    assert made.properties.fqdn.endswith(".hcp.eastus.azmk8s.io")
    assert [pool.name for pool in made.properties.agent_pool_profiles] == ["system"]
    assert things(azure) == [
        "loadBalancers",
        "networkSecurityGroups",
        "publicIPAddresses",
        "userAssignedIdentities",
        "virtualMachineScaleSets",
    ]
    azure.advance(1)
    poller = delete_cluster(azure)
    assert get_cluster(azure).properties.provisioning_state == "Deleting"
    azure.advance(400)
    poller.result(30)
    assert [entry.rpartition("/")[2] for entry in azure.state()] == [GROUP]
    assert not groups.check_existence(NODES)


def test_a_private_cluster_has_a_zone_and_an_interface_in_the_subnet(azure: Azure) -> None:
    base = ground(azure)
    wish = body(base, apiServerAccessProfile={"enablePrivateCluster": True})
    made = make_cluster(azure, wish)
    assert made.properties.private_fqdn.endswith(".privatelink.eastus.azmk8s.io")
    assert made.properties.identity_profile["kubeletidentity"].resource_id == base.kubelet
    assert things(azure) == [
        "networkInterfaces",
        "networkSecurityGroups",
        "privateDnsZones",
        "virtualMachineScaleSets",
    ]
    with refused("InUseSubnetCannotBeDeleted"):
        azure.client("network").subnets.begin_delete(GROUP, "net", "nodes")
    poller = delete_cluster(azure)
    azure.advance(301)
    poller.result(30)
    with refused("InUseSubnetCannotBeDeleted"):
        azure.client("network").subnets.begin_delete(GROUP, "net", "nodes")
    azure.advance(120)
    azure.done(azure.client("network").subnets.begin_delete, GROUP, "net", "nodes")
    left = list(azure.client("authorization").role_assignments.list_for_scope(base.kubelet))
    assert base.principal in [row.principal_id for row in left]


def test_a_cluster_in_a_network_with_a_write_in_progress_is_refused(azure: Azure) -> None:
    base = ground(azure)
    network = azure.client("network").virtual_networks.get(GROUP, "net")
    azure.begin(azure.client("network").virtual_networks.begin_create_or_update, GROUP, "net", network)
    with refused("VirtualNetworkNotInSucceededState", "Updating", status=400):
        begin_cluster(azure, body(base))


def test_a_missing_or_new_role_assignment_fails_the_cluster_later(azure: Azure) -> None:
    base = ground(azure, grants=False)
    wish = body(base)
    del wish["properties"]["identityProfile"]
    poller = begin_cluster(azure, wish)
    azure.advance(60)
    with refused("LinkedAuthorizationFailed", "subnets/", base.principal):
        poller.result(30)
    assert get_cluster(azure).properties.provisioning_state == "Failed"
    assert azure.client("resource").resource_groups.check_existence(NODES)
    grant(azure, base.principal, NETWORK_CONTRIBUTOR, base.subnet)
    poller = begin_cluster(azure, wish)
    azure.advance(50)
    with refused("LinkedAuthorizationFailed"):
        poller.result(30)
    azure.advance(600)
    assert make_cluster(azure, wish).properties.provisioning_state == "Succeeded"


def test_an_identity_that_cannot_assign_the_kubelet_identity_is_refused_at_once(azure: Azure) -> None:
    base = ground(azure, grants=False)
    with refused("CustomKubeletIdentityMissingPermissionError", base.kubelet, status=400):
        begin_cluster(azure, body(base))
    with refused("CustomKubeletIdentityOnlySupportedOnUserAssignedMSICluster", status=400):
        begin_cluster(azure, {**body(base), "identity": {"type": "SystemAssigned"}})


def test_a_second_operation_is_refused_during_the_first(azure: Azure) -> None:
    poller = begin_cluster(azure)
    with refused("OperationNotAllowed", "Another operation (Creating) is in progress", status=409):
        begin_cluster(azure)
    with refused("OperationNotAllowed", "(Creating)", status=409):
        begin_pool(azure)
    azure.advance(400)
    etag = poller.result(30).e_tag
    begin_pool(azure)
    with refused("OperationNotAllowed", "Another agentpool operation (gpu - Creating)", status=409):
        begin_cluster(azure)
    azure.advance(900)
    with refused("InvalidParameter", "['gpu', 'system']", status=400):
        begin_cluster(azure)
    wish = body()
    del wish["properties"]["agentPoolProfiles"]
    make_cluster(azure, wish)
    with refused("EtagMismatch", status=409):
        begin_cluster(azure, wish, headers={"If-Match": etag})


def test_quota_sizes_and_zones_are_checked_at_once(azure: Azure) -> None:
    azure.control(quotas={"eastus/standardDSv5Family": 4})
    with refused("QuotaExceeded", "requested 8, remaining 4", "standardDSv5Family", status=400):
        begin_cluster(azure)
    azure.control(quotas=QUOTAS, restrictions={f"{D4}/eastus": "NotAvailableForSubscription"})
    with refused("SkuNotAvailable", status=400):
        begin_cluster(azure)
    azure.control(quotas={"eastus/standardDSv5Family": 1000}, restrictions={f"{D4}/eastus": None})
    with refused("AvailabilityZoneNotSupported", "'4'", status=400):
        begin_cluster(azure, body(pools=[system(availabilityZones=["4"])]))
    with refused("VMSizeNotSupported", status=400):
        begin_cluster(azure, body(pools=[system(vmSize="Standard_Moon")]))


def test_missing_capacity_fails_the_cluster_later(azure: Azure) -> None:
    azure.control(capacity={f"{D4}/eastus-1/on-demand": 1})
    poller = begin_cluster(azure, body(pools=[system(availabilityZones=["1"])]))
    azure.advance(400)
    with refused("ZonalAllocationFailed", "vmss"):
        poller.result(30)
    made = get_cluster(azure)
    assert made.properties.provisioning_state == "Failed"
    assert made.properties.agent_pool_profiles[0].provisioning_state == "Failed"
    assert "virtualMachineScaleSets" in things(azure)
    azure.control(capacity={f"{D4}/eastus-1/on-demand": None})
    wish = body(pools=[system(availabilityZones=["1"])])
    assert make_cluster(azure, wish).properties.provisioning_state == "Succeeded"


def test_an_overloaded_region_can_be_simulated(azure: Azure) -> None:
    fault = {"kind": "error", "code": "AksCapacityHeavyUsage", "status": 400, "message": "eastus is busy"}
    azure.control(faults=[{**fault, "service": "containerservice"}])
    with refused("AksCapacityHeavyUsage", status=400):
        begin_cluster(azure)


def test_a_deletion_preempts_the_creation(azure: Azure) -> None:
    poller = begin_cluster(azure)
    azure.advance(60)
    deletion = delete_cluster(azure)
    with refused("AKSOperationPreemptedByDelete"):
        poller.result(30)
    azure.advance(400)
    deletion.result(30)
    assert not azure.client("resource").resource_groups.check_existence(NODES)


def test_a_deletion_preempts_the_operation_of_a_pool(azure: Azure) -> None:
    make_cluster(azure)
    pool = begin_pool(azure)
    deletion = delete_cluster(azure)
    with refused("AKSOperationPreemptedByDelete"):
        pool.result(30)
    azure.advance(400)
    deletion.result(30)


def test_an_async_failure_leaves_the_cluster_and_its_group(azure: Azure) -> None:
    azure.control(faults=[{"kind": "async", "code": "InternalOperationError", "message": "broken"}])
    poller = begin_cluster(azure)
    azure.advance(400)
    with refused("InternalOperationError"):
        poller.result(30)
    assert get_cluster(azure).properties.provisioning_state == "Failed"
    assert azure.client("resource").resource_groups.check_existence(NODES)
    azure.advance(1)
    deletion = delete_cluster(azure)
    azure.advance(400)
    deletion.result(30)
    assert [entry.rpartition("/")[2] for entry in azure.state()] == [GROUP]


def test_reads_and_writes_of_a_cluster_are_rate_limited(azure: Azure) -> None:
    path = f"{azure.id('Microsoft.ContainerService/managedClusters', NAME)}?api-version=2026-08-01"
    for method, burst, wait in (("GET", 60, 1), ("PUT", 20, 60)):
        answers = [azure.raw(method, path, {} if method == "PUT" else None) for _ in range(burst + 1)]
        assert 429 not in [status for status, _, _ in answers[:-1]]
        status, headers, told = answers[-1]
        assert (status, told["error"]["code"], headers["retry-after"]) == (429, "Throttled", str(wait))
    azure.advance(1)
    with refused("ResourceNotFound", status=404):
        get_cluster(azure)


def test_a_deletion_blocked_by_a_dependent_fails_later(azure: Azure) -> None:
    make_cluster(azure)
    address = next(azure.client("network").public_ip_addresses.list(NODES))
    front = {"name": "taken", "properties": {"publicIPAddress": {"id": address.id}}}
    nat = {"location": LOCATION, "sku": {"name": "Standard"}}
    balancers = azure.client("network").load_balancers
    azure.done(balancers.begin_delete, NODES, "kubernetes", seconds=60)
    wish = {**nat, "properties": {"frontendIPConfigurations": [front]}}
    azure.done(balancers.begin_create_or_update, GROUP, "mine", wish, seconds=60)
    poller = delete_cluster(azure)
    azure.advance(400)
    with refused("PublicIPAddressCannotBeDeleted", address.id):
        poller.result(30)
    assert get_cluster(azure).properties.provisioning_state == "Failed"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"dnsPrefix": None}, "InvalidParameter"),
        ({"dnsPrefix": "-one"}, "InvalidParameter"),
        ({"kubernetesVersion": "1.20"}, "K8sVersionNotSupported"),
        ({"kubernetesVersion": "1.32"}, "K8sVersionNotSupported"),
        ({"supportPlan": "AKSLongTermSupport"}, "LTSRequiresPremiumTier"),
        (
            {"networkProfile": {"networkPlugin": "kubenet", "networkPluginMode": "overlay"}},
            "InvalidParameter",
        ),
        ({"networkProfile": {"networkPolicy": "cilium"}}, "InvalidParameter"),
        ({"networkProfile": {"podCidr": "10.244.0.1/16"}}, "InvalidPodCidr"),
        ({"networkProfile": {"serviceCidr": "10.1.0.0/16"}}, "InvalidParameter"),
        (
            {"networkProfile": {"serviceCidr": "10.1.0.0/16", "dnsServiceIP": "10.1.0.1"}},
            "InvalidDNSServiceIP",
        ),
        ({"networkProfile": {"outboundType": "userAssignedNATGateway"}}, "InvalidOutboundType"),
        (
            {"apiServerAccessProfile": {"enablePrivateCluster": True, "authorizedIPRanges": ["1.2.3.4/32"]}},
            "InvalidParameter",
        ),
        ({"apiServerAccessProfile": {"authorizedIPRanges": ["moon"]}}, "InvalidAuthorizedIPRanges"),
        ({"aadProfile": {"managed": False, "enableAzureRBAC": True}}, "AzureRBACRequiresManagedAAD"),
        ({"securityProfile": {"workloadIdentity": {"enabled": True}}}, "OIDCIssuerRequired"),
        ({"nodeResourceGroup": "x" * 81}, "InvalidNodeResourceGroupName"),
        ({"nodeResourceGroup": GROUP}, "NodeResourceGroupAlreadyExists"),
        ({"networkProfile": {"networkPlugin": "calico"}}, "UnmarshalError"),
        ({"noSuchThing": 1}, "UnmarshalError"),
    ],
)
def test_an_invalid_cluster_is_refused(azure: Azure, changes: dict[str, Any], code: str) -> None:
    with refused(code, status=400):
        begin_cluster(azure, body(**changes))


@pytest.mark.parametrize(
    ("pools", "code"),
    [
        ([system(mode="User")], "InvalidParameter"),
        ([system(scaleSetPriority="Spot")], "InvalidParameter"),
        ([system(count=0)], "InvalidParameter"),
        ([system(), system()], "InvalidParameter"),
        ([system(name="System")], "InvalidParameter"),
    ],
)
def test_a_cluster_has_a_system_pool(azure: Azure, pools: list[dict[str, Any]], code: str) -> None:
    with refused(code, status=400):
        begin_cluster(azure, body(pools=pools))


def test_the_ranges_of_a_cluster_must_not_overlap_its_network(azure: Azure) -> None:
    base = ground(azure)
    wish = body(base, networkProfile={"serviceCidr": "10.0.128.0/20", "dnsServiceIP": "10.0.128.10"})
    with refused("ServiceCidrOverlapExistingSubnetsCidr", status=400):
        begin_cluster(azure, wish)
    with refused("PodCidrOverlapExistingSubnetsCidr", status=400):
        begin_cluster(azure, body(base, networkProfile={"podCidr": "10.0.0.0/12"}))
    with refused("InsufficientSubnetSize", status=400):
        begin_cluster(azure, body(base, pools=[system(count=300)]))


@pytest.mark.parametrize(
    "changes",
    [
        {"dnsPrefix": "two"},
        {"nodeResourceGroup": "other"},
        {"networkProfile": {"podCidr": "10.99.0.0/16"}},
        {"networkProfile": {"outboundType": "none"}},
        {"apiServerAccessProfile": {"enablePrivateCluster": True}},
        {"agentPoolProfiles": [system(count=3)]},
    ],
)
def test_immutable_properties_are_refused_in_updates(azure: Azure, changes: dict[str, Any]) -> None:
    make_cluster(azure)
    wish = body()
    wish["properties"] |= changes
    with refused("PropertyChangeNotAllowed", status=400):
        begin_cluster(azure, wish)


def test_a_put_updates_mutable_properties_and_keeps_omitted_ones(azure: Azure, aks: Any) -> None:
    before = make_cluster(azure, body(oidcIssuerProfile={"enabled": True})).properties
    assert before.oidc_issuer_profile.issuer_url.startswith("https://eastus.oic.prod-aks.azure.com/")
    changed = make_cluster(azure, {**body(disableLocalAccounts=True), "tags": {"owner": "you"}})
    assert (changed.tags, changed.properties.disable_local_accounts) == ({"owner": "you"}, True)
    assert changed.properties.oidc_issuer_profile.issuer_url == before.oidc_issuer_profile.issuer_url
    with refused("OIDCIssuerFeatureCannotBeDisabled", status=400):
        begin_cluster(azure, body(oidcIssuerProfile={"enabled": False}))
    clusters = aks.managed_clusters
    tagged = azure.done(clusters.begin_update_tags, GROUP, NAME, {"tags": {"a": "b"}})
    assert (tagged.tags, tagged.properties.disable_local_accounts) == ({"a": "b"}, True)


def test_versions_are_upgraded_one_minor_version_at_a_time(azure: Azure, aks: Any) -> None:
    offered = {
        row.version: row for row in aks.managed_clusters.list_kubernetes_versions(LOCATION).values_property
    }
    assert [name for name, row in offered.items() if row.is_default] == ["1.35"]
    assert offered["1.37"].is_preview
    assert offered["1.32"].capabilities.support_plan == ["AKSLongTermSupport"]
    made = make_cluster(azure, body(kubernetesVersion="1.34"))
    assert (made.properties.kubernetes_version, made.properties.current_kubernetes_version) == (
        "1.34",
        "1.34.3",
    )
    with refused("OperationNotAllowed", "Available upgrades: 1.35", status=400):
        begin_cluster(azure, body(kubernetesVersion="1.36"))
    made = make_cluster(azure, body(kubernetesVersion="1.35"))
    assert made.properties.current_kubernetes_version == "1.35.3"
    assert made.properties.agent_pool_profiles[0].current_orchestrator_version == "1.34.3"
    with refused("OperationNotAllowed", "downgrades", status=400):
        begin_cluster(azure, body(kubernetesVersion="1.34"))
    profile = aks.managed_clusters.get_upgrade_profile(GROUP, NAME).properties.control_plane_profile
    assert [item.kubernetes_version for item in profile.upgrades] == ["1.36.1", "1.36.3"]


def test_an_operation_can_be_aborted(azure: Azure, aks: Any) -> None:
    poller = begin_cluster(azure)
    azure.advance(30)
    azure.done(aks.managed_clusters.begin_abort_latest_operation, GROUP, NAME, seconds=60)
    assert poller.status() in ("InProgress", "Canceled")
    assert get_cluster(azure).properties.provisioning_state == "Canceled"
    azure.advance(400)
    assert get_cluster(azure).properties.provisioning_state == "Canceled"
    assert make_cluster(azure).properties.provisioning_state == "Succeeded"


def test_credentials_use_entra_id_if_enabled(azure: Azure, aks: Any) -> None:
    poller = begin_cluster(azure, body(aadProfile={"managed": True}, disableLocalAccounts=True))
    with refused("OperationNotAllowed", status=409):
        aks.managed_clusters.list_cluster_user_credentials(GROUP, NAME)
    azure.advance(400)
    host = poller.result(30).properties.fqdn
    told = aks.managed_clusters.list_cluster_user_credentials(GROUP, NAME, format="exec").kubeconfigs
    config = json.loads(bytes(told[0].value))
    assert config["clusters"][0]["cluster"]["server"] == f"https://{host}:443"
    assert config["users"][0]["user"]["exec"]["command"] == "kubelogin"
    with refused("BadRequest", "disable local accounts", status=400):
        aks.managed_clusters.list_cluster_admin_credentials(GROUP, NAME)


def test_a_cluster_without_local_accounts_and_entra_id_has_no_credentials(azure: Azure, aks: Any) -> None:
    make_cluster(azure, body(disableLocalAccounts=True))
    with refused("BadRequest", "disable local accounts", status=400):
        aks.managed_clusters.list_cluster_user_credentials(GROUP, NAME)


def test_aks_needs_several_registered_resource_providers(azure: Azure) -> None:
    azure.control(unregistered=["Microsoft.Compute"])
    with refused("MissingSubscriptionRegistration", "Microsoft.Compute", status=409):
        begin_cluster(azure)


def test_deleting_a_group_deletes_its_cluster_and_the_node_resource_group(azure: Azure) -> None:
    make_cluster(azure, body(ground(azure)))
    make_pool(azure, vnetSubnetID=get_cluster(azure).properties.agent_pool_profiles[0].vnet_subnet_id)
    azure.done(azure.client("resource").resource_groups.begin_delete, GROUP, seconds=1200)
    assert (azure.state(), azure.pending()) == ([], [])


def test_a_system_assigned_identity_is_created_with_the_cluster(azure: Azure) -> None:
    made = make_cluster(azure)
    kubelet = made.properties.identity_profile["kubeletidentity"]
    assert kubelet.resource_id.startswith(f"/subscriptions/{azure.subscription}/resourceGroups/{NODES}/")
    assert made.identity.principal_id not in (None, kubelet.object_id)


def test_nodes_behind_a_nat_gateway_need_its_address_authorized_to_register(azure: Azure) -> None:
    base = ground(azure)
    mine = ["203.0.113.0/24"]
    with refused("CreateVMSSAgentPoolFailed", "VMExtensionProvisioningError"):
        make_cluster(azure, body(base, apiServerAccessProfile={"authorizedIPRanges": mine}))
    assert get_cluster(azure).properties.provisioning_state == "Failed"
    address = azure.client("network").public_ip_addresses.get(GROUP, "ip").ip_address
    both = [*mine, f"{address}/32"]
    made = make_cluster(azure, body(base, apiServerAccessProfile={"authorizedIPRanges": both}))
    assert made.properties.provisioning_state == "Succeeded"


def test_the_address_of_a_load_balancer_needs_no_authorization(azure: Azure) -> None:
    ranges = {"authorizedIPRanges": ["203.0.113.0/24"]}
    made = make_cluster(azure, body(apiServerAccessProfile=ranges))
    assert made.properties.provisioning_state == "Succeeded"
