"""Capacity over time: lost spot instances, and the Auto Scaling group that replaces them if it can."""

from __future__ import annotations

from typing import Any

import pytest

from cloudrec_sandbox.core.client import RefusedError
from tests.sandbox.aws.support import Aws, refused
from tests.sandbox.aws.support_eks import active_cluster, create_nodegroup, ground, nodegroup

PLACE = {"zone": "us-east-1a", "instance_type": "m5.large", "capacity": "spot"}
GAP = 3600


def trace(*data: int, **more: Any) -> dict[str, Any]:
    return {**PLACE, "gap_seconds": GAP, "data": list(data), **more}


@pytest.fixture
def spot(aws: Aws) -> Aws:
    """A cluster with an active node group of two spot instances in us-east-1a."""
    base = ground(aws)
    active_cluster(aws, base)
    create_nodegroup(aws, base, capacityType="SPOT")
    aws.advance(200)
    assert len(running(aws)) == 2
    return aws


def instances(aws: Aws) -> list[dict[str, Any]]:
    found = aws.client("ec2").describe_instances()["Reservations"]
    return [instance for reservation in found for instance in reservation["Instances"]]


def running(aws: Aws) -> set[str]:
    return {each["InstanceId"] for each in instances(aws) if each["State"]["Name"] == "running"}


def activities(aws: Aws) -> list[dict[str, Any]]:
    name = nodegroup(aws)["resources"]["autoScalingGroups"][0]["name"]
    answer = aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=name)
    found: list[dict[str, Any]] = answer["Activities"]
    return found


def test_spot_instances_are_lost_after_their_notice_and_replaced_once_there_is_capacity(
    spot: Aws,
) -> None:
    before = running(spot)
    spot.control(capacity_trace=[trace(1, 0, 1)])
    spot.advance(GAP + 100)
    assert running(spot) == before  # two minutes of notice
    spot.advance(30)
    assert running(spot) == set()
    reasons = {each["StateReason"]["Code"] for each in instances(spot)}
    assert reasons == {"Server.SpotInstanceTermination"}
    spot.advance(120)
    newest = activities(spot)[0]
    assert (newest["StatusCode"], nodegroup(spot)["status"]) == ("Failed", "ACTIVE")
    assert "UnfulfillableCapacity" in newest["StatusMessage"]
    spot.advance(600)
    degraded = nodegroup(spot)
    assert degraded["status"] == "DEGRADED"
    assert degraded["health"]["issues"][0]["code"] == "AsgInstanceLaunchFailures"
    assert degraded["scalingConfig"]["desiredSize"] == 2
    spot.advance(GAP)
    assert len(running(spot)) == 2
    assert not running(spot) & before
    assert nodegroup(spot)["status"] == "ACTIVE"


def test_changes_within_one_jump_of_the_clock_happen_in_order(spot: Aws) -> None:
    before = running(spot)
    spot.control(real_times=False, bill=True, capacity_trace=[trace(1, 0, 1, 0, 1)])
    spot.advance(5 * GAP)
    assert len(running(spot)) == 2
    assert not running(spot) & before
    assert len(instances(spot)) == 6  # two of each hour with capacity
    lines = [each for each in spot.ask("GET", "/bill")["lines"] if each["kind"] == "instance"]
    spot.control(real_times=True, bill=False)
    hours = sorted(round(each["seconds"] / GAP, 1) for each in lines)
    # Each is billed until its end after two minutes of notice, and its replacement from the next attempt on.
    assert hours == [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_a_degraded_group_of_size_0_stays_degraded(spot: Aws) -> None:
    spot.control(capacity_trace=[trace(0)])
    spot.advance(1000)
    spot.client("eks").update_nodegroup_config(
        clusterName="one", nodegroupName="cpu", scalingConfig={"minSize": 0, "desiredSize": 0}
    )
    spot.advance(600)
    assert nodegroup(spot)["status"] == "DEGRADED"


def test_a_count_limits_how_many_run_at_once(spot: Aws) -> None:
    spot.control(capacity_trace=[trace(2, 1, 3, counts=True)])
    spot.advance(GAP + 600)
    assert len(running(spot)) == 1
    spot.advance(GAP)
    assert len(running(spot)) == 2


def test_no_one_gets_a_machine_while_there_is_none(spot: Aws) -> None:
    kept = running(spot)
    spot.control(capacity_trace=[{**trace(0), "capacity": "on-demand"}])
    spot.advance(GAP)
    assert running(spot) == kept
    wish = {"ImageId": "ami-12c6146b", "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1}
    where = {"Placement": {"AvailabilityZone": "us-east-1a"}}
    with refused("InsufficientInstanceCapacity"):
        spot.client("ec2").run_instances(**wish, **where)
    spot.control(capacity_trace=None)
    spot.client("ec2").run_instances(**wish, **where)


def test_a_trace_that_began_earlier_or_begins_later(spot: Aws) -> None:
    now = spot.control()["virtual_time"]
    spot.control(capacity_trace=[trace(0, 1, began=now - GAP - 1)])
    spot.advance(300)
    assert len(running(spot)) == 2
    spot.control(capacity_trace=[trace(0, began=now + GAP, notice_s=0)])
    (shown,) = spot.control()["capacity_trace"]
    assert (shown["index"], shown["most"], shown["samples"]) == (-1, None, 1)
    spot.advance(GAP - 400)
    assert len(running(spot)) == 2
    spot.advance(200)
    assert running(spot) == set()


def test_a_terminated_instance_is_replaced_only_where_there_is_capacity(spot: Aws) -> None:
    (one, two) = sorted(running(spot))
    spot.client("ec2").terminate_instances(InstanceIds=[one])
    spot.advance(300)
    assert len(running(spot)) == 2
    spot.control(capacity={"m5.large/us-east-1a/spot": 0})
    spot.client("ec2").terminate_instances(InstanceIds=[two])
    spot.advance(300)
    assert len(running(spot)) == 1
    assert activities(spot)[0]["StatusCode"] == "Failed"
    spot.control(capacity={"m5.large/us-east-1a/spot": None})
    spot.advance(100)
    assert len(running(spot)) == 2


@pytest.mark.parametrize(
    ("wish", "word"),
    [
        ({"zone": "us-east-1a"}, "has no instance_type, capacity, gap_seconds, data"),
        ({**trace(1), "gap": 1}, "unknown gap"),
        (trace(2), "sample 2 is not 0 or 1"),
        (trace(), "data is no list"),
        ({**trace(1), "gap_seconds": 0}, "gap_seconds 0 is not above 0"),
        ({**trace(1), "notice_s": -1}, "notice_s -1"),
        ({**trace(1), "instance_type": "p99.large"}, "of a known type"),
        ({**trace(1), "capacity": "capacity-block"}, "of a known type"),
        ({**trace(1), "zone": "moon"}, "of a known type"),
        ("spot", "is no trace"),
    ],
)
def test_what_is_no_trace_is_refused(aws: Aws, wish: Any, word: str) -> None:
    with pytest.raises(RefusedError, match=word):
        aws.control(capacity_trace=[wish])
    with pytest.raises(RefusedError, match="two traces"):
        aws.control(capacity_trace=[trace(1), trace(0)])
    assert aws.control()["capacity_trace"] == []
