"""What GKE refuses of disks, of networks and of maintenance policies, and what of a pool has no effect."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.cloud.compute_v1 import (
    Allowed,
    Firewall,
    Network,
    Router,
    Subnetwork,
    SubnetworkSecondaryRange,
)
from google.cloud.container_v1 import (
    MaintenanceExclusionOptions,
    MaintenancePolicy,
    NodePool,
    TimeWindow,
)

from tests.sandbox.gcp.support import PROJECT, Gcp, refused
from tests.sandbox.gcp.support_gke import PATH, done, network, pool, ready, subnetwork

H200 = {"accelerator_type": "nvidia-h200-141gb", "accelerator_count": 8}
Scope = MaintenanceExclusionOptions.Scope
Until = MaintenanceExclusionOptions.EndTimeBehavior


@pytest.fixture
def there(gcp: Gcp) -> Gcp:
    ready(gcp)
    return gcp


@pytest.mark.parametrize("disk", ["", "pd-balanced", "pd-ssd"])
def test_a_machine_type_without_persistent_disk_needs_hyperdisk(there: Gcp, disk: str) -> None:
    config = {"machine_type": "a3-ultragpu-8g", "disk_type": disk, "accelerators": [H200]}
    wish = NodePool({"name": "gpu", "locations": ["us-central1-b"], "config": config})
    with refused("INVALID_ARGUMENT", "disk type cannot be used by a3-ultragpu-8g machine type"):
        there.gke.create_node_pool(parent=PATH, node_pool=wish)
    wish.config.disk_type = "hyperdisk-balanced"
    done(there, there.gke.create_node_pool(parent=PATH, node_pool=wish))


ROCE = "us-central1-b"  # a zone with H200


def roce(gcp: Gcp, zone: str = ROCE, name: str = "roce") -> list[dict[str, str]]:
    """Nine subnetworks of a network with an RDMA profile, then one of an ordinary network."""
    made = Network(
        name=name,
        auto_create_subnetworks=False,
        network_profile=f"projects/{PROJECT}/global/networkProfiles/{zone}-vpc-roce",
    )
    gcp.compute("Networks").insert_unary(project=PROJECT, network_resource=made)
    gcp.advance(60)
    network(gcp, "second")
    nets = [(name, f"rdma-{number}") for number in range(9)] + [("second", "second")]
    for number, (net, subnet) in enumerate(nets, start=40):
        subnetwork(gcp, net, subnet, number=number, ranges=())
    return [{"network": net, "subnetwork": subnet} for net, subnet in nets]


def h200(extras: list[dict[str, str]], zone: str = ROCE) -> NodePool:
    """A pool of one A3 Ultra machine with additional networks."""
    config = {"machine_type": "a3-ultragpu-8g", "disk_type": "hyperdisk-balanced", "accelerators": [H200]}
    more = {"network_config": {"additional_node_network_configs": extras}} if extras else {}
    return NodePool({"name": "gpu", "initial_node_count": 1, "locations": [zone], "config": config, **more})


def cards(gcp: Gcp) -> list[str]:
    """The types of the interfaces of the one machine with H200."""
    (found,) = [
        each
        for each in gcp.compute("Instances").list(project=PROJECT, zone=ROCE)
        if each.machine_type.endswith("a3-ultragpu-8g")
    ]
    return [each.nic_type for each in found.network_interfaces]


def test_a_machine_with_rdma_has_as_many_rdma_cards_as_networks_for_them(there: Gcp) -> None:
    done(there, there.gke.create_node_pool(parent=PATH, node_pool=h200([])))
    assert cards(there) == ["GVNIC"]
    done(there, there.gke.delete_node_pool(name=f"{PATH}/nodePools/gpu"))
    *rdma, second = roce(there)
    done(there, there.gke.create_node_pool(parent=PATH, node_pool=h200([second, *rdma[:8]])))
    assert cards(there) == ["GVNIC"] * 2 + ["MRDMA"] * 8


def test_a_network_with_an_rdma_profile_takes_only_rdma_cards_in_its_own_zone(there: Gcp) -> None:
    *rdma, second = roce(there)
    assert there.compute("Networks").get(project=PROJECT, network="roce").mtu == 8896
    wrong = [
        (h200(rdma), "9 additional node networks of MRDMA are more than 8"),
        (h200([rdma[0], rdma[0]]), "is used by more than one interface"),
        (h200([second, second]), "is used by more than one interface"),
        (
            pool(network_config={"additional_node_network_configs": rdma[:1]}, locations=[ROCE]),
            "1 additional node networks of MRDMA are more than 0",
        ),
    ]
    for wish, words in wrong:
        with refused("INVALID_ARGUMENT", words):
            there.gke.create_node_pool(parent=PATH, node_pool=wish)
    network(there, "third")
    subnetwork(there, "third", "third", number=60, ranges=())
    with refused("INVALID_ARGUMENT", "2 additional node networks of GVNIC are more than 1"):
        third = {"network": "third", "subnetwork": "third"}
        there.gke.create_node_pool(parent=PATH, node_pool=h200([second, third]))


def test_networks_for_rdma_that_cannot_be_had_are_refused(there: Gcp) -> None:
    first, *_ = roce(there, "us-central1-a", "elsewhere")
    with refused("INVALID_ARGUMENT", 'is in zone "us-central1-a", and the node pool is not'):
        there.gke.create_node_pool(parent=PATH, node_pool=h200([first]))
    made = h200([])
    made.network_config.accelerator_network_profile = "auto"
    with refused("UNIMPLEMENTED", "makes no networks for accelerators"):
        there.gke.create_node_pool(parent=PATH, node_pool=made)
    with refused("NOT_FOUND", "networkProfiles/nowhere-vpc-roce"):
        roce(there, "nowhere", "none")


def test_a_profile_exists_in_the_zones_of_its_machine_types_with_what_it_blocks(gcp: Gcp) -> None:
    calls = gcp.compute("NetworkProfiles")
    listed = {each.name: each for each in calls.list(project=PROJECT)}
    assert f"{ROCE}-vpc-roce" in listed
    assert "us-central1-f-vpc-roce" not in listed
    found = calls.get(project=PROJECT, network_profile=f"{ROCE}-vpc-roce")
    assert (found.location.name, found.profile_type.rdma_subtype) == (ROCE, "ROCE")
    assert found.features.allow_vpc_firewall_rules == "VPC_FIREWALL_RULES_BLOCKED"
    assert list(found.features.interface_types) == ["MRDMA"]
    with refused("NOT_FOUND", "networkProfiles/us-central1-f-vpc-roce"):
        calls.get(project=PROJECT, network_profile="us-central1-f-vpc-roce")


def test_a_network_with_an_rdma_profile_has_no_feature_that_the_profile_blocks(gcp: Gcp) -> None:
    made = Network(
        name="roce",
        auto_create_subnetworks=False,
        network_profile=f"projects/{PROJECT}/global/networkProfiles/{ROCE}-vpc-roce",
    )
    gcp.compute("Networks").insert_unary(project=PROJECT, network_resource=made)
    gcp.advance(60)
    link = "global/networks/roce"
    rule = Firewall(name="open", network=link, allowed=[Allowed(I_p_protocol="all")])
    with refused("400", "VPC_FIREWALL_RULES_BLOCKED"):
        gcp.compute("Firewalls").insert_unary(project=PROJECT, firewall_resource=rule)
    with refused("400", "CLOUD_ROUTER_BLOCKED"):
        router = Router(name="out", network=link)
        gcp.compute("Routers").insert_unary(project=PROJECT, region="us-central1", router_resource=router)
    part = SubnetworkSecondaryRange(range_name="pods", ip_cidr_range="10.9.0.0/16")
    wrong = [
        (Subnetwork(secondary_ip_ranges=[part]), "us-central1", "ALIAS_IP_RANGES_BLOCKED"),
        (Subnetwork(private_ip_google_access=True), "us-central1", "PRIVATE_GOOGLE_ACCESS_BLOCKED"),
        (Subnetwork(stack_type="IPV4_IPV6"), "us-central1", "subnetworkStackTypes"),
        (Subnetwork(), "us-east1", "is in region us-central1"),
    ]
    for wish, region, words in wrong:
        wish.name, wish.network, wish.ip_cidr_range = "rdma-0", link, "10.8.0.0/24"
        with refused("400", words):
            gcp.compute("Subnetworks").insert_unary(project=PROJECT, region=region, subnetwork_resource=wish)


def policy(days: int, scope: Scope, until: Until = Until.END_TIME_BEHAVIOR_UNSPECIFIED) -> MaintenancePolicy:
    """A policy with one exclusion, which has an end time unless `days` is 0."""
    now = datetime.now(UTC)
    made = MaintenancePolicy()
    made.window.maintenance_exclusions["mine"] = TimeWindow(
        start_time=now,
        end_time=now + timedelta(days=days) if days else None,
        maintenance_exclusion_options=MaintenanceExclusionOptions(scope=scope, end_time_behavior=until),
    )
    return made


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (policy(31, Scope.NO_UPGRADES), "lasts longer than 30 days"),
        (policy(0, Scope.NO_MINOR_OR_NODE_UPGRADES), "must end after its start"),
        (policy(0, Scope.NO_UPGRADES, Until.UNTIL_END_OF_SUPPORT), "needs an end time"),
    ],
)
def test_an_exclusion_without_a_valid_end_is_refused(
    there: Gcp, wanted: MaintenancePolicy, told: str
) -> None:
    with refused("INVALID_ARGUMENT", told):
        there.gke.set_maintenance_policy(request={"name": PATH, "maintenance_policy": wanted})


def test_a_maintenance_policy_is_replaced_by_the_holder_of_its_version(there: Gcp) -> None:
    wanted = policy(0, Scope.NO_MINOR_OR_NODE_UPGRADES, Until.UNTIL_END_OF_SUPPORT)
    done(there, there.gke.set_maintenance_policy(request={"name": PATH, "maintenance_policy": wanted}))
    kept = there.gke.get_cluster(name=PATH).maintenance_policy
    assert kept.window.maintenance_exclusions["mine"].end_time > datetime.now(UTC) + timedelta(days=30)
    with refused("FAILED_PRECONDITION", "resource version"):
        there.gke.set_maintenance_policy(request={"name": PATH, "maintenance_policy": wanted})


def streaming(gcp: Gcp) -> list[str]:
    found: dict[str, list[str]] = gcp.control()["effects"]
    return [name.rpartition("/")[2] for name in found["image_streaming"]]


def test_image_streaming_needs_its_api_and_a_role_of_the_nodes_account(there: Gcp) -> None:
    _, account = there.rest("POST", f"/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "nodes-of-one"})
    there.advance(60)
    config: dict[str, Any] = {
        "machine_type": "e2-standard-4",
        "service_account": account["email"],
    }
    for name, on in (("streams", True), ("plain", False)):
        wish = NodePool({"name": name, "config": {**config, "gcfs_config": {"enabled": on}}})
        done(there, there.gke.create_node_pool(parent=PATH, node_pool=wish))
    api = "containerfilesystem.googleapis.com"
    there.control(apis={api: True})
    assert streaming(there) == []  # accepted without the role
    holder = f"/v3/projects/{PROJECT}"
    policy = there.rest("POST", f"{holder}:getIamPolicy", {})[1]
    role = "roles/serviceusage.serviceUsageConsumer"
    policy["bindings"].append({"role": role, "members": [f"serviceAccount:{account['email']}"]})
    assert there.rest("POST", f"{holder}:setIamPolicy", {"policy": policy})[0] == 200
    there.advance(600)
    assert streaming(there) == ["streams"]
    there.control(apis={api: False})
    assert streaming(there) == []
