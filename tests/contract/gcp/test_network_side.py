"""The network, service accounts and storage of a cluster on Google Cloud: creation, repair and deletion."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from google.cloud import compute_v1 as compute

from cloudrec.engine.graph import cost_of
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import CloudrecError, PreflightError, UsageError
from cloudrec.providers.gcp.api import ids, policies
from cloudrec.providers.gcp.storage import storage
from tests.contract.gcp.support import WHOLE, Site
from tests.sandbox.gcp.support import Gcp as Cloud

# Every call that creates a resource, with its service.
CREATIONS = [
    ("compute", "networks.insert"),
    ("compute", "subnetworks.insert"),
    ("compute", "routers.insert"),
    ("compute", "firewalls.insert"),
    ("iam", "projects.serviceAccounts.create"),
    ("cloudresourcemanager", "projects.setIamPolicy"),
    ("storage", "buckets.insert"),
    ("storage", "buckets.setIamPolicy"),
    ("artifactregistry", "projects.locations.repositories.create"),
    ("artifactregistry", "projects.locations.repositories.setIamPolicy"),
]
FULL: dict[str, Any] = {
    "instance_types": ("a3-highgpu-8g",),
    "zones": ("us-central1-a",),
    "settings": {"lustre_gib": 36000, "prefix": "team/a"},
}


def kinds(state: list[str]) -> Counter[str]:
    """The number of resources of each kind."""
    return Counter(":".join(line.split(":")[:2]) for line in state)


def at(faults: list[tuple[str, str]], kind: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {"service": service, "action": action, "kind": kind, "times": 1, **more} for service, action in faults
    ]


def test_a_second_up_changes_nothing_and_down_leaves_nothing(cloud: Cloud, tmp_path: Path) -> None:
    before = cloud.state()
    site = Site(cloud, tmp_path, **FULL)
    steps = {action.key: action.step for action in site.up().actions}
    assert {key for key, step in steps.items() if step is not PlanStep.CREATE} <= {"api/t"}
    since = len(cloud.calls())
    assert {action.step for action in site.up().actions} == {PlanStep.KEEP}
    assert site.changes(since) == []
    site.down()
    assert cloud.state() == before


def test_resources_are_found_without_a_journal_and_show_their_cost(cloud: Cloud, tmp_path: Path) -> None:
    before = cloud.state()
    site = Site(cloud, tmp_path, **FULL)
    plan = site.up()
    found = site.found()
    assert found.keys() == {action.key for action in plan.actions} - {"api/t"}
    assert {seen.cluster for seen in found.values()} == {"t"}
    assert {seen.owner for seen in found.values()} == {"tester"}
    assert [item.name for item in plan.cost.unknown] == ["lustre/t"]  # every other price is known
    assert cost_of(found.values()).known_usd == pytest.approx(plan.cost.known_usd)
    Site(cloud, tmp_path / "elsewhere").down()
    assert cloud.state() == before


def test_a_lost_create_response_creates_no_duplicate(site: Site) -> None:
    before = site.cloud.state()
    site.up()
    undisturbed = kinds(site.cloud.state())
    site.down()
    site.cloud.control(faults=at(CREATIONS, "lost"))
    site.up()
    assert kinds(site.cloud.state()) == undisturbed
    assert site.planned() == {}
    site.down()
    assert site.cloud.state() == before


@pytest.mark.parametrize("kind", ["throttle", "5xx", "drop"])
def test_a_call_with_a_transient_failure_is_retried(site: Site, kind: str) -> None:
    site.cloud.control(faults=at(CREATIONS, kind))
    site.up()
    assert site.planned() == {}


def test_a_denied_call_is_reported_and_a_later_up_continues(site: Site) -> None:
    refusal = {
        "code": "PERMISSION_DENIED",
        "status": 403,
        "message": "Required 'compute.routers.create' permission for 'x'",
    }
    site.cloud.control(faults=at([("compute", "routers.insert")], "error", **refusal))
    with pytest.raises(PreflightError, match=r"lack the permission compute\.routers\.create"):
        site.up()
    site.cloud.control(faults=[])
    assert site.planned().keys() >= {"router/t"}
    site.up()
    assert site.planned() == {}


def test_concurrent_policy_changes_by_others_are_kept(site: Site) -> None:
    project = f"projects/{site.gcp.project}"
    theirs = policies.Grant(role="roles/viewer", member="user:somebody@example.com")
    policies.replace(site.gcp, project, (), [theirs])
    stale = {"code": "ABORTED", "status": 409, "message": "There were concurrent policy changes."}
    writes = [call for call in CREATIONS if call[1].endswith("setIamPolicy")]
    site.cloud.control(faults=at(writes, "error", **stale))
    site.up()
    assert theirs in policies.grants(site.gcp, project)
    assert len(policies.grants(site.gcp, project)) > 1
    site.down()
    left = policies.grants(site.gcp, project)
    assert theirs in left
    assert not [grant for grant in left if "cloudrec" in grant.member]


def test_concurrent_commands_in_one_project_keep_each_others_grants(cloud: Cloud, tmp_path: Path) -> None:
    names = ("t", "u", "v")
    sites = [Site(cloud, tmp_path / name, name=name) for name in names]
    with ThreadPoolExecutor(len(sites)) as pool:
        list(pool.map(Site.up, sites))
    project = f"projects/{sites[0].gcp.project}"
    accounts = {each.member for each in policies.grants(sites[0].gcp, project) if "cloudrec-" in each.member}
    assert len(accounts) == len(names)
    assert not any(site.planned() for site in sites)
    with ThreadPoolExecutor(len(sites)) as pool:
        list(pool.map(Site.down, sites))
    assert not [each for each in policies.grants(sites[0].gcp, project) if "cloudrec-" in each.member]


def test_manual_changes_are_detected_and_repaired(site: Site) -> None:
    site.up()
    found = {key: seen.identity for key, seen in site.found().items()}
    gcp = site.gcp
    routers, subnets = gcp.rest(compute.RoutersClient), gcp.rest(compute.SubnetworksClient)
    where: dict[str, object] = {"project": gcp.project, "region": gcp.region}
    path = found["subnetwork/t"].replace("cloudrec-t", "theirs")
    document = {"name": "theirs", "network": found["network/t"], "ip_cidr_range": "10.41.0.0/24"}
    gcp.call(subnets.insert_unary, {**where, "subnetwork_resource": document})
    site.cloud.advance(60)
    theirs = {
        "name": "theirs",
        "nat_ip_allocate_option": "AUTO_ONLY",
        "source_subnetwork_ip_ranges_to_nat": "LIST_OF_SUBNETWORKS",
        "subnetworks": [
            {"name": path, "source_ip_ranges_to_nat": ["PRIMARY_IP_RANGE"]},
        ],
    }
    nats = {"nats": [theirs]}
    gcp.call(routers.patch_unary, {**ids.arguments(found["router/t"]), "router_resource": nats})
    gcp.call(
        subnets.set_private_ip_google_access_unary,
        {
            **ids.arguments(found["subnetwork/t"]),
            "subnetworks_set_private_ip_google_access_request_resource": {"private_ip_google_access": False},
        },
    )
    gcp.call(
        gcp.rest(compute.FirewallsClient).patch_unary,
        {
            **ids.arguments(found["firewall/t-internal"]),
            "firewall_resource": {"source_ranges": ["0.0.0.0/0"]},
        },
    )
    bucket = gcp.storage.get_bucket(found["bucket/t"])
    bucket.iam_configuration.public_access_prevention = "inherited"
    bucket.patch()
    for key in ("project-binding/t-nodes", "repository-binding/t-nodes"):
        holder = found[key].partition("#")[0]
        ours = [grant for grant in policies.grants(gcp, holder) if "cloudrec" in grant.member]
        policies.replace(gcp, holder, ours[:1], ())
    site.cloud.advance(60)
    assert site.planned().keys() == {
        "router/t",
        "subnetwork/t",
        "firewall/t-internal",
        "bucket/t",
        "project-binding/t-nodes",
        "repository-binding/t-nodes",
    }
    site.up()
    assert site.planned() == {}
    row = gcp.read(routers.get, ids.arguments(found["router/t"]))
    assert {each.name for each in row.nats} == {"cloudrec", "theirs"}


def test_bindings_of_a_deleted_service_account_are_removed_and_granted_again(site: Site) -> None:
    site.up()
    account = site.found()["service-account/t-nodes"].identity
    project = f"projects/{site.gcp.project}"
    site.gcp.send("iam", "DELETE", f"/v1/{account}")
    site.cloud.advance(60)
    assert any("deleted:" in grant.member for grant in policies.grants(site.gcp, project))
    site.up()
    assert site.planned() == {}
    assert not any("deleted:" in grant.member for grant in policies.grants(site.gcp, project))
    site.gcp.send("iam", "DELETE", f"/v1/{account}")
    site.cloud.advance(60)
    site.down()
    assert not any("cloudrec" in grant.member for grant in policies.grants(site.gcp, project))


def test_keep_data_keeps_the_bucket_and_removes_access_to_it(cloud: Cloud, tmp_path: Path) -> None:
    site = Site(cloud, tmp_path, parts=(*WHOLE, storage), instance_types=("g2-standard-4",))
    site.up()
    bucket = site.found()["bucket/t"].identity
    (granted,) = [each for each in policies.grants(site.gcp, f"b/{bucket}") if each.title]
    assert granted.member == site.layout().pod_principal
    site.gcp.storage.bucket(bucket).blob("data/part-0").upload_from_string(b"x")
    site.down(keep_data=True)
    assert site.found().keys() == {"bucket/t"}
    assert not [each for each in policies.grants(site.gcp, f"b/{bucket}") if each.title]
    site.up()
    assert site.gcp.storage.bucket(bucket).blob("data/part-0").download_as_bytes() == b"x"
    site.down()
    assert bucket not in json.dumps(site.cloud.state())


def test_a_bucket_name_in_use_by_another_account_is_reported(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(taken_buckets=["cloudrec-taken"])
    site = Site(cloud, tmp_path, settings={"bucket": "cloudrec-taken"})
    with pytest.raises(CloudrecError, match="'cloudrec-taken' is in use by another owner"):
        site.up()


def test_disabled_apis_are_enabled(site: Site) -> None:
    site.cloud.control(apis={"artifactregistry.googleapis.com": False})
    assert site.planned()["api/t"].step is PlanStep.CREATE
    site.up()
    assert site.planned() == {}


def test_clusters_of_one_name_in_two_regions_share_nothing(cloud: Cloud, tmp_path: Path) -> None:
    here = Site(cloud, tmp_path / "here")
    here.up()
    cloud.env["GOOGLE_CLOUD_REGION"] = "europe-west4"
    try:
        there = Site(cloud, tmp_path / "there")
        there.up()
        there.down()
        assert there.search() == []
    finally:
        cloud.env["GOOGLE_CLOUD_REGION"] = "us-central1"
    assert here.planned() == {}


def test_a_wrong_region_zone_or_type_is_reported_with_the_closest_match(cloud: Cloud, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'europe-west4-a', which is no zone of region us-central1"):
        Site(cloud, tmp_path, zones=("europe-west4-a",)).layout()
    with pytest.raises(UsageError, match="no machine type 'q9-tiny'"):
        Site(cloud, tmp_path, instance_types=("q9-tiny",)).layout()
    site = Site(cloud, tmp_path)
    site.gcp._region = "us-central"
    with pytest.raises(UsageError, match="no region 'us-central'") as error:
        site.layout()
    assert error.value.remedy == "did you mean 'us-central1'?"


def test_a_cluster_keeps_its_home_zone_when_other_zones_are_requested(cloud: Cloud, tmp_path: Path) -> None:
    site = Site(cloud, tmp_path, zones=("us-central1-b",))
    site.up()
    later = Site(cloud, tmp_path, zones=("us-central1-a",)).layout()
    assert (later.home_zone, later.gpu_zones) == ("us-central1-b", ("us-central1-a",))
    assert Site(cloud, tmp_path).layout().gpu_zones == ("us-central1-b",)
