"""The bill of a stand-in: seconds times the price at the time, of each resource."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloudrec_sandbox.core.world import Charge, World
from tests.sandbox.aws.support import Aws
from tests.sandbox.aws.support import stand_in as aws_stand_in

HOUR = 3600.0


class Nodes:
    """Nodes of one price, as a stand-in's service keeps them."""

    def __init__(self) -> None:
        self.hourly: dict[str, float] = {}


def nodes_of(world: World) -> dict[str, float]:
    return world.state(Nodes).hourly


def begun() -> World:
    """A world whose virtual time only advances by order, with a bill of the nodes."""
    world = World({})
    world.clock.real_times = False
    world.clock.speed = 1e-9
    world.keep_bill(lambda: [Charge("node", name, usd) for name, usd in nodes_of(world).items()])
    return world


def passed(world: World, seconds: float) -> dict[tuple[str, str], tuple[float, float]]:
    """The bill after some time: seconds and USD."""
    world.clock.advance(seconds)
    world.settle()
    assert world.bill is not None
    return {key: (line.seconds, line.usd) for key, line in world.bill.lines.items()}


def remove(world: World, name: str) -> None:
    del nodes_of(world)[name]


def test_a_change_in_the_agenda_is_billed_at_its_own_moment() -> None:
    world = begun()
    nodes_of(world).update(a=10.0, b=20.0)
    world.after(HOUR / 2, remove, "b")
    bill = passed(world, 2 * HOUR)
    assert bill[("node", "a")] == pytest.approx((2 * HOUR, 20.0))
    assert bill[("node", "b")] == pytest.approx((HOUR / 2, 10.0))


def test_a_price_counts_from_its_change_on() -> None:
    world = begun()
    nodes_of(world)["a"] = 10.0
    passed(world, HOUR)
    nodes_of(world)["a"] = 40.0
    assert passed(world, HOUR)[("node", "a")] == pytest.approx((2 * HOUR, 50.0))


def test_time_without_nodes_costs_nothing() -> None:
    world = begun()
    assert passed(world, HOUR) == {}
    nodes_of(world)["a"] = 10.0
    assert passed(world, HOUR)[("node", "a")] == pytest.approx((HOUR, 10.0))


def test_the_bill_is_in_the_time_of_clients_if_the_times_they_name_are_real() -> None:
    world = begun()
    world.clock.real_times = True
    nodes_of(world)["a"] = 10.0
    seconds, _ = passed(world, HOUR)[("node", "a")]
    assert seconds < HOUR / 2  # an hour of virtual time has passed within moments of the client's


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with aws_stand_in() as made:
        yield made


def test_an_instance_and_its_volume_are_on_the_bill_until_they_are_gone(aws: Aws) -> None:
    aws.control(real_times=False, speed=0.001, bill=True)
    ec2 = aws.client("ec2")
    ran = ec2.run_instances(ImageId="ami-12c6146b", InstanceType="m5.large", MinCount=1, MaxCount=1)
    name = ran["Instances"][0]["InstanceId"]
    aws.advance(HOUR)
    lines = {each["id"]: each for each in aws.ask("GET", "/bill")["lines"]}
    assert lines[name]["usd"] == pytest.approx(0.096, rel=0.05)
    ec2.terminate_instances(InstanceIds=[name])
    aws.advance(HOUR)
    later = {each["id"]: each for each in aws.ask("GET", "/bill")["lines"]}
    assert later[name]["usd"] == pytest.approx(lines[name]["usd"], rel=0.01)
