"""AWS ends a cluster by itself, with no guard in it and no client."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app.records import known_clusters
from cloudrec.spec.models import ClusterSpec
from tests.contract.aws.support import Site, fresh
from tests.sandbox.aws.support import Aws, stand_in
from tests.tallies import Tally

FIVE_MINUTES = 300.0
EARLY = 7200.0  # the stand-in's clock takes some seconds for it
TTL = "1h"
ARGUMENTS = ("up", "aws", "--cluster", "t", "--ttl", TTL, "--nodes", "1", "--access", "private", "--yes")


@pytest.fixture(scope="module")
def own() -> Iterator[Aws]:
    """A stand-in for these tests, since they let weeks pass: Kubernetes' versions leave their support."""
    with stand_in() as aws:
        aws.ask("POST", "/save", {"name": "start"})
        yield aws


@pytest.fixture
def aws(own: Aws) -> Aws:
    begin(own)
    return own


@pytest.fixture
def limited(aws: Aws, tmp_path: Path) -> Site:
    """A cluster with an end, and no add-ons in it: no guard."""
    return Site(aws, tmp_path, ttl=TTL)


def begin(aws: Aws) -> None:
    """Reset the account and the clock."""
    fresh(aws)
    aws.ask("POST", "/restore", {"name": "start"})
    fresh(aws)


def gpu_machines(aws: Aws) -> list[str]:
    """The instances of GPU types that run."""
    rows = aws.client("ec2").describe_instances()["Reservations"]
    return [
        row["InstanceId"]
        for reservation in rows
        for row in reservation["Instances"]
        if row["State"]["Name"] in {"pending", "running"} and row["InstanceType"].startswith("p")
    ]


def virtual_end(aws: Aws, expires: str) -> float:
    """The stand-in's time at an end, which is a time of this machine's clock; no time may be skipped yet."""
    settings = aws.ask("GET", "")
    left = datetime.fromisoformat(expires).timestamp() - time.time()
    return float(settings["virtual_time"]) + left * float(settings["speed"])


def pass_until(aws: Aws, moment: float) -> None:
    """Let the stand-in's time pass until a moment."""
    left = moment - float(aws.ask("GET", "")["virtual_time"])
    assert left > 0
    aws.advance(left)


def end_of(site: Site) -> str:
    """The end of the cluster, from the journal."""
    (known,) = known_clusters(site.application, name="t")
    assert known.cluster.expires
    return known.cluster.expires


def schedules(aws: Aws) -> list[dict[str, Any]]:
    client = aws.client("scheduler")
    rows = client.list_schedules(GroupName="cloudrec-t")["Schedules"]
    return [client.get_schedule(GroupName="cloudrec-t", Name=row["Name"]) for row in rows]


def test_gpu_nodes_end_within_five_minutes_of_the_end_without_guard_and_client(
    aws: Aws, limited: Site
) -> None:
    limited.up()
    assert len(gpu_machines(aws)) == 1
    end = virtual_end(aws, end_of(limited))
    pass_until(aws, end - EARLY)
    assert len(gpu_machines(aws)) == 1
    pass_until(aws, end + FIVE_MINUTES)
    assert gpu_machines(aws) == []
    groups = aws.client("eks").list_nodegroups(clusterName="cloudrec-t")["nodegroups"]
    sizes = {
        name: aws.client("eks").describe_nodegroup(clusterName="cloudrec-t", nodegroupName=name)["nodegroup"][
            "scalingConfig"
        ]["desiredSize"]
        for name in groups
    }
    assert sizes.pop("cpu") > 0
    assert set(sizes.values()) == {0}
    (made,) = sizes
    assert made not in {row["Name"] for row in schedules(aws)}  # a schedule that has run deletes itself


def test_the_schedules_exist_before_the_first_gpu_node(aws: Aws, limited: Site) -> None:
    limited.up()
    made = [f"{call['service']}:{call['action']}" for call in aws.calls()]
    groups = [number for number, call in enumerate(made) if call == "eks:CreateNodegroup"]
    assert made.index("scheduler:CreateSchedule") < groups[-1]
    for row in schedules(aws):
        assert row["ScheduleExpressionTimezone"] == "UTC"
        assert json.loads(row["Target"]["Input"])["ScalingConfig"]["DesiredSize"] == 0


def test_each_group_of_nodes_that_a_fallback_can_make_has_a_schedule(aws: Aws, tmp_path: Path) -> None:
    zones = ("us-east-1a", "us-east-1b")
    site = Site(aws, tmp_path, ttl=TTL, zones=zones, capacity="spot-first")
    aws.control(capacity={f"p4d.24xlarge/{zones[0]}/spot": 0})
    site.up()
    names = {row["Name"] for row in schedules(aws)}
    assert names == {f"gpu-p4d-24xlarge-{zone}-{way}" for zone in ("a", "b") for way in ("spot", "od")}
    pass_until(aws, virtual_end(aws, end_of(site)) + FIVE_MINUTES)
    assert gpu_machines(aws) == []


@pytest.mark.slow
def test_a_second_up_changes_nothing_and_a_new_ttl_moves_the_schedules(aws: Aws, limited: Site) -> None:
    limited.up()
    assert limited.planned() == {}
    before = {row["ScheduleExpression"] for row in schedules(aws)}
    limited.cluster = ClusterSpec.model_validate({**limited.cluster.model_dump(mode="json"), "ttl": "2h"})
    assert "end-schedule/t" in limited.planned()
    limited.up()
    after = {row["ScheduleExpression"] for row in schedules(aws)}
    assert len(before) == len(after) == 1
    moved = [datetime.fromisoformat(text[3:-1]) for text in (*before, *after)]
    assert (moved[1] - moved[0]).total_seconds() == pytest.approx(3600, abs=600)
    assert limited.planned() == {}


@pytest.mark.slow
def test_schedules_that_others_changed_or_deleted_are_repaired(aws: Aws, limited: Site) -> None:
    limited.up()
    client, before = aws.client("scheduler"), schedules(aws)
    row = before[0]
    kept = {name: row[name] for name in ("Name", "GroupName", "FlexibleTimeWindow", "ScheduleExpression")}
    target = {**row["Target"], "Input": '{"ClusterName": "other", "NodegroupName": "cpu"}'}
    client.update_schedule(**kept, Target=target)
    assert list(limited.planned()) == ["end-schedule/t"]
    limited.up()
    assert limited.planned() == {}
    client.delete_schedule(GroupName="cloudrec-t", Name=row["Name"])
    assert list(limited.planned()) == ["end-schedule/t"]
    limited.up()
    after = {each["Name"]: each["Target"] for each in schedules(aws)}
    assert after == {each["Name"]: each["Target"] for each in before}


def test_a_budget_ends_within_five_percent_of_its_money_though_the_nodes_are_cheaper(
    aws: Aws, tmp_path: Path
) -> None:
    # The first end is that of on-demand nodes; spot nodes are made.
    site = Site(aws, tmp_path, zones=("us-east-1a",), capacity="spot-first", budget_usd=1000.0)
    site.up()
    ends = {row["ScheduleExpression"] for row in schedules(aws)}
    assert ends == {f"at({end_of(site).removesuffix('Z')})"}
    (view,) = app.clusters(site.application, "t")
    left = datetime.fromisoformat(end_of(site)) - datetime.now(UTC)
    assert not view.cost.unknown
    assert left.total_seconds() / 3600 * view.cost.known_usd == pytest.approx(1000.0, rel=0.05)
    assert site.planned() == {}


@pytest.mark.slow
def test_down_removes_the_schedules(aws: Aws, limited: Site) -> None:
    limited.up()
    limited.down()
    assert aws.state() == []


def test_a_cluster_without_an_end_has_no_schedules(aws: Aws, site: Site) -> None:
    site.up()
    assert not [entry for entry in aws.state() if entry.startswith("scheduler:")]


def test_leaks_names_the_schedules_of_a_forgotten_cluster(aws: Aws, limited: Site, tmp_path: Path) -> None:
    limited.up()
    other = Site(aws, tmp_path / "other")
    found = {leak.found.kind for leak in app.leaks(other.application, "aws").leaks}
    assert "end-schedule" in found


@pytest.mark.slow
def test_gpu_nodes_of_a_killed_up_end_on_each_sampled_call(aws: Aws, tmp_path: Path) -> None:
    calls = calls_from_the_group_on(aws, tmp_path)
    assert ended_after(aws, tmp_path, calls[:: max(1, len(calls) // 4)]) == []


@pytest.mark.soak
def test_gpu_nodes_of_a_killed_up_end_on_every_call(aws: Aws, tmp_path: Path, tally: Tally) -> None:
    calls = calls_from_the_group_on(aws, tmp_path)
    kills = [calls[number % len(calls)] for number in range(100)]
    left = ended_after(aws, tmp_path, kills)
    tally(f"{len(kills) - len(left)} of {len(kills)} ended, killed at calls {calls[0]} to {calls[-1]}")
    assert left == []


def calls_from_the_group_on(aws: Aws, folder: Path) -> list[int]:
    """The numbers of the calls of `up` from the creation of the group of GPU nodes to the last one."""
    site = Site(aws, folder / "whole")
    assert site.killed(ARGUMENTS, call=100_000, when="after") == 0
    made = [(call["service"], call["action"]) for call in aws.calls()]
    (first,) = [number for number, call in enumerate(made, 1) if call == ("eks", "CreateNodegroup")][1:]
    return list(range(first, len(made) + 1))


def ended_after(aws: Aws, folder: Path, calls: Sequence[int]) -> list[int]:
    """Kill `up` at each of these calls, and let the end pass; return those after which GPU nodes are left."""
    left, had = [], 0
    for turn, number in enumerate(calls):
        begin(aws)
        site = Site(aws, folder / str(turn))
        site.killed(ARGUMENTS, call=number, when="after")
        end = virtual_end(aws, end_of(site))
        aws.advance(1800)  # what was begun is completed
        had += bool(gpu_machines(aws))
        pass_until(aws, end + FIVE_MINUTES)
        if gpu_machines(aws):
            left.append(number)
    # The number of polls before the group's creation depends on the machine's speed.
    assert had > len(calls) // 2
    return left
