"""Reserved nodes, and the prices of all capacity types."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.errors import PreflightError
from cloudrec.providers.aws import price_list
from cloudrec.providers.aws.api.client import Aws as Account
from tests.contract.aws.support import Site
from tests.sandbox.aws.support import Aws

TYPE, ZONE = "p4d.24xlarge", "us-east-1a"


def bought_block(aws: Aws) -> str:
    """An active capacity block of one node."""
    ec2 = aws.client("ec2")
    offered = ec2.describe_capacity_block_offerings(
        InstanceType=TYPE, InstanceCount=1, CapacityDurationHours=48
    )["CapacityBlockOfferings"]
    answer = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offered[0]["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )
    block: str = answer["CapacityReservation"]["CapacityReservationId"]
    return block


def test_a_capacity_block_is_used_once_it_is_active(aws: Aws, tmp_path: Path) -> None:
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


def test_reserved_capacity_is_never_requested_as_spot(aws: Aws, tmp_path: Path) -> None:
    settings = {"capacity_reservation_id": "cr-0123456789abcdef0"}
    site = Site(aws, tmp_path, zones=(ZONE,), capacity="spot-first", settings=settings)
    assert {offer.capacity for offer in site.provider.offers(site.cluster)} == {"on-demand"}


def test_prices_of_nodes_and_services_are_those_of_the_price_list(aws: Aws) -> None:
    account = Account(aws.env)
    (node,) = price_list.on_demand(account, "us-east-1", ["p5.48xlarge", "p5e.48xlarge"])
    assert (node.name, node.capacity, node.usd, node.unit) == ("p5.48xlarge", "on-demand", 55.04, "hour")
    assert (node.as_of, node.source) == (datetime.now(UTC).date().isoformat(), "AWS price list")
    found: dict[str, Any] = {
        row.name: (row.usd, row.unit) for row in price_list.services(account, "eu-west-1")
    }
    assert found == {
        "eks-cluster": (pytest.approx(0.11), "hour"),
        "nat-gateway": (pytest.approx(0.0495), "hour"),
        "nat-gateway-gb": (pytest.approx(0.0495), "GB"),
        "interface-endpoint": (pytest.approx(0.011), "hour"),
        "interface-endpoint-gb": (pytest.approx(0.011), "GB"),
        "public-address": (pytest.approx(0.0055), "hour"),
        "load-balancer": (pytest.approx(0.02475), "hour"),
        "classic-load-balancer": (pytest.approx(0.0275), "hour"),
        "ebs-gp3-gib": (pytest.approx(0.088), "GiB-month"),
        "ebs-snapshot-gib": (pytest.approx(0.055), "GiB-month"),
    }


def test_spot_prices_are_current_and_per_zone(aws: Aws) -> None:
    aws.control(spot_price_factor={f"{TYPE}/{ZONE}": 0.5})
    usd = {row.region: row.usd for row in price_list.spot(Account(aws.env), [TYPE])}
    assert usd[ZONE] == pytest.approx(21.96 / 2)
    assert len(usd) > 1


def test_up_asks_for_the_prices_of_its_types_once_a_day_and_for_spot_prices_each_time(
    aws: Aws, tmp_path: Path
) -> None:
    aws.control(spot_price_factor={f"{TYPE}/eu-west-1c": 0.5})
    site = Site(aws, tmp_path, zones=("eu-west-1c",), capacity="spot-first", region="eu-west-1")
    started = len(aws.calls())
    plan = app.up(site.application, site.cluster, decide=lambda _plan: False)
    (choice,) = [action.resource for action in plan.actions if action.resource and action.resource.candidates]
    spot, on_demand = choice.candidates
    assert spot.hourly_usd == pytest.approx(12.078)
    assert on_demand.hourly_usd == pytest.approx(24.156)
    assert plan.cost.unknown == ()
    assert plan.most.known_usd - plan.cost.known_usd == pytest.approx(12.078)
    asked = [line["action"] for line in aws.calls(started)]
    assert (asked.count("GetProducts"), asked.count("DescribeSpotPriceHistory")) == (10, 1)
    later = Site(aws, tmp_path, zones=("eu-west-1c",), capacity="spot-first", region="eu-west-1")
    started = len(aws.calls())
    app.up(later.application, later.cluster, decide=lambda _plan: False)
    asked = [line["action"] for line in aws.calls(started)]
    assert (asked.count("GetProducts"), asked.count("DescribeSpotPriceHistory")) == (0, 1)


def test_up_uses_the_known_prices_if_the_cloud_gives_none(aws: Aws, tmp_path: Path) -> None:
    denied = {"service": "pricing", "action": "GetProducts", "kind": "error", "times": 99}
    aws.control(faults=[{**denied, "code": "AccessDeniedException", "status": 400, "message": "no"}])
    lines: list[str] = []
    site = Site(aws, tmp_path, zones=(ZONE,))
    application = replace(site.application, report=lines.append)
    plan = app.up(application, site.cluster, decide=lambda _plan: False)
    assert plan.cost.unknown == ()
    (line,) = [line for line in lines if "prices" in line]
    assert line.startswith("note: the cloud gave no current prices, so the plan has earlier ones: ")
    assert "pricing:GetProducts" in line
