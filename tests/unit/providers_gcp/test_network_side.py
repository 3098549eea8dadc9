"""The network resources of a cluster on Google Cloud, described without any cloud call."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from google.cloud import compute_v1

from cloudrec.engine.graph import TAG_KEY, Graph, Resource
from cloudrec.errors import SpecError
from cloudrec.providers.gcp.api import ids, labels
from cloudrec.providers.gcp.api.client import Gcp
from cloudrec.providers.gcp.api.driver import ComputeDriver
from cloudrec.providers.gcp.api.policies import Grant, _edit, _grants
from cloudrec.providers.gcp.network import firewall, nat, network
from cloudrec.providers.gcp.storage import lustre
from tests.unit.providers_gcp.support import PARTS, described, layout

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def whole(**given: Any) -> dict[str, Resource[Any]]:
    """The resources, with stand-ins for those of the cluster's side that they need."""
    of = layout(**given)
    there = described(of)
    others = [Resource(kind=kind, name=of.title, hourly_usd=0.0) for kind in ("cluster", "gpu-nodes")]
    Graph.of([*there.values(), *others])
    return there


def test_a_default_cluster_has_one_network_a_nat_and_no_file_system() -> None:
    assert whole().keys() == {
        "api/t",
        "network/t",
        "subnetwork/t",
        "router/t",
        "firewall/t-internal",
        "service-account/t-nodes",
        "project-binding/t-nodes",
        "bucket/t",
        "bucket-binding/t",
        "repository/t",
        "repository-binding/t-nodes",
    }


@pytest.mark.parametrize(("instance_type", "count"), [("a3-highgpu-8g", 4), ("a3-megagpu-8g", 8)])
def test_gpus_with_network_adapters_have_separate_networks(instance_type: str, count: int) -> None:
    there = whole(types=("a2-highgpu-8g", instance_type))
    assert sum(key.startswith("network/t-gpu") for key in there) == count
    assert sum(key.startswith("firewall/t-gpu") for key in there) == count
    blocks = [
        ipaddress.IPv4Network(resource.properties.cidr)
        for key, resource in there.items()
        if key.startswith("subnetwork/")
    ]
    assert not any(one.overlaps(other) for one, other in combinations(blocks, 2))
    assert {there[f"network/t-gpu{number}"].properties.mtu for number in range(count)} == {8244}
    assert there["network/t"].properties.mtu == 8244


def test_each_zone_with_rdma_cards_has_one_network_made_with_its_profile() -> None:
    zones = ("us-central1-a", "us-central1-b")
    there = whole(types=("a3-ultragpu-8g", "a3-megagpu-8g"), zones=zones, capacity="spot")
    for letter, zone in (("a", zones[0]), ("b", zones[1])):
        made = there[f"network/t-rdma-{letter}"].properties
        assert made.profile == f"projects/a-project/global/networkProfiles/{zone}-vpc-roce"
        assert made.mtu == 8896
        subnets = [there[f"subnetwork/t-rdma-{letter}-{card}"] for card in range(8)]
        assert {each.properties.network for each in subnets} == {made.path}
        assert {each.needs for each in subnets} == {(f"network/t-rdma-{letter}",)}
        # The profile blocks these.
        assert not any(each.properties.ranges or each.properties.private_access for each in subnets)
        assert f"firewall/t-rdma-{letter}" not in there
        blocks = [
            ipaddress.IPv4Network(each.properties.cidr)
            for each in (*subnets, there["subnetwork/t-gpu0"], there["subnetwork/t"])
        ]
        assert not any(one.overlaps(other) for one, other in combinations(blocks, 2))
    assert not [key for key in whole(types=("a2-highgpu-8g",)) if "rdma" in key]


def test_a_file_system_needs_a_range_and_a_peering_and_waits_for_the_zone_of_the_gpus() -> None:
    there = whole(lustre_gib=36000, zones=("us-central1-a", "us-central1-b"))
    assert there["lustre/t"].needs == ("lustre-peering/t", "firewall/t-lustre", "gpu-nodes/t")
    assert there["firewall/t-lustre"].needs == ("network/t", "lustre-range/t")
    assert there["lustre-peering/t"].needs == ("lustre-range/t", "api/t")
    assert there["lustre/t"].hourly_usd is None  # no public price list that is read has it
    assert "lustre.googleapis.com" in there["api/t"].properties.services


def test_global_resources_have_the_region_in_their_name() -> None:
    there = whole()
    for key in ("network/t", "firewall/t-internal"):
        assert "us-central1" in there[key].properties.path
    assert "us-central1" in there["service-account/t-nodes"].properties.email
    assert there["bucket/t"].properties.bucket == "cloudrec-t-123456789012-us-central1"


def test_the_longest_names_fit_and_are_unique() -> None:
    title = "a" * 38 + "-b"
    there = whole(name=title, types=("a3-megagpu-8g",), lustre_gib=36000)
    paths = [one.properties.path for one in there.values() if "path" in one.properties.requested()]
    names = [ids.name(path) for path in paths]
    assert all(len(name) <= 63 and NAME.fullmatch(name) for name in names), names
    assert len(set(paths)) == len(paths)
    account = there[f"service-account/{title}-nodes"].properties.email.partition("@")[0]
    assert 6 <= len(account) <= 30
    assert NAME.fullmatch(account)
    assert len(there[f"bucket/{title}"].properties.bucket) <= 63
    assert len(labels.describe(there[f"service-account/{title}-nodes"].tags, 256)) <= 256


def test_runs_can_access_only_their_prefix_of_the_bucket() -> None:
    ((role, condition),) = whole(prefix="team/a")["bucket-binding/t"].properties.grants
    assert role == "roles/storage.objectUser"
    assert "buckets/cloudrec-t-123456789012-us-central1/objects/team/a/" in condition
    assert whole()["bucket-binding/t"].properties.member == (
        "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/"
        "a-project.svc.id.goog/subject/ns/cloudrec/sa/cloudrec"
    )


def test_the_keeper_of_a_managed_cluster_can_create_and_read_turns_alone() -> None:
    assert "bucket-binding/t-guard" not in whole(prefix="team/a")
    found = whole(prefix="team/a", managed=True)["bucket-binding/t-guard"].properties
    (creates, within), (reads, also) = found.grants
    assert (creates, reads) == ("roles/storage.objectCreator", "roles/storage.objectViewer")
    assert within == also
    assert '/objects/team/a/turns/")' in within
    assert found.member.endswith("/subject/ns/cloudrec/sa/cloudrec-guard")


def test_a_cluster_with_the_bucket_of_another_one_has_no_bucket_and_grants_nothing() -> None:
    shared = {"cluster": "first", "region": "europe-west4", "bucket": "b", "prefix": "team/a"}
    given = layout(managed=True, storage_of="first", storage=shared)
    assert given.storage == "gs://b/team/a"
    assert not [key for key in described(given) if key.startswith("bucket")]


def test_clusters_with_the_account_of_the_project_grant_no_roles_to_nodes() -> None:
    shared = "cloudrec-nodes@a-project.iam.gserviceaccount.com"
    there = described(replace(layout(), shared_account=shared))
    account = there["service-account/t-nodes"]
    assert (account.is_shared, account.properties.email) == (True, shared)
    assert not {"project-binding/t-nodes", "repository-binding/t-nodes"} & there.keys()


def test_accounts_of_a_project_of_a_domain_have_the_domain_in_their_address() -> None:
    of = replace(layout(), project="example.com:trainers")
    assert of.account("nodes").endswith("@trainers.example.com.iam.gserviceaccount.com")


def test_nodes_can_only_write_logs_and_metrics_in_the_project() -> None:
    roles = {role for role, _ in whole()["project-binding/t-nodes"].properties.grants}
    assert roles == {
        "roles/logging.logWriter",
        "roles/monitoring.metricWriter",
        "roles/monitoring.viewer",
        "roles/serviceusage.serviceUsageConsumer",
        "roles/stackdriver.resourceMetadata.writer",
    }


def test_apis_are_left_alone_if_configured() -> None:
    there = whole(enable_apis=False)
    assert "api/t" not in there
    assert there["network/t"].needs == ()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"nodes_cidr": "8.8.0.0/20"}, "no private block"),
        ({"pods_cidr": "10.42.0.0/16"}, "overlap"),
        ({"lustre_gib": 1200}, "multiple of 36000"),
        ({"gpu_cidr": "10.48.0.0/24"}, "/9 to /19"),
        ({"labels": {"Team": "ads"}}, "Google allows"),
        ({"reservation": "mine", "flex_start": True}, "exclude each other"),
        ({"max_run_duration": "8d"}, "longer than 7d"),
        ({"nat": True}, "nat"),
    ],
)
def test_invalid_settings_are_reported(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        layout(**settings)


@pytest.mark.parametrize(
    ("driver", "message", "keys"),
    [
        (network.GcpNetworkDriver, compute_v1.Network, ("network/t", "network/t-gpu3")),
        (network.GcpSubnetDriver, compute_v1.Subnetwork, ("subnetwork/t", "subnetwork/t-gpu3")),
        (nat.RouterDriver, compute_v1.Router, ("router/t",)),
        (firewall.GcpFirewallDriver, compute_v1.Firewall, ("firewall/t-internal", "firewall/t-gpu0")),
        (lustre.RangeDriver, compute_v1.Address, ("lustre-range/t",)),
    ],
)
def test_created_resources_have_no_drift(
    driver: type[ComputeDriver[Any, Any]], message: Any, keys: tuple[str, ...]
) -> None:
    there = whole(types=("a3-highgpu-8g",), lustre_gib=36000)
    handler = driver(Gcp({}))
    for key in keys:
        resource = there[key]
        row = handler.document(resource, "x")
        assert type(row) is message
        assert handler.tags(row)[TAG_KEY] == key
        assert handler.properties(row).items() <= resource.properties.requested().items()


def test_a_policy_is_edited_and_bindings_of_others_are_kept() -> None:
    condition = {"title": "x", "description": "theirs", "expression": "true"}
    policy: dict[str, Any] = {
        "etag": "abc",
        "bindings": [
            {"role": "roles/viewer", "members": ["user:a@b"], "condition": condition},
            {"role": "roles/a", "members": ["user:a@b", "deleted:serviceAccount:n@p?uid=1"]},
            {"role": "roles/b", "members": ["deleted:serviceAccount:n@p?uid=1"]},
        ],
        "auditConfigs": [{"service": "allServices"}],
    }
    gone = {grant for grant in _grants(policy) if grant.account == "serviceAccount:n@p"}
    assert len(gone) == 2
    _edit(policy, gone, {Grant(role="roles/a", member="serviceAccount:n@p")})
    assert policy == {
        "etag": "abc",
        "version": 3,
        "bindings": [
            {"role": "roles/viewer", "members": ["user:a@b"], "condition": condition},
            {"role": "roles/a", "members": ["user:a@b", "serviceAccount:n@p"]},
        ],
        "auditConfigs": [{"service": "allServices"}],
    }


def test_every_part_lists_its_kinds() -> None:
    there = whole(types=("a3-highgpu-8g",), lustre_gib=36000)
    kinds = {kind for part in PARTS for kind in part.KINDS}
    assert {resource.kind for resource in there.values()} == kinds
