"""What a cluster's network side consists of on Google Cloud, decided without asking it."""

from __future__ import annotations

import ipaddress
import re
from itertools import combinations
from typing import Any

import pytest
from google.cloud import compute_v1

from cloudrec.engine.graph import TAG_KEY, Graph, Resource
from cloudrec.errors import SpecError
from cloudrec.providers.gcp import firewall, ids, labels, lustre, nat, network
from cloudrec.providers.gcp.client import Gcp
from cloudrec.providers.gcp.driver import ComputeDriver
from cloudrec.providers.gcp.policies import Grant, _edit, _grants
from tests.unit.providers_gcp.support import PARTS, described, layout

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def whole(**given: Any) -> dict[str, Resource]:
    """The resources, with stand-ins for those of the cluster's side that they need."""
    of = layout(**given)
    there = described(of)
    others = [Resource(kind=kind, name=of.title) for kind in ("cluster", "gpu-nodes")]
    Graph.of([*there.values(), *others])
    return there


def test_the_usual_cluster_has_one_network_a_way_out_and_no_file_system() -> None:
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
def test_gpus_with_cards_of_their_own_have_networks_of_their_own(instance_type: str, count: int) -> None:
    there = whole(types=("a2-highgpu-8g", instance_type))
    assert sum(key.startswith("network/t-gpu") for key in there) == count
    assert sum(key.startswith("firewall/t-gpu") for key in there) == count
    blocks = [
        ipaddress.IPv4Network(resource.properties["cidr"])
        for key, resource in there.items()
        if key.startswith("subnetwork/")
    ]
    assert not any(one.overlaps(other) for one, other in combinations(blocks, 2))
    assert {there[f"network/t-gpu{number}"].properties["mtu"] for number in range(count)} == {8244}
    assert there["network/t"].properties["mtu"] == 8244


def test_a_file_system_brings_a_range_and_a_peering_and_waits_for_the_gpus_zone() -> None:
    there = whole(lustre_gib=36000, zones=("us-central1-a", "us-central1-b"))
    assert there["lustre/t"].needs == ("lustre-peering/t", "gpu-nodes/t")
    assert there["lustre-peering/t"].needs == ("lustre-range/t", "api/t")
    assert there["lustre/t"].hourly_usd > 0
    assert "lustre.googleapis.com" in there["api/t"].properties["services"]


def test_what_all_regions_share_is_named_by_its_region() -> None:
    there = whole()
    for key in ("network/t", "firewall/t-internal"):
        assert "us-central1" in there[key].properties["path"]
    assert "us-central1" in there["service-account/t-nodes"].properties["email"]
    assert there["bucket/t"].properties["bucket"] == "cloudrec-t-123456789012-us-central1"


def test_the_longest_names_fit_and_stay_apart() -> None:
    title = "a" * 38 + "-b"
    there = whole(name=title, types=("a3-megagpu-8g",), lustre_gib=36000)
    paths = [one.properties["path"] for one in there.values() if "path" in one.properties]
    names = [ids.name(path) for path in paths]
    assert all(len(name) <= 63 and NAME.fullmatch(name) for name in names), names
    assert len(set(paths)) == len(paths)
    account = there[f"service-account/{title}-nodes"].properties["email"].partition("@")[0]
    assert 6 <= len(account) <= 30
    assert NAME.fullmatch(account)
    assert len(there[f"bucket/{title}"].properties["bucket"]) <= 63
    assert len(labels.describe(there[f"service-account/{title}-nodes"].tags, 256)) <= 256


def test_runs_reach_only_their_part_of_the_bucket() -> None:
    ((role, condition),) = whole(prefix="team/a")["bucket-binding/t"].properties["grants"]
    assert role == "roles/storage.objectUser"
    assert "buckets/cloudrec-t-123456789012-us-central1/objects/team/a/" in condition
    assert whole()["bucket-binding/t"].properties["member"] == (
        "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/"
        "a-project.svc.id.goog/subject/ns/cloudrec/sa/cloudrec"
    )


def test_nodes_may_log_and_measure_and_nothing_else_in_the_project() -> None:
    roles = {role for role, _ in whole()["project-binding/t-nodes"].properties["grants"]}
    assert roles == {
        "roles/logging.logWriter",
        "roles/monitoring.metricWriter",
        "roles/monitoring.viewer",
        "roles/stackdriver.resourceMetadata.writer",
    }


def test_apis_are_left_alone_where_the_settings_say_so() -> None:
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
def test_settings_that_do_not_fit_are_told(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        layout(**settings)


@pytest.mark.parametrize(
    ("driver", "message", "keys"),
    [
        (network.NetworkDriver, compute_v1.Network, ("network/t", "network/t-gpu3")),
        (network.SubnetDriver, compute_v1.Subnetwork, ("subnetwork/t", "subnetwork/t-gpu3")),
        (nat.RouterDriver, compute_v1.Router, ("router/t",)),
        (firewall.FirewallDriver, compute_v1.Firewall, ("firewall/t-internal", "firewall/t-gpu0")),
        (lustre.RangeDriver, compute_v1.Address, ("lustre-range/t",)),
    ],
)
def test_what_is_asked_for_is_what_is_found(
    driver: type[ComputeDriver], message: Any, keys: tuple[str, ...]
) -> None:
    there = whole(types=("a3-highgpu-8g",), lustre_gib=36000)
    handler = driver(Gcp({}))
    for key in keys:
        resource = there[key]
        row = message(
            name="x",
            **handler.born_with(resource),
            **handler.body(resource, {}),
        )
        assert handler.tags(row)[TAG_KEY] == key
        assert handler.properties(row).items() <= resource.properties.items()


def test_a_policy_is_edited_and_what_others_wrote_stays() -> None:
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
    gone = {grant for grant in _grants(policy) if grant.who == "serviceAccount:n@p"}
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


def test_every_part_knows_its_kinds() -> None:
    there = whole(types=("a3-highgpu-8g",), lustre_gib=36000)
    kinds = {kind for part in PARTS for kind in part.KINDS}
    assert {resource.kind for resource in there.values()} == kinds
