"""What is asked of GKE, held against the SDK's own messages: they refuse what they do not know."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud.container_v1.types import Cluster, NodePool, StatusCondition

from cloudrec.engine.graph import Graph, Resource
from cloudrec.providers.gcp import (
    cluster,
    cluster_model,
    cpu_nodes,
    gke,
    leftovers,
    nodes,
    placement,
    pool_model,
)
from cloudrec.providers.gcp.layout import Layout
from tests.unit.providers_gcp.support import described, layout

ACCOUNT = "nodes@a-project.iam.gserviceaccount.com"
PARTS = (leftovers, cluster, placement, nodes)
NEWEST = "1.35.8-gke.1225000"


def side(of: Layout) -> dict[str, Resource]:
    return {resource.key: resource for part in PARTS for resource in part.resources(of)}


def pool(way: int = 0, version: str = NEWEST, **given: Any) -> NodePool:
    of = side(layout(**given))["gpu-nodes/t"].candidates[way]
    networks = [(f"networks/{number}", f"subnetworks/{number}") for number in range(8)]
    body = pool_model.gpu(
        of.properties, labels={"l": "v"}, service_account=ACCOUNT, networks=networks, version=version
    )
    return NodePool(body)


def new_cluster(**given: Any) -> Cluster:
    of = side(layout(**given))["cluster/t"].properties
    first = cpu_nodes.body_of(of["first_pool"], ACCOUNT)
    body = cluster_model.cluster(of, name="c", labels={}, network="n", subnetwork="s", pool=first)
    return Cluster(body)


@pytest.mark.parametrize(
    "types", [("a2-highgpu-8g",), ("a3-megagpu-8g", "a3-highgpu-8g"), ("g2-standard-4",)]
)
def test_the_whole_graph_holds_together_whatever_the_machines(types: tuple[str, ...]) -> None:
    of = layout(
        types=types, zones=("us-central1-a", "us-central1-b"), nodes=4, capacity="spot-first", flex_start=True
    )
    graph = Graph.of([*described(of).values(), *side(of).values()])
    assert len(graph.resources["gpu-nodes/t"].candidates) == 6 * len(types)


def test_a_cluster_is_private_and_lets_nobody_in_without_iam() -> None:
    made = new_cluster()
    ends = made.control_plane_endpoints_config
    assert made.network_config.default_enable_private_nodes
    assert (ends.dns_endpoint_config.allow_external_traffic, ends.ip_endpoints_config.enabled) == (
        True,
        False,
    )
    assert made.network_config.datapath_provider.name == "ADVANCED_DATAPATH"
    assert made.workload_identity_config.workload_pool == "a-project.svc.id.goog"
    assert made.shielded_nodes.enabled
    assert not made.legacy_abac.enabled
    assert made.addons_config.gcs_fuse_csi_driver_config.enabled
    assert made.release_channel.channel.name == "REGULAR"
    assert made.database_encryption.key_name == ""


def test_a_cluster_with_networks_named_is_reached_from_there_alone() -> None:
    ends = new_cluster(authorized_networks=["203.0.113.0/24"]).control_plane_endpoints_config
    networks = ends.ip_endpoints_config.authorized_networks_config
    assert not ends.dns_endpoint_config.allow_external_traffic
    assert ends.ip_endpoints_config.enable_public_endpoint
    assert networks.enabled
    assert [block.cidr_block for block in networks.cidr_blocks] == ["203.0.113.0/24"]
    assert not networks.gcp_public_cidrs_access_enabled


def test_only_machines_with_cards_for_gpus_make_it_a_cluster_of_many_networks() -> None:
    assert not new_cluster().network_config.enable_multi_networking
    assert new_cluster(types=("a2-highgpu-8g", "a3-highgpu-8g")).network_config.enable_multi_networking


def test_what_is_asked_for_by_a_setting_is_in_the_cluster() -> None:
    key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    made = new_cluster(kms_key=key, lustre_gib=36000, lustre_throughput=250, kubernetes_version="1.34")
    assert (made.database_encryption.key_name, made.database_encryption.state.name) == (key, "ENCRYPTED")
    assert made.addons_config.lustre_csi_driver_config.enabled
    assert made.initial_cluster_version == "1.34"


def test_a_cluster_is_born_with_nodes_that_have_no_gpus() -> None:
    (first,) = new_cluster(cpu_nodes=3).node_pools
    assert (first.name, first.initial_node_count, list(first.locations)) == ("cpu", 3, ["us-central1-a"])
    assert first.config.service_account == ACCOUNT
    assert not first.config.accelerators
    assert first.network_config.enable_private_nodes


def test_the_nodes_of_a_regional_cluster_are_in_each_of_its_zones() -> None:
    zones = ("us-central1-f", "us-central1-a")
    (first,) = new_cluster(regional=True, cpu_nodes=3, zones=zones).node_pools
    assert (first.initial_node_count, list(first.locations)) == (2, sorted(zones))


def test_a_pool_is_made_without_nodes_in_one_zone() -> None:
    made = pool(nodes=4)
    assert (made.initial_node_count, list(made.locations)) == (0, ["us-central1-a"])
    (gpus,) = made.config.accelerators
    assert (gpus.accelerator_type, gpus.accelerator_count) == ("nvidia-tesla-a100", 8)
    assert gpus.gpu_driver_installation_config.gpu_driver_version.name == "LATEST"
    assert [(taint.key, taint.effect.name) for taint in made.config.taints] == [
        ("nvidia.com/gpu", "NO_SCHEDULE")
    ]
    assert made.config.workload_metadata_config.mode.name == "GKE_METADATA"
    assert made.config.reservation_affinity.consume_reservation_type.name == "NO_RESERVATION"
    assert made.config.fast_socket.enabled
    assert made.config.gvnic.enabled
    assert not made.config.spot
    assert made.upgrade_settings.max_surge == 0


def test_many_nodes_of_one_zone_stand_close_together_and_a_single_one_needs_not() -> None:
    assert (pool(nodes=2).placement_policy.type_.name, pool(nodes=2).placement_policy.policy_name) == (
        "COMPACT",
        "cloudrec-t-us-central1-a",
    )
    assert not pool(nodes=1).placement_policy.policy_name
    assert not pool(nodes=2, compact=False).placement_policy.policy_name
    assert not pool(nodes=2, types=("g2-standard-4",)).placement_policy.policy_name


@pytest.mark.parametrize(
    ("machine", "count"), [("a3-highgpu-8g", 4), ("a3-megagpu-8g", 8), ("a2-highgpu-8g", 0)]
)
def test_each_card_for_the_gpus_is_in_a_network_of_its_own(machine: str, count: int) -> None:
    made = pool(types=(machine,))
    cards = made.network_config.additional_node_network_configs
    assert [(card.network, card.subnetwork) for card in cards] == [
        (f"networks/{number}", f"subnetworks/{number}") for number in range(count)
    ]


def test_local_disks_hold_scratch_files_where_a_machine_has_them() -> None:
    def count(machine: str) -> int:
        return int(pool(types=(machine,)).config.ephemeral_storage_local_ssd_config.local_ssd_count)

    assert (count("a3-highgpu-8g"), count("a2-ultragpu-4g"), count("a2-highgpu-8g")) == (16, 4, 0)


@pytest.mark.parametrize(
    ("version", "seconds"),
    [("1.35.0-gke.1170999", 0), ("1.35.0-gke.1171000", 120), (NEWEST, 120), ("1.34.9-gke.1", 0)],
)
def test_spot_nodes_get_a_longer_notice_where_gke_can_give_one(version: str, seconds: int) -> None:
    made = pool(capacity="spot", version=version)
    assert made.config.spot
    assert made.config.kubelet_config.shutdown_grace_period_seconds == seconds


def test_the_queue_is_a_pool_that_grows_when_pods_ask_and_whose_nodes_end() -> None:
    made = pool(1, flex_start=True, nodes=3, max_run_duration="2d")
    assert made.config.flex_start
    assert made.config.max_run_duration.total_seconds() == 2 * 86400
    assert (made.autoscaling.enabled, made.autoscaling.total_max_node_count) == (True, 3)
    assert not made.management.auto_repair
    assert not made.placement_policy.policy_name


def test_reserved_nodes_come_from_their_reservation_alone() -> None:
    made = pool(reservation="projects/other/reservations/ours")
    affinity = made.config.reservation_affinity
    assert affinity.consume_reservation_type.name == "SPECIFIC_RESERVATION"
    assert list(affinity.values) == ["projects/other/reservations/ours"]


def test_the_names_of_pools_are_short_enough_and_all_different() -> None:
    of = layout(
        types=("a3-megagpu-8g", "g2-standard-96"),
        zones=("us-central1-a", "us-central1-b"),
        capacity="spot-first",
        flex_start=True,
    )
    names = [each.properties["pool"] for each in side(of)["gpu-nodes/t"].candidates]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 40


def test_what_gke_lacks_is_told_apart_from_what_is_broken() -> None:
    out = StatusCondition({"code": "GCE_STOCKOUT", "message": "no a2-highgpu-8g in us-central1-a"})
    broken = StatusCondition({"code": "GKE_SERVICE_ACCOUNT_DELETED", "message": "the account is gone"})
    assert "no a2-highgpu-8g" in gke.shortage(NodePool(conditions=[out]))
    assert gke.shortage(NodePool(conditions=[broken])) == ""
    assert gke.problem(NodePool(conditions=[broken])) == "GKE_SERVICE_ACCOUNT_DELETED: the account is gone"


@pytest.mark.parametrize(
    ("there", "wanted", "agrees"),
    [
        (NEWEST, "1.35", True),
        (NEWEST, "1.34", True),  # Google has upgraded it by itself
        (NEWEST, "1.36", False),
        (NEWEST, "1.35.9", False),
        (NEWEST, NEWEST, True),
        ("1.9.1-gke.1", "1.10", False),
    ],
)
def test_a_later_version_is_as_wanted(there: str, wanted: str, *, agrees: bool) -> None:
    assert gke.agrees(there, wanted) is agrees


def test_a_region_is_told_from_a_zone() -> None:
    assert gke.region_of("us-central1-a") == gke.region_of("us-central1") == "us-central1"
