"""The requests to GKE, validated by the SDK's messages, which refuse unknown fields."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud.container_v1.types import Cluster, NodePool, StatusCondition

from cloudrec.engine.graph import Graph, Resource
from cloudrec.providers.gcp.api import gke
from cloudrec.providers.gcp.cleanup import leftovers
from cloudrec.providers.gcp.cluster import cluster, cluster_model
from cloudrec.providers.gcp.layout import GcpLayout
from cloudrec.providers.gcp.network import placement
from cloudrec.providers.gcp.nodes import cpu_nodes, nodes, pool_model
from tests.unit.providers_gcp.support import described, layout

ACCOUNT = "nodes@a-project.iam.gserviceaccount.com"
PARTS = (leftovers, cluster, placement, nodes)
NEWEST = "1.35.8-gke.1225000"


def side(of: GcpLayout) -> dict[str, Resource[Any]]:
    return {resource.key: resource for part in PARTS for resource in part.resources(of)}


def ways(**given: Any) -> list[pool_model.GpuPoolProperties]:
    """The properties of the pool's candidates, the best first."""
    found = [each.properties for each in side(layout(**given))["gpu-nodes/t"].candidates]
    return [each for each in found if isinstance(each, pool_model.GpuPoolProperties)]


def pool(way: int = 0, version: str = NEWEST, **given: Any) -> NodePool:
    of = ways(**given)[way]
    networks = [(f"networks/{number}", f"subnetworks/{number}") for number in range(len(of.cards))]
    return pool_model.gpu(of, labels={"l": "v"}, service_account=ACCOUNT, networks=networks, version=version)


def new_cluster(**given: Any) -> Cluster:
    of = side(layout(**given))["cluster/t"].properties
    first = cpu_nodes.body_of(of.first_pool, ACCOUNT)
    return cluster_model.cluster(of, name="c", labels={}, network="n", subnetwork="s", pool=first)


@pytest.mark.parametrize(
    "types", [("a2-highgpu-8g",), ("a3-megagpu-8g", "a3-highgpu-8g"), ("g2-standard-4",)]
)
def test_the_graph_is_connected_for_every_machine_type(types: tuple[str, ...]) -> None:
    of = layout(
        types=types, zones=("us-central1-a", "us-central1-b"), nodes=4, capacity="spot-first", flex_start=True
    )
    graph = Graph.of([*described(of).values(), *side(of).values()])
    assert len(graph.resources["gpu-nodes/t"].candidates) == 6 * len(types)


def test_a_cluster_is_private_and_requires_iam() -> None:
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


def test_a_cluster_with_authorized_networks_is_reachable_only_from_them() -> None:
    ends = new_cluster(access="203.0.113.0/24").control_plane_endpoints_config
    networks = ends.ip_endpoints_config.authorized_networks_config
    assert not ends.dns_endpoint_config.allow_external_traffic
    assert ends.ip_endpoints_config.enable_public_endpoint
    assert networks.enabled
    assert [block.cidr_block for block in networks.cidr_blocks] == ["203.0.113.0/24"]
    assert not networks.gcp_public_cidrs_access_enabled


def test_a_private_cluster_answers_neither_at_its_name_nor_at_its_address_from_outside() -> None:
    ends = new_cluster(access="private").control_plane_endpoints_config
    assert not ends.dns_endpoint_config.allow_external_traffic
    assert ends.ip_endpoints_config.enabled
    assert not ends.ip_endpoints_config.enable_public_endpoint


def test_only_machines_with_gpu_adapters_need_multi_networking() -> None:
    assert not new_cluster().network_config.enable_multi_networking
    assert new_cluster(types=("a2-highgpu-8g", "a3-highgpu-8g")).network_config.enable_multi_networking


def test_settings_are_applied_to_the_cluster() -> None:
    key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    made = new_cluster(kms_key=key, lustre_gib=36000, lustre_throughput=250, kubernetes_version="1.34")
    assert (made.database_encryption.key_name, made.database_encryption.state.name) == (key, "ENCRYPTED")
    assert made.addons_config.lustre_csi_driver_config.enabled
    assert made.initial_cluster_version == "1.34"


def test_a_cluster_is_created_with_nodes_without_gpus() -> None:
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


def test_several_nodes_have_a_compact_placement_policy_and_a_single_node_has_none() -> None:
    assert (pool(nodes=2).placement_policy.type_.name, pool(nodes=2).placement_policy.policy_name) == (
        "COMPACT",
        "cloudrec-t-us-central1-a",
    )
    assert not pool(nodes=1).placement_policy.policy_name
    assert not pool(nodes=2, compact=False).placement_policy.policy_name
    assert not pool(nodes=2, types=("g2-standard-4",)).placement_policy.policy_name


@pytest.mark.parametrize(
    ("machine", "count"),
    [("a3-highgpu-8g", 4), ("a3-megagpu-8g", 8), ("a2-highgpu-8g", 0), ("a3-ultragpu-8g", 9)],
)
def test_each_gpu_adapter_has_its_own_network(machine: str, count: int) -> None:
    made = pool(types=(machine,), capacity="spot")
    cards = made.network_config.additional_node_network_configs
    assert [(card.network, card.subnetwork) for card in cards] == [
        (f"networks/{number}", f"subnetworks/{number}") for number in range(count)
    ]


@pytest.mark.parametrize("machine", ["a3-ultragpu-8g", "a4-highgpu-8g"])
def test_rdma_cards_are_in_the_subnets_of_the_network_of_their_zone(machine: str) -> None:
    zones = ("us-central1-a", "us-central1-b")
    first, second = ways(types=(machine,), zones=zones, capacity="spot", nodes=2)
    for way, letter in ((first, "a"), (second, "b")):
        assert way.cards == (
            ("network/t-gpu0", "subnetwork/t-gpu0"),
            *((f"network/t-rdma-{letter}", f"subnetwork/t-rdma-{letter}-{card}") for card in range(8)),
        )
        assert way.disk_type == "hyperdisk-balanced"
    made = pool(types=(machine,), zones=zones, capacity="spot", nodes=2)
    driver = made.config.accelerators[0].gpu_driver_installation_config.gpu_driver_version
    assert (driver.name, made.config.ephemeral_storage_local_ssd_config.local_ssd_count) == ("LATEST", 32)
    assert not made.config.fast_socket.enabled  # Google: not beside GPUDirect RDMA
    assert made.placement_policy.policy_name.endswith("us-central1-a")


def test_machines_with_rdma_are_bought_as_google_sells_them() -> None:
    def sold(**given: Any) -> set[str]:
        return {each.capacity for each in ways(types=("a3-ultragpu-8g",), **given)}

    assert sold(capacity="spot-first", flex_start=True) == {"spot", "flex-start"}
    assert sold(reservation="ours") == {"reservation"}
    assert sold(capacity="on-demand") == set()


def test_local_disks_are_used_for_scratch_files() -> None:
    def count(machine: str) -> int:
        return int(pool(types=(machine,)).config.ephemeral_storage_local_ssd_config.local_ssd_count)

    assert (count("a3-highgpu-8g"), count("a2-ultragpu-4g"), count("a2-highgpu-8g")) == (16, 4, 0)


@pytest.mark.parametrize(
    ("version", "seconds"),
    [("1.35.0-gke.1170999", 0), ("1.35.0-gke.1171000", 120), (NEWEST, 120), ("1.34.9-gke.1", 0)],
)
def test_spot_nodes_get_a_longer_notice_if_gke_supports_it(version: str, seconds: int) -> None:
    made = pool(capacity="spot", version=version)
    assert made.config.spot
    assert made.config.kubelet_config.shutdown_grace_period_seconds == seconds


def test_the_queued_pool_scales_up_on_request_and_its_nodes_expire() -> None:
    made = pool(1, flex_start=True, nodes=3, max_run_duration="2d")
    assert made.config.flex_start
    assert made.config.max_run_duration.total_seconds() == 2 * 86400
    assert (made.autoscaling.enabled, made.autoscaling.total_max_node_count) == (True, 3)
    assert not made.management.auto_repair
    assert not made.placement_policy.policy_name


def test_reserved_nodes_use_only_their_reservation() -> None:
    made = pool(reservation="projects/other/reservations/ours")
    affinity = made.config.reservation_affinity
    assert affinity.consume_reservation_type.name == "SPECIFIC_RESERVATION"
    assert list(affinity.values) == ["projects/other/reservations/ours"]


def test_pool_names_are_short_enough_and_unique() -> None:
    tried = ways(
        types=("a3-megagpu-8g", "g2-standard-96"),
        zones=("us-central1-a", "us-central1-b"),
        capacity="spot-first",
        flex_start=True,
    )
    names = [each.pool for each in tried]
    assert len(set(names)) == len(names) == 12
    assert max(map(len, names)) <= 40


def test_missing_capacity_is_distinguished_from_other_gke_errors() -> None:
    out = StatusCondition({"code": "GCE_STOCKOUT", "message": "no a2-highgpu-8g in us-central1-a"})
    broken = StatusCondition({"code": "GKE_SERVICE_ACCOUNT_DELETED", "message": "the account is gone"})
    assert "no a2-highgpu-8g" in gke.shortage(NodePool(conditions=[out]))
    assert gke.shortage(NodePool(conditions=[broken])) == ""
    assert gke.problem(NodePool(conditions=[broken])) == "GKE_SERVICE_ACCOUNT_DELETED: the account is gone"


@pytest.mark.parametrize(
    ("there", "wanted", "agrees"),
    [
        (NEWEST, "1.35", True),
        (NEWEST, "1.34", True),  # Google upgraded it automatically
        (NEWEST, "1.36", False),
        (NEWEST, "1.35.9", False),
        (NEWEST, NEWEST, True),
        ("1.9.1-gke.1", "1.10", False),
    ],
)
def test_a_later_version_is_not_drift(there: str, wanted: str, *, agrees: bool) -> None:
    assert gke.agrees(there, wanted) is agrees


@pytest.mark.parametrize(
    ("location", "region"),
    [
        ("us-central1-a", "us-central1"),
        ("us-central1", "us-central1"),
        ("us-central1-ai1a", "us-central1"),
        ("us-south1-ai1b", "us-south1"),
        ("europe-west4-ai12c", "europe-west4"),
        ("europe-west4", "europe-west4"),
        ("northamerica-northeast1", "northamerica-northeast1"),
        ("global", "global"),
        ("us", "us"),
        ("", ""),
    ],
)
def test_a_region_is_derived_from_a_zone(location: str, region: str) -> None:
    assert gke.region_of(location) == region
