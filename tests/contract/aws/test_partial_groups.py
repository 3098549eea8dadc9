"""No part of a gang is paid for: a group that gets only some of its nodes ends, and the next is tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudrec.errors import NoCapacityError
from tests.contract.aws.support import Site
from tests.sandbox.aws.support import Aws

TYPE, ZONES = "p4d.24xlarge", ("us-east-1a", "us-east-1b")
LEFT = {f"{TYPE}/{ZONES[0]}/on-demand": 2}
TOO_FEW = {f"{TYPE}/{zone}/on-demand": 2 for zone in ZONES}


@pytest.fixture
def billed(aws: Aws) -> Iterator[Aws]:
    aws.control(bill=True)
    yield aws
    aws.control(bill=False)


def machines(aws: Aws) -> list[str]:
    """The zones of the GPU nodes that run."""
    rows = aws.client("ec2").describe_instances(
        Filters=[
            {"Name": "instance-type", "Values": [TYPE]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
    )["Reservations"]
    return sorted(each["Placement"]["AvailabilityZone"] for row in rows for each in row["Instances"])


def gpu_bill(aws: Aws, cpu_nodes: int = 2) -> float:
    """What the instances have cost, without those of CPU nodes, which are the cheapest."""
    usd = sorted(row["usd"] for row in aws.ask("GET", "/bill")["lines"] if row["kind"] == "instance")
    return float(sum(usd[cpu_nodes:]))


def test_two_of_four_nodes_end_and_the_next_zone_has_all_four(aws: Aws, tmp_path: Path) -> None:
    aws.control(capacity=LEFT)
    Site(aws, tmp_path, zones=ZONES, nodes=4).up()
    assert machines(aws) == [ZONES[1]] * 4


def test_two_of_four_nodes_everywhere_leave_none_and_no_cost(billed: Aws, tmp_path: Path) -> None:
    aws = billed
    aws.control(capacity=TOO_FEW)
    site = Site(aws, tmp_path, zones=ZONES, nodes=4)
    with pytest.raises(NoCapacityError, match="none of 2 candidates") as caught:
        site.up()
    assert caught.value.exit_code == 4
    assert machines(aws) == []
    paid = gpu_bill(aws)
    assert paid > 0, "the two nodes ran for a while"
    aws.advance(6 * 3600)
    assert gpu_bill(aws) == pytest.approx(paid)
    assert {seen.kind for seen in site.found().values()}.isdisjoint({"gpu-nodes"})


def test_two_of_four_nodes_of_a_group_that_was_at_zero_end_too(aws: Aws, tmp_path: Path) -> None:
    site = Site(aws, tmp_path, zones=ZONES, nodes=4)
    site.up()
    site.provider.halt(site.cluster)
    aws.advance(1800)
    assert machines(aws) == []
    aws.control(capacity=LEFT)
    site.up()
    assert machines(aws) == [ZONES[1]] * 4


def test_more_nodes_that_are_not_there_do_not_end_those_that_run(aws: Aws, tmp_path: Path) -> None:
    Site(aws, tmp_path, zones=ZONES[:1], nodes=2).up()
    aws.control(capacity={f"{TYPE}/{ZONES[0]}/on-demand": 1})
    more = Site(aws, tmp_path, zones=ZONES[:1], nodes=4)
    with pytest.raises(NoCapacityError) as caught:
        more.up()
    assert caught.value.exit_code == 4
    assert machines(aws) == [ZONES[0]] * 2
