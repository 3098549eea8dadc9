"""The cluster and its nodes on Google Cloud: placement, changes in place and cleanup."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cloudrec.engine.graph import Condition
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import CloudrecError, NoCapacityError, SpecError
from tests.contract.gcp.support import Site, whole
from tests.dates import in_days
from tests.sandbox.gcp.support import Gcp as Cloud

TYPE, ZONES = "a2-highgpu-8g", ("us-central1-a", "us-central1-b")
GPUS = "gpu-nodes/t"
CLUSTER = "projects/sandbox-project/locations/us-central1-a/clusters/cloudrec-t"


def none_left(*places: str) -> dict[str, int]:
    """The faults for missing capacity at each ZONE/MARKET."""
    return dict.fromkeys((f"{TYPE}/{place}" for place in places), 0)


def pools(cloud: Cloud) -> dict[str, Any]:
    listed = cloud.gke.list_node_pools(parent=CLUSTER).node_pools
    return {pool.name: pool for pool in listed}


def tried(site: Site) -> dict[str, str]:
    """The unavailable candidates, with the reasons."""
    events = [event for event in site.journal.events("t") if event.event == "unavailable"]
    return {event.key.removeprefix(f"{GPUS}-"): event.detail for event in events}


def had_keys(site: Site) -> list[str]:
    return [key for key in site.found() if key.startswith("gpu-nodes/")]


def had(site: Site) -> list[str]:
    return [key.removeprefix(f"{GPUS}-") for key in had_keys(site)]


def test_up_creates_a_cluster_and_down_leaves_nothing(cloud: Cloud, tmp_path: Path) -> None:
    before = cloud.state()
    site = whole(cloud, tmp_path, zones=ZONES, nodes=2)
    plan = site.up()
    assert site.found().keys() | {"api/t", GPUS} == {action.key for action in plan.actions} | set(
        had_keys(site)
    )
    assert {seen.condition for seen in site.found().values()} == {Condition.READY}
    assert site.planned() == {}
    site.down()
    assert cloud.state() == before


def test_spot_is_tried_in_every_zone_before_the_first_on_demand_node(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, zones=ZONES, capacity="spot-first")
    cloud.control(capacity=none_left(*(f"{zone}/spot" for zone in ZONES)))
    site.up()
    assert had(site) == [f"{TYPE}-us-central1-a-on-demand"]
    assert list(tried(site)) == [f"{TYPE}-{zone}-spot" for zone in ZONES]
    assert all("GCE_STOCKOUT" in reason for reason in tried(site).values())
    assert set(pools(cloud)) == {"cpu", "gpu-a2-highgpu-8g-a-od"}
    assert site.planned() == {}


def test_a_failed_candidate_is_deleted_before_the_next_request(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, zones=ZONES)
    cloud.control(capacity=none_left(f"{ZONES[0]}/on-demand"))
    site.up()
    made = [call["action"] for call in cloud.changing() if call["status"] == 200]
    assert [action for action in made if "NodePool" in action] == [
        "CreateNodePool",
        "SetNodePoolSize",
        "DeleteNodePool",
        "CreateNodePool",
        "SetNodePoolSize",
    ]


def test_up_without_capacity_keeps_other_resources_and_a_later_up_continues(
    cloud: Cloud, tmp_path: Path
) -> None:
    site = whole(cloud, tmp_path, zones=ZONES)
    places = [f"{zone}/on-demand" for zone in ZONES]
    cloud.control(capacity=none_left(*places))
    with pytest.raises(NoCapacityError, match="none of 2 candidates") as caught:
        site.up()
    assert all(zone in caught.value.message for zone in ZONES)
    assert set(pools(cloud)) == {"cpu"}
    cloud.control(capacity=dict.fromkeys(none_left(*places)))
    since = len(cloud.calls())
    site.up()
    assert "container:CreateCluster" not in site.changes(since)
    assert had(site) == [f"{TYPE}-us-central1-a-on-demand"]


def test_an_exhausted_quota_excludes_one_candidate_and_not_the_next(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, zones=ZONES[:1], instance_types=[TYPE, "g2-standard-4"])
    cloud.control(quotas={"us-central1/NVIDIA_A100_GPUS": 0})
    site.up()
    assert had(site) == ["g2-standard-4-us-central1-a-on-demand"]
    assert "Quota 'NVIDIA_A100_GPUS' exceeded" in tried(site)[f"{TYPE}-us-central1-a-on-demand"]


def test_a_candidate_without_capacity_ends_at_its_timeout(cloud: Cloud, tmp_path: Path) -> None:
    speed = 6000.0
    cloud.control(speed=speed, durations={"gke-pool-resize": 70_000})  # more than ten real seconds
    cloud.env["CLOUDREC_SANDBOX_SPEED"] = str(speed)
    site = whole(cloud, tmp_path, zones=ZONES[:1], capacity="spot")
    with pytest.raises(NoCapacityError, match="within the time limit"):
        site.up()
    cloud.control(advance_s=100_000)
    site.down()


def test_queued_nodes_are_created_when_pods_request_them(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, zones=ZONES[:1], nodes=2, settings={"flex_start": True})
    cloud.control(capacity=none_left(f"{ZONES[0]}/on-demand"))
    site.up()
    (pool,) = [pool for name, pool in pools(cloud).items() if name != "cpu"]
    assert (pool.config.flex_start, pool.autoscaling.total_max_node_count) == (True, 2)
    found = site.found()[f"{GPUS}-{TYPE}-us-central1-a-flex-start"]
    assert (found.properties["nodes"], found.hourly_usd) == (2, 0.0)
    assert site.planned() == {}


@pytest.mark.parametrize(
    ("change", "calls"),
    [
        ({"nodes": 2}, ["SetNodePoolSize"]),
        ({"settings": {"labels": {"team": "ads"}}}, ["UpdateNodePool", "UpdateNodePool"]),
        ({"settings": {"cpu_nodes": 3}}, ["SetNodePoolSize"]),
        ({"access": "203.0.113.0/24"}, ["UpdateCluster"]),
        ({"access": "private"}, ["UpdateCluster"]),
        ({"settings": {"release_channel": "STABLE"}}, ["UpdateCluster"]),
        ({"expires": in_days(31)}, ["SetLabels"]),
    ],
)
def test_mutable_gke_settings_are_changed_in_place(
    cloud: Cloud, tmp_path: Path, change: dict[str, Any], calls: list[str]
) -> None:
    settings = {"compact": False}  # one node needs no placement policy, two do
    given = {"zones": ZONES[:1], "settings": settings, "expires": in_days(30)}
    whole(cloud, tmp_path, **given).up()
    since = len(cloud.calls())
    changed = {**given, **change, "settings": {**settings, **change.get("settings", {})}}
    after = whole(cloud, tmp_path, **changed)
    assert {action.step for action in after.planned().values()} == {PlanStep.CHANGE}
    after.up()
    assert [call["action"] for call in cloud.changing(since) if call["service"] == "container"] == calls
    assert after.planned() == {}


def test_kubernetes_and_its_nodes_are_upgraded_one_minor_version_at_a_time(
    cloud: Cloud, tmp_path: Path
) -> None:
    config = cloud.gke.get_server_config(name=CLUSTER.partition("/clusters")[0])
    (channel,) = [each for each in config.channels if each.channel.name == "REGULAR"]
    minors = sorted({int(version.split(".")[1]) for version in channel.valid_versions})
    first, last = f"1.{minors[0]}", f"1.{minors[-1]}"
    given: dict[str, Any] = {"zones": ZONES[:1]}
    whole(cloud, tmp_path, **given, kubernetes_version=first).up()
    since = len(cloud.calls())
    site = whole(cloud, tmp_path, **given, kubernetes_version=last)
    site.up()
    upgrades = [call for call in cloud.changing(since) if call["action"] == "UpdateCluster"]
    assert len(upgrades) == minors[-1] - minors[0]
    cluster = cloud.gke.get_cluster(name=CLUSTER)
    versions = [cluster.current_master_version, *(pool.version for pool in cluster.node_pools)]
    assert all(version.startswith(f"{last}.") for version in versions)
    assert site.planned() == {}
    # Google upgrades automatically, so a later version than the requested one is accepted.
    assert whole(cloud, tmp_path, **given, kubernetes_version=first).planned() == {}


def test_an_unsupported_change_never_replaces_the_cluster(cloud: Cloud, tmp_path: Path) -> None:
    whole(cloud, tmp_path, zones=ZONES[:1]).up()
    with pytest.raises(SpecError, match="cannot change that in place"):
        whole(cloud, tmp_path, zones=ZONES[:1], settings={"regional": True}).up()


def broken(cloud: Cloud, *, pool: str = "") -> None:
    """Put the cluster, or one of its pools, into an error state."""
    cloud.control(gke_error={"cluster": "cloudrec-t", **({"pool": pool} if pool else {})})


def test_a_cluster_in_error_with_dependent_resources_is_reported_and_never_replaced(
    cloud: Cloud, tmp_path: Path
) -> None:
    site = whole(cloud, tmp_path, zones=ZONES[:1])
    site.up()
    broken(cloud)
    assert {key: action.step for key, action in site.planned().items()} == {"cluster/t": PlanStep.CHANGE}
    since = len(cloud.calls())
    with pytest.raises(CloudrecError, match="has failed, and other resources need it"):
        site.up()
    assert site.changes(since) == []


def test_a_pool_in_error_with_running_nodes_is_repaired_in_place(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, zones=ZONES[:1])
    site.up()
    broken(cloud, pool="cpu")
    assert {key: action.step for key, action in site.planned().items()} == {"cpu-nodes/t": PlanStep.CHANGE}
    site.up()
    assert site.planned() == {}


def test_a_failed_scale_up_keeps_the_existing_nodes(cloud: Cloud, tmp_path: Path) -> None:
    given: dict[str, Any] = {"zones": ZONES[:1], "settings": {"compact": False}}
    whole(cloud, tmp_path, **given).up()
    cloud.control(capacity={f"{TYPE}/{ZONES[0]}/on-demand": 0})
    site = whole(cloud, tmp_path, **given, nodes=2)
    with pytest.raises(NoCapacityError, match=r"keeps the nodes that it has.*GCE_STOCKOUT"):
        site.up()
    assert had(site) == [f"{TYPE}-us-central1-a-on-demand"]
    assert {action.step for action in site.planned().values()} == {PlanStep.CHANGE}
    cloud.control(capacity={f"{TYPE}/{ZONES[0]}/on-demand": None})
    site.up()
    assert site.planned() == {}


def asked_in_vain(site: Site) -> None:
    """Request a pool, and exit before the capacity failure is known."""
    choice = site.graph().resources[GPUS]
    driver, first = site.drivers["gpu-nodes"], choice.candidates[0]
    identities = {key: seen.identity for key, seen in site.found().items()}
    identity = driver.create(first, token=str(uuid4()), identities=identities)
    while "SetNodePoolSize" not in {call["action"] for call in site.cloud.calls()}:
        site.cloud.advance(10)
        driver.condition("gpu-nodes", identity)


def test_a_capacity_failure_is_reported_by_a_later_process(cloud: Cloud, tmp_path: Path) -> None:
    given: dict[str, Any] = {"zones": ZONES}
    cloud.control(capacity=none_left(*(f"{zone}/on-demand" for zone in ZONES)))
    before = whole(cloud, tmp_path, **given)
    with pytest.raises(NoCapacityError):
        before.up()
    asked_in_vain(before)
    cloud.control(capacity={f"{TYPE}/{ZONES[1]}/on-demand": None})
    after = whole(cloud, tmp_path / "another home", **given)
    after.up()
    assert had(after) == [f"{TYPE}-{ZONES[1]}-on-demand"]
    assert "GCE_STOCKOUT" in tried(after)[f"{TYPE}-{ZONES[0]}-on-demand"]
    assert len(pools(cloud)) == 2


def test_a_failed_cluster_is_recreated_and_the_cause_is_reported(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(quotas={"us-central1/CPUS": 0}, durations={"gke-failed-cluster": 100_000})
    site = whole(cloud, tmp_path, zones=ZONES[:1])
    with pytest.raises(CloudrecError, match=r"cluster/t: .*CPUS"):
        site.up()
    assert site.planned()["cluster/t"].step is PlanStep.REPLACE
    cloud.control(quotas={"us-central1/CPUS": 1000})
    site.up()
    assert site.planned() == {}


def test_up_waits_for_an_automatic_upgrade(cloud: Cloud, tmp_path: Path) -> None:
    given: dict[str, Any] = {"zones": ZONES[:1], "settings": {"compact": False}}
    whole(cloud, tmp_path, **given).up()
    cloud.control(gke_upgrade={"cluster": "cloudrec-t"}, durations={"gke-upgrade": 120})
    site = whole(cloud, tmp_path, **given, nodes=2)
    site.up()
    assert site.planned() == {}


@pytest.mark.parametrize("kind", ["lost", "5xx", "throttle", "drop"])
def test_a_lost_response_creates_no_duplicate(cloud: Cloud, tmp_path: Path, kind: str) -> None:
    before = cloud.state()
    names = ("CreateCluster", "CreateNodePool", "SetNodePoolSize")
    faults = [{"service": "container", "action": name, "kind": kind, "times": 1} for name in names]
    policy = {"service": "compute", "action": "resourcePolicies.insert", "kind": kind, "times": 1}
    cloud.control(faults=[*faults, policy])
    site = whole(cloud, tmp_path, zones=ZONES[:1], nodes=2)
    site.up()
    assert all(fault["times"] == 0 for fault in cloud.ask("GET", "")["faults"])
    assert set(pools(cloud)) == {"cpu", "gpu-a2-highgpu-8g-a-od"}
    assert site.planned() == {}
    site.down()
    assert cloud.state() == before
