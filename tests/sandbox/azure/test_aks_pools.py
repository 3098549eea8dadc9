"""Pools of nodes: their life, spot machines, places, what AKS refuses of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.azure.support import GROUP, LOCATION, Azure, refused
from tests.sandbox.azure.support_aks import (
    D4,
    H100,
    NAME,
    NODES,
    QUOTAS,
    T4,
    begin_pool,
    body,
    delete_pool,
    get_cluster,
    get_pool,
    grant,
    ground,
    make_cluster,
    make_pool,
    system,
)

CONTRIBUTOR, READER = "b24988ac-6180-42a0-ab88-20f7382dd24c", "acdd72a7-3385-48ef-bd42-f606fba81ae7"
SPOT: dict[str, Any] = {"scaleSetPriority": "Spot", "scaleSetEvictionPolicy": "Delete", "spotMaxPrice": -1}


@pytest.fixture(autouse=True)
def aks(azure: Azure) -> Any:
    azure.control(quotas=QUOTAS, rates={"*": [10000, 1000]})
    azure.group()
    make_cluster(azure)
    return azure.client("containerservice")


def nodes(azure: Azure, name: str = "gpu") -> list[list[str]]:
    aks = azure.client("containerservice")
    return [machine.zones for machine in aks.machines.list(GROUP, NAME, name)]


def test_a_pool_takes_minutes_until_it_has_nodes(azure: Azure, aks: Any) -> None:
    poller = begin_pool(azure, count=2, availabilityZones=["1", "2"])
    assert get_pool(azure).properties.provisioning_state == "Creating"
    azure.advance(599)
    assert get_pool(azure).properties.provisioning_state == "Creating"
    azure.advance(1)
    made = poller.result(30).properties
    assert (made.provisioning_state, made.count, made.gpu_profile.driver) == ("Succeeded", 2, "Install")
    assert sorted(nodes(azure)) == [["1"], ["2"]]
    sets = [entry for entry in azure.state() if "virtualMachineScaleSets" in entry and "-gpu-" in entry]
    assert len(sets) == 1
    delete_pool(azure)
    assert [pool.name for pool in aks.agent_pools.list(GROUP, NAME)] == ["system"]
    assert not [entry for entry in azure.state() if "-gpu-" in entry]


def test_spot_nodes_have_their_label_and_taint(azure: Azure) -> None:
    made = make_pool(azure, nodeTaints=["nvidia.com/gpu=present:NoSchedule"], **SPOT).properties
    mark = "kubernetes.azure.com/scalesetpriority"
    assert made.node_labels == {mark: "spot"}
    assert made.node_taints == ["nvidia.com/gpu=present:NoSchedule", f"{mark}=spot:NoSchedule"]
    assert made.spot_max_price == -1


def test_the_last_system_pool_cannot_be_deleted(azure: Azure) -> None:
    with refused("OperationNotAllowed", "There has to be at least one system agent pool", status=400):
        delete_pool(azure, "system")
    with refused("OperationNotAllowed", "There has to be at least one system agent pool", status=400):
        begin_pool(azure, "system", mode="User", vmSize=D4)
    make_pool(azure, "second", mode="System", vmSize=D4)
    delete_pool(azure, "system")


def test_one_pool_operation_runs_at_a_time(azure: Azure) -> None:
    make_pool(azure, "other")
    poller = begin_pool(azure)
    for attempt in (lambda: begin_pool(azure, "third"), lambda: delete_pool(azure, "other")):
        with refused("OperationNotAllowed", "Another agentpool operation (gpu - Creating)", status=409):
            attempt()
    azure.advance(900)
    poller.result(30)


@pytest.mark.parametrize("name", ["Gpu", "1gpu", "gpu-one", "abcdefghijklm"])
def test_a_pool_name_is_short_and_alphanumeric(azure: Azure, name: str) -> None:
    with refused("InvalidParameter", f"'{name}'", status=400):
        begin_pool(azure, name)


def test_pods_with_a_disruption_budget_block_the_deletion_of_a_pool(azure: Azure, aks: Any) -> None:
    make_pool(azure)
    azure.control(blocked_drains=["gpu"])
    with refused("UnsatisfiablePDB"):
        delete_pool(azure)
    assert get_pool(azure).properties.provisioning_state == "Failed"
    with refused("UnsatisfiablePDB"):
        azure.done(aks.agent_pools.begin_upgrade_node_image_version, GROUP, NAME, "gpu")
    delete_pool(azure, ignore_pod_disruption_budget=True)
    assert not [entry for entry in azure.state() if entry.endswith("/gpu")]


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("vmSize", H100),
        ("maxPods", 30),
        ("osDiskSizeGB", 512),
        ("availabilityZones", ["1"]),
        ("scaleSetPriority", "Spot"),
        ("enableNodePublicIP", True),
        ("gpuProfile", {"driver": "None"}),
    ],
)
def test_immutable_properties_are_refused_in_updates(azure: Azure, member: str, value: object) -> None:
    make_pool(azure)
    with refused("PropertyChangeNotAllowed", member, status=400):
        begin_pool(azure, "gpu", **{member: value})


def test_price_and_market_are_immutable(azure: Azure) -> None:
    make_pool(azure, **SPOT)
    with refused("PropertyChangeNotAllowed", "spotMaxPrice", status=400):
        begin_pool(azure, **{**SPOT, "spotMaxPrice": 3.5})
    with refused("PropertyChangeNotAllowed", "scaleSetEvictionPolicy", status=400):
        begin_pool(azure, **{**SPOT, "scaleSetEvictionPolicy": "Deallocate"})


def test_a_pool_is_scaled_up_and_down(azure: Azure) -> None:
    make_pool(azure, nodeLabels={"a": "b"})
    assert make_pool(azure, count=3).properties.node_labels == {"a": "b"}
    assert len(nodes(azure)) == 3
    make_pool(azure, count=0)
    assert nodes(azure) == []


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"availabilityZones": ["1"]}, "ZonalAllocationFailed"),
        ({}, "AllocationFailed"),
    ],
)
def test_missing_capacity_fails_a_pool_later(azure: Azure, properties: dict[str, Any], code: str) -> None:
    place = "eastus-1" if properties else "eastus"
    azure.control(capacity={f"{T4}/{place}/on-demand": 1})
    poller = begin_pool(azure, count=2, **properties)
    azure.advance(900)
    with refused(code):
        poller.result(30)
    assert get_pool(azure).properties.provisioning_state == "Failed"
    assert get_cluster(azure).properties.provisioning_state == "Succeeded"
    delete_pool(azure)


def test_a_failed_scale_up_keeps_the_nodes_of_a_pool(azure: Azure) -> None:
    azure.control(capacity={f"{T4}/eastus/spot": 1})
    make_pool(azure, **SPOT)
    poller = begin_pool(azure, count=3, **SPOT)
    azure.advance(900)
    with refused("AllocationFailed"):
        poller.result(30)
    assert (get_pool(azure).properties.count, len(nodes(azure))) == (1, 1)


def test_spot_machines_have_a_separate_quota(azure: Azure) -> None:
    azure.control(quotas={"lowPriorityCores": 4, "eastus/Standard NCASv3_T4 Family": 0})
    with refused("QuotaExceeded", "requested 4, remaining 0", status=400):
        begin_pool(azure)
    with refused("QuotaExceeded", "requested 8, remaining 4", "lowPriorityCores", status=400):
        begin_pool(azure, count=2, **SPOT)
    make_pool(azure, **SPOT)


def test_capacity_in_a_proximity_placement_group_is_lower(azure: Azure) -> None:
    groups = azure.client("compute").proximity_placement_groups
    group = groups.create_or_update(GROUP, "near", {"location": LOCATION}).id
    with refused("InvalidParameter", "at most one availability zone", status=400):
        begin_pool(azure, proximityPlacementGroupID=group, availabilityZones=["1", "2"])
    with refused("InvalidParameter", "no proximity placement group", status=400):
        begin_pool(azure, proximityPlacementGroupID=f"{group}x")
    azure.control(capacity={f"{T4}/eastus-1/on-demand": 0})
    poller = begin_pool(azure, proximityPlacementGroupID=group, availabilityZones=["1"])
    azure.advance(900)
    with refused("OverconstrainedZonalAllocationRequest"):
        poller.result(30)


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"count": 1001}, "InvalidParameter"),
        ({"minCount": 1}, "InvalidParameter"),
        ({"enableAutoScaling": True, "minCount": 2, "maxCount": 3}, "InvalidParameter"),
        ({"maxPods": 5}, "InvalidMaxPods"),
        ({"spotMaxPrice": -1}, "InvalidParameter"),
        ({**SPOT, "mode": "System"}, "InvalidParameter"),
        ({**SPOT, "spotMaxPrice": 0}, "InvalidParameter"),
        ({**SPOT, "upgradeSettings": {"maxSurge": "1"}}, "InvalidParameter"),
        ({"nodeLabels": {"kubernetes.azure.com/mine": "1"}}, "InvalidParameter"),
        ({"nodeLabels": {"a": "not a value"}}, "InvalidParameter"),
        ({"nodeTaints": ["nvidia.com/gpu"]}, "TaintInvalidParameter"),
        ({"vmSize": D4, "gpuProfile": {"driver": "Install"}}, "InvalidParameter"),
        ({"gpuProfile": {"nvidia": {"managementMode": "Managed"}}}, "PreviewFeatureNotRegistered"),
        ({"availabilityZones": ["4"]}, "AvailabilityZoneNotSupported"),
        ({"orchestratorVersion": "1.36"}, "NodePoolMcVersionIncompatible"),
        ({"capacityReservationGroupID": "/none"}, "InvalidParameter"),
        ({"scaleSetPriority": "Spotty"}, "UnmarshalError"),
    ],
)
def test_an_invalid_pool_is_refused(azure: Azure, properties: dict[str, Any], code: str) -> None:
    with refused(code, status=400):
        begin_pool(azure, **properties)


def test_a_reservation_needs_a_contributor_of_its_resource_group(azure: Azure) -> None:
    compute = azure.client("compute")
    group = compute.capacity_reservation_groups.create_or_update(
        GROUP, "held", {"location": LOCATION, "zones": ["1"]}
    )
    wish = {"location": LOCATION, "zones": ["1"], "sku": {"name": T4, "capacity": 1}}
    azure.done(compute.capacity_reservations.begin_create_or_update, GROUP, "held", "one", wish)
    scope = str(group.id).partition("/providers/")[0]
    principal = get_cluster(azure).identity.principal_id
    given: dict[str, Any] = {"availabilityZones": ["1"], "capacityReservationGroupID": group.id}
    action = "Microsoft.Compute/capacityReservationGroups/deploy/action"
    for role in (None, READER, CONTRIBUTOR):
        if role is not None:
            grant(azure, principal, role, scope)
        with refused("LinkedAuthorizationFailed", action, status=403):
            begin_pool(azure, **given)  # a new role does not count yet
        azure.advance(600)
        if role == READER:
            with refused("LinkedAuthorizationFailed", action, status=403):
                begin_pool(azure, **given)
    assert make_pool(azure, **given).properties.capacity_reservation_group_id == group.id


def test_a_pool_must_be_in_the_network_of_its_cluster(azure: Azure, aks: Any) -> None:
    azure.done(aks.managed_clusters.begin_delete, GROUP, NAME)
    base = ground(azure)
    make_cluster(azure, body(base, pools=[system()]))
    with refused("AgentPoolVnetMismatch", status=400):
        begin_pool(azure)
    with refused("SubnetNotFound", status=400):
        begin_pool(azure, vnetSubnetID=f"{base.subnet}x")
    with refused("InsufficientSubnetSize", status=400):
        begin_pool(azure, vnetSubnetID=base.subnet, count=250)
    make_pool(azure, vnetSubnetID=base.subnet)


def test_a_failed_cluster_accepts_no_pool(azure: Azure, aks: Any) -> None:
    azure.done(aks.managed_clusters.begin_delete, GROUP, NAME)
    azure.control(faults=[{"kind": "async", "code": "InternalOperationError", "message": "broken"}])
    with refused("InternalOperationError"):
        make_cluster(azure)
    with refused("OperationNotAllowed", "Failed", status=400):
        begin_pool(azure)


def test_infiniband_needs_its_feature_registered_before_the_pool(azure: Azure) -> None:
    feature = "Microsoft.Features/providers/Microsoft.ContainerService/features/AKSInfinibandSupport"
    make_pool(azure, "without", vmSize=H100)
    path = f"/subscriptions/{azure.subscription}/providers/{feature}/register?api-version=2021-07-01"
    assert azure.raw("POST", path)[0] == 200
    azure.advance(600)
    make_pool(azure, "early", vmSize=H100)
    azure.client("resource").providers.register("Microsoft.ContainerService")
    azure.advance(60)
    make_pool(azure, "with", vmSize=H100)
    told = {name.rpartition("/")[2]: value for name, value in azure.control()["infiniband"].items()}
    assert told == {"without": False, "early": False, "with": True}


def test_the_operation_of_a_pool_can_be_aborted(azure: Azure, aks: Any) -> None:
    begin_pool(azure)
    azure.done(aks.agent_pools.begin_abort_latest_operation, GROUP, NAME, "gpu", seconds=60)
    assert get_pool(azure).properties.provisioning_state == "Canceled"
    azure.advance(900)
    assert get_pool(azure).properties.provisioning_state == "Canceled"
    delete_pool(azure)


def test_a_pool_cannot_be_newer_than_its_cluster(azure: Azure) -> None:
    wish = body(kubernetesVersion="1.36")
    del wish["properties"]["agentPoolProfiles"]
    make_cluster(azure, wish)
    assert make_pool(azure, "system", mode="System", vmSize=D4, count=2).properties.provisioning_state
    made = make_pool(azure, "system", mode="System", vmSize=D4, count=2, orchestratorVersion="1.36")
    assert made.properties.current_orchestrator_version == "1.36.3"


def test_scale_sets_of_aks_cannot_be_changed_directly(azure: Azure) -> None:
    sets = azure.client("compute").virtual_machine_scale_sets
    (found,) = sets.list(NODES)
    assert (found.sku.name, found.sku.capacity) == (D4, 2)
    wish = {"location": LOCATION, "sku": {"name": D4, "capacity": 3}}
    with refused("OperationNotAllowed", found.name, status=400):
        sets.begin_create_or_update(NODES, found.name, wish)
