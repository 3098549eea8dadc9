"""What machines there are, how many may be had, reservations, and what a cluster's controllers leave."""

from __future__ import annotations

from typing import Any

import pytest
from google.api_core.exceptions import NotFound

from tests.sandbox.gcp.support import PROJECT, REGION, ZONE, Gcp
from tests.sandbox.gcp.support_compute import Compute, turned_down
from tests.sandbox.gcp.support_gke import done, pool, ready

GPUS = "a3-highgpu-8g"
CLUSTER = f"projects/{PROJECT}/locations/{ZONE}/clusters/one"


@pytest.fixture
def compute(gcp: Gcp) -> Compute:
    return Compute(gcp)


def test_machine_types_are_listed_per_zone_with_their_accelerators(gcp: Gcp) -> None:
    types = gcp.compute("MachineTypes")
    found = types.get(project=PROJECT, zone=ZONE, machine_type=GPUS)
    [inside] = found.accelerators
    assert (found.guest_cpus, found.memory_mb) == (208, 1872 * 1024)
    assert (inside.guest_accelerator_type, inside.guest_accelerator_count) == ("nvidia-h100-80gb", 8)
    with pytest.raises(NotFound):
        types.get(project=PROJECT, zone="us-central1-f", machine_type=GPUS)
    with turned_down(400, "invalid", "Unknown zone"):
        types.get(project=PROJECT, zone="us-central1-z", machine_type=GPUS)
    request = {"project": PROJECT, "filter": f"name={GPUS}"}
    zones = {scope for scope, rows in types.aggregated_list(request=request) if rows.machine_types}
    assert {f"zones/{ZONE}", "zones/us-east4-a"} < zones
    assert "zones/us-central1-f" not in zones


def test_quotas_are_per_region_and_per_project_with_their_usage(compute: Compute) -> None:
    compute.gcp.control(quotas={f"{REGION}/NVIDIA_A100_GPUS": 16, "global/GPUS_ALL_REGIONS": 8})
    compute.network()
    region = compute.gcp.compute("Regions").get(project=PROJECT, region=REGION)
    project = compute.gcp.compute("Projects").get(project=PROJECT)
    limits = {row.metric: row.limit for row in (*region.quotas, *project.quotas)}
    assert (limits["NVIDIA_A100_GPUS"], limits["GPUS_ALL_REGIONS"]) == (16, 8)
    assert {row.metric: row.usage for row in project.quotas}["NETWORKS"] == 1
    with pytest.raises(ValueError, match="quota"):
        compute.gcp.control(quotas={f"{REGION}/NONE": 1})


def _reserve(compute: Compute, count: int) -> Any:
    holds = {"count": count, "instance_properties": {"machine_type": "a2-highgpu-8g"}}
    body = {"name": "held", "specific_reservation": holds, "specific_reservation_required": True}
    reservations = compute.gcp.compute("Reservations")
    return reservations.insert_unary(project=PROJECT, zone=ZONE, reservation_resource=body)


def test_a_reservation_uses_available_capacity_and_quota(compute: Compute) -> None:
    [(code, text)] = compute.done(_reserve(compute, 3))
    assert (code, text) == ("QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally.")
    compute.gcp.control(
        capacity={f"a2-highgpu-8g/{ZONE}/on-demand": 2}, quotas={"global/GPUS_ALL_REGIONS": 500}
    )
    [(code, text)] = compute.done(_reserve(compute, 3))
    assert code == "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    assert "does not have enough resources" in text
    assert compute.done(_reserve(compute, 2)) == []
    found = compute.gcp.compute("Reservations").get(project=PROJECT, zone=ZONE, reservation="held")
    assert (found.specific_reservation.count, found.specific_reservation.in_use_count) == (2, 0)
    region = compute.gcp.compute("Regions").get(project=PROJECT, region=REGION)
    assert {row.metric: row.usage for row in region.quotas}["NVIDIA_A100_GPUS"] == 16


def test_a_reservation_beyond_a_quota_fails(compute: Compute) -> None:
    compute.gcp.control(quotas={f"{REGION}/NVIDIA_A100_GPUS": 8, "global/GPUS_ALL_REGIONS": 500})
    [(code, text)] = compute.done(_reserve(compute, 2))
    assert code == "QUOTA_EXCEEDED"
    assert text == f"Quota 'NVIDIA_A100_GPUS' exceeded.  Limit: 8.0 in region {REGION}."
    assert compute.gcp.state() == []


def test_a_placement_policy_has_one_kind(compute: Compute) -> None:
    policies = compute.gcp.compute("ResourcePolicies")
    place = {"project": PROJECT, "region": REGION}
    with turned_down(400, "invalid", "Exactly one"):
        policies.insert_unary(**place, resource_policy_resource={"name": "near"})
    group = {"collocation": "COLLOCATED"}
    body = {"name": "near", "group_placement_policy": group, "description": "cloudrec:{}"}
    assert compute.done(policies.insert_unary(**place, resource_policy_resource=body)) == []
    assert [row.description for row in policies.list(**place)] == ["cloudrec:{}"]
    compute.done(policies.delete_unary(**place, resource_policy="near"))
    assert compute.gcp.state() == []


def test_resources_of_controllers_survive_the_cluster_and_are_deleted_in_order_of_use(
    compute: Compute,
) -> None:
    gcp = compute.gcp
    ready(gcp)
    kinds = ["disk", "forwarding-rule", "network-endpoint-group", "address", "health-check"]
    gcp.control(leave={"cluster": "one", "kinds": [*kinds, "placement-policy"]})
    done(gcp, gcp.gke.delete_cluster(name=CLUSTER))
    kept = {entry.split(":")[1] for entry in gcp.state("compute:")}
    assert {"disks", "forwardingRules", "targetPools", "networkEndpointGroups", "addresses"} < kept
    with turned_down(400, "resourceInUseByAnotherResource"):
        compute.networks.delete_unary(project=PROJECT, network="net")
    place = {"project": PROJECT, "region": REGION}
    [rule] = gcp.compute("ForwardingRules").list(**place)
    with turned_down(400, "resourceInUseByAnotherResource", rule.name):
        gcp.compute("TargetPools").delete_unary(**place, target_pool=rule.name)
    compute.done(gcp.compute("ForwardingRules").delete_unary(**place, forwarding_rule=rule.name))
    compute.done(gcp.compute("TargetPools").delete_unary(**place, target_pool=rule.name))
    disks = gcp.compute("Disks").aggregated_list(project=PROJECT)
    [disk] = [row for _, rows in disks for row in rows.disks]
    assert disk.labels["goog-k8s-cluster-name"] == "one"
    compute.done(gcp.compute("Disks").delete_unary(project=PROJECT, zone=ZONE, disk=disk.name))
    assert gcp.state("compute:disks") == []


def test_orphaned_resources_need_an_existing_cluster_and_a_known_kind(gcp: Gcp) -> None:
    with pytest.raises(ValueError, match="no cluster"):
        gcp.control(leave={"cluster": "none", "kinds": ["disk"]})
    with pytest.raises(ValueError, match="nothing leaves a moon"):
        gcp.control(leave={"cluster": "one", "kinds": ["moon"]})


def test_firewall_rules_of_gke_survive_the_cluster_and_block_its_network(compute: Compute) -> None:
    gcp = compute.gcp
    ready(gcp)
    done(gcp, gcp.gke.create_node_pool(parent=CLUSTER, node_pool=pool()))
    with turned_down(400, "resourceInUseByAnotherResource", "/instance"):
        compute.subnets.delete_unary(project=PROJECT, region=REGION, subnetwork="nodes")
    done(gcp, gcp.gke.delete_cluster(name=CLUSTER))
    rules = [row.name for row in compute.firewalls.list(project=PROJECT) if row.name.startswith("gke-one-")]
    assert rules
    compute.done(compute.subnets.delete_unary(project=PROJECT, region=REGION, subnetwork="nodes"))
    with turned_down(400, "resourceInUseByAnotherResource", "firewalls/gke-one-"):
        compute.networks.delete_unary(project=PROJECT, network="net")
    for name in rules:
        compute.done(compute.firewalls.delete_unary(project=PROJECT, firewall=name))
    assert compute.done(compute.networks.delete_unary(project=PROJECT, network="net")) == []
