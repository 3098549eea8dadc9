"""Nodes that are reserved, and what all of them cost."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudrec.cloud.prices import saved_at
from cloudrec.errors import PreflightError
from cloudrec.providers.aws import prices
from cloudrec.providers.aws.client import Aws as Account
from tests.contract.aws.support import Site
from tests.contract.sandbox_aws.support import Aws

TYPE, ZONE = "p4d.24xlarge", "us-east-1a"


def bought_block(aws: Aws) -> str:
    """A capacity block of one node, which has begun."""
    ec2 = aws.client("ec2")
    offered = ec2.describe_capacity_block_offerings(
        InstanceType=TYPE, InstanceCount=1, CapacityDurationHours=48
    )["CapacityBlockOfferings"]
    answer = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offered[0]["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )
    block: str = answer["CapacityReservation"]["CapacityReservationId"]
    return block


def test_a_capacity_block_is_used_once_it_has_begun(aws: Aws, tmp_path: Path) -> None:
    block = bought_block(aws)
    site = Site(aws, tmp_path, zones=(ZONE,), settings={"capacity_block_id": block})
    with pytest.raises(PreflightError, match=f"capacity reservation {block}: .*needed: active, of {TYPE}"):
        site.up()
    row = aws.client("ec2").describe_capacity_reservations(CapacityReservationIds=[block])
    begins = row["CapacityReservations"][0]["StartDate"]
    clock = datetime.fromtimestamp(aws.calls()[-1]["virtual_time"], UTC)
    aws.advance((begins - clock).total_seconds() + 60)
    site.up()
    eks = aws.client("eks")
    (name,) = [name for name in eks.list_nodegroups(clusterName="cloudrec-t")["nodegroups"] if "gpu" in name]
    group = eks.describe_nodegroup(clusterName="cloudrec-t", nodegroupName=name)["nodegroup"]
    assert group["capacityType"] == "CAPACITY_BLOCK"
    assert not [line for line in aws.state() if "placement-group" in line]


def test_what_is_reserved_is_not_looked_for_among_spot_nodes(aws: Aws, tmp_path: Path) -> None:
    settings = {"capacity_reservation_id": "cr-0123456789abcdef0"}
    site = Site(aws, tmp_path, zones=(ZONE,), capacity="spot-first", settings=settings)
    assert {offer.capacity for offer in site.provider.offers(site.cluster)} == {"on-demand"}


def test_prices_are_renewed_from_the_price_list(aws: Aws, tmp_path: Path) -> None:
    account = Account(aws.env)
    renewed = prices.refresh(account, "us-east-1", ["p5.48xlarge"])
    assert renewed.node("p5.48xlarge") == pytest.approx(55.04)
    assert renewed.date == datetime.now(UTC).date().isoformat()
    renewed.save(tmp_path / "prices.json")
    assert saved_at(tmp_path / "prices.json", prices.shipped()) == renewed


def test_spot_prices_are_those_of_now_by_zone(aws: Aws) -> None:
    aws.control(spot_price_factor={f"{TYPE}/{ZONE}": 0.5})
    assert prices.spot(Account(aws.env), [TYPE])[TYPE, ZONE] == pytest.approx(21.96 / 2)
