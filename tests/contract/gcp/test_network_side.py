"""The network, accounts and storage of a cluster on GCP: made, found again, mended, removed for good."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cloudrec.engine.plan import Step
from cloudrec.errors import CloudrecError, PreflightError, UsageError
from cloudrec.providers.gcp import ids, policies, storage
from tests.contract.gcp.support import WHOLE, Site
from tests.contract.sandbox_gcp.support import Gcp as Cloud

# Every call that brings something into being, with the service that it is made of.
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
    """How many of each kind there are."""
    return Counter(":".join(line.split(":")[:2]) for line in state)


def at(faults: list[tuple[str, str]], kind: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {"service": service, "action": action, "kind": kind, "times": 1, **more} for service, action in faults
    ]


def test_a_second_up_changes_nothing_and_down_leaves_nothing(cloud: Cloud, tmp_path: Path) -> None:
    before = cloud.state()
    site = Site(cloud, tmp_path, **FULL)
    steps = {action.key: action.step for action in site.up().actions}
    assert {key for key, step in steps.items() if step is not Step.CREATE} <= {"api/t"}
    since = len(cloud.calls())
    assert {action.step for action in site.up().actions} == {Step.KEEP}
    assert site.changes(since) == []
    site.down()
    assert cloud.state() == before


def test_everything_is_found_with_no_journal_and_what_costs_says_so(cloud: Cloud, tmp_path: Path) -> None:
    before = cloud.state()
    site = Site(cloud, tmp_path, **FULL)
    plan = site.up()
    found = site.found()
    assert found.keys() == {action.key for action in plan.actions} - {"api/t"}
    assert {seen.cluster for seen in found.values()} == {"t"}
    assert {seen.owner for seen in found.values()} == {"tester"}
    assert sum(seen.hourly_usd for seen in found.values()) == pytest.approx(plan.hourly_usd)
    Site(cloud, tmp_path / "elsewhere").down()
    assert cloud.state() == before


def test_an_answer_lost_at_any_creation_makes_no_second_one(site: Site) -> None:
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
def test_a_call_that_fails_for_a_while_is_made_again(site: Site, kind: str) -> None:
    site.cloud.control(faults=at(CREATIONS, kind))
    site.up()
    assert site.planned() == {}


def test_a_refusal_is_told_and_gone_on_from_later(site: Site) -> None:
    refusal = {
        "code": "PERMISSION_DENIED",
        "status": 403,
        "message": "Required 'compute.routers.create' permission for 'x'",
    }
    site.cloud.control(faults=at([("compute", "routers.insert")], "error", **refusal))
    with pytest.raises(PreflightError, match=r"may not do compute\.routers\.create"):
        site.up()
    site.cloud.control(faults=[])
    assert site.planned().keys() >= {"router/t"}
    site.up()
    assert site.planned() == {}


def test_what_others_write_into_policies_meanwhile_stays(site: Site) -> None:
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


def test_two_commands_in_one_project_at_once_lose_none_of_each_others_grants(
    cloud: Cloud, tmp_path: Path
) -> None:
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


def test_damage_done_by_hand_is_seen_and_mended(site: Site) -> None:
    site.up()
    found = {key: seen.identity for key, seen in site.found().items()}
    gcp = site.gcp
    routers, subnets, firewalls = (gcp.compute(name) for name in ("routers", "subnetworks", "firewalls"))
    where = {"project": gcp.project, "region": gcp.region}
    path = found["subnetwork/t"].replace("cloudrec-t", "theirs")
    document = {"name": "theirs", "network": found["network/t"], "ip_cidr_range": "10.41.0.0/24"}
    gcp.call(subnets.insert_unary, **where, subnetwork_resource=document)
    site.cloud.advance(60)
    theirs = {
        "name": "theirs",
        "nat_ip_allocate_option": "AUTO_ONLY",
        "source_subnetwork_ip_ranges_to_nat": "LIST_OF_SUBNETWORKS",
        "subnetworks": [
            {"name": path, "source_ip_ranges_to_nat": ["PRIMARY_IP_RANGE"]},
        ],
    }
    gcp.call(routers.patch_unary, **ids.arguments(found["router/t"]), router_resource={"nats": [theirs]})
    gcp.call(
        subnets.set_private_ip_google_access_unary,
        **ids.arguments(found["subnetwork/t"]),
        subnetworks_set_private_ip_google_access_request_resource={"private_ip_google_access": False},
    )
    gcp.call(
        firewalls.patch_unary,
        **ids.arguments(found["firewall/t-internal"]),
        firewall_resource={"source_ranges": ["0.0.0.0/0"]},
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
    row = gcp.read(routers.get, **ids.arguments(found["router/t"]))
    assert {each.name for each in row.nats} == {"cloudrec", "theirs"}


def test_roles_of_an_account_that_was_deleted_by_hand_are_cleared_and_given_again(site: Site) -> None:
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


def test_kept_data_keeps_the_bucket_but_nobodys_way_into_it(cloud: Cloud, tmp_path: Path) -> None:
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


def test_a_bucket_name_that_somebody_else_has_is_told(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(taken_buckets=["cloudrec-taken"])
    site = Site(cloud, tmp_path, settings={"bucket": "cloudrec-taken"})
    with pytest.raises(CloudrecError, match=r"cloudrec-taken|bears no tag of ours"):
        site.up()


def test_apis_that_are_missing_are_enabled(site: Site) -> None:
    site.cloud.control(apis={"artifactregistry.googleapis.com": False})
    assert site.planned()["api/t"].step is Step.CREATE
    site.up()
    assert site.planned() == {}


def test_namesakes_in_two_regions_share_nothing(cloud: Cloud, tmp_path: Path) -> None:
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


def test_a_wrong_region_zone_or_type_is_told_with_the_nearest_right_one(cloud: Cloud, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'europe-west4-a', which is no zone of region us-central1"):
        Site(cloud, tmp_path, zones=("europe-west4-a",)).layout()
    with pytest.raises(UsageError, match="no machine type 'q9-tiny'"):
        Site(cloud, tmp_path, instance_types=("q9-tiny",)).layout()
    site = Site(cloud, tmp_path)
    site.gcp._region = "us-central"
    with pytest.raises(UsageError, match="no region 'us-central'") as error:
        site.layout()
    assert error.value.remedy == "did you mean 'us-central1'?"


def test_a_cluster_keeps_its_home_whatever_is_asked_for_later(cloud: Cloud, tmp_path: Path) -> None:
    site = Site(cloud, tmp_path, zones=("us-central1-b",))
    site.up()
    later = Site(cloud, tmp_path, zones=("us-central1-a",)).layout()
    assert (later.home_zone, later.gpu_zones) == ("us-central1-b", ("us-central1-a",))
    assert Site(cloud, tmp_path).layout().gpu_zones == ("us-central1-b",)
