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


def reserved(aws: Aws, count: int) -> str:
    """A capacity reservation of the user; its id."""
    made = aws.client("ec2").create_capacity_reservation(
        InstanceType=TYPE, InstancePlatform="Linux/UNIX", AvailabilityZone=ZONE, InstanceCount=count
    )
    name: str = made["CapacityReservation"]["CapacityReservationId"]
    return name


def test_reserved_nodes_are_used_where_the_zone_has_no_others(aws: Aws, tmp_path: Path) -> None:
    name = reserved(aws, 2)
    aws.control(capacity={f"{TYPE}/{ZONE}/on-demand": 0})
    settings = {"capacity_reservation_id": name}
    site = Site(aws, tmp_path, zones=(ZONE,), nodes=2, settings=settings)
    site.up()
    (row,) = aws.client("ec2").describe_capacity_reservations(CapacityReservationIds=[name])[
        "CapacityReservations"
    ]
    assert (row["TotalInstanceCount"], row["AvailableInstanceCount"]) == (2, 0)
    assert site.planned() == {}


@pytest.mark.parametrize(
    ("count", "given"), [(1, {}), (2, {"zones": ("us-east-1b",)}), (2, {"instance_types": ("p5.48xlarge",)})]
)
def test_a_reservation_that_does_not_fit_is_refused_before_anything_is_made(
    aws: Aws, tmp_path: Path, count: int, given: dict[str, Any]
) -> None:
    name = reserved(aws, count)
    asked = {"zones": (ZONE,), "nodes": 2, "settings": {"capacity_reservation_id": name}, **given}
    site = Site(aws, tmp_path, **asked)
    since = len(aws.calls())
    with pytest.raises(PreflightError, match=f"capacity reservation {name}: active {count} x {TYPE}"):
        site.up()
    assert site.changes(since) == []


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
    # One for each of the types and services, and one for the traffic to other regions.
    assert (asked.count("GetProducts"), asked.count("DescribeSpotPriceHistory")) == (11, 1)
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
