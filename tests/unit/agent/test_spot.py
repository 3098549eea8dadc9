"""Spot prices of the pools that have had nodes."""

from __future__ import annotations

from cloudrec.keeper.meter import CostLedger, LiveNode, Tariff, advance, most
from cloudrec.keeper.spot import SpotRecord
from cloudrec.providers.base.prices import Price

TARIFFS = (
    Tariff(pool="gpu-a", instance_type="p4d", capacity="spot", hourly_usd=10.0, gpus=8),
    Tariff(pool="gpu-b", instance_type="p5", capacity="on-demand", hourly_usd=50.0, gpus=8),
    Tariff(pool="cpu", instance_type="m6i", capacity="on-demand", hourly_usd=0.1),
    Tariff(pool="", hourly_usd=0.2),
)


def node(uid: str, pool: str, zone: str = "us-east-1a") -> LiveNode:
    return LiveNode(uid=uid, pool=pool, created=0.0, zone=zone)


def price(name: str, region: str, usd: float, capacity: str = "spot") -> Price:
    return Price(
        region=region, name=name, capacity=capacity, unit="hour", usd=usd, as_of="2026-11-24", source="test"
    )


def located(*nodes: LiveNode) -> SpotRecord:
    return SpotRecord().located(nodes, TARIFFS)


def test_only_pools_that_have_had_spot_nodes_are_asked_for() -> None:
    assert located(node("1", "gpu-a"), node("2", "gpu-b"), node("3", "cpu")).types(TARIFFS) == ("p4d",)
    assert located(node("3", "cpu")).types(TARIFFS) == ()
    assert located(node("1", "gpu-a")).located([], TARIFFS).types(TARIFFS) == ("p4d",)


def test_a_pool_has_the_price_of_its_zone_or_region() -> None:
    listed = [
        price("p4d", "us-east-1a", 11.0),
        price("p4d", "us-east-1b", 12.0),
        price("p4d", "eastus", 13.0),
        price("p4d", "us-east-1a", 99.0, capacity="on-demand"),
    ]

    def found(*zones: str) -> dict[str, float]:
        nodes = [node(str(index), "gpu-a", zone) for index, zone in enumerate(zones)]
        return dict(located(*nodes).prices(TARIFFS, listed))

    assert found("us-east-1a") == {"gpu-a": 11.0}
    assert found("us-east-1a", "us-east-1b") == {"gpu-a": 12.0}
    assert found("eastus-2") == {"gpu-a": 13.0}
    assert found("us-west-2a") == {}
    assert found("") == {}


def test_a_pool_without_nodes_has_the_price_of_the_zone_where_it_had_some() -> None:
    record = located(node("1", "gpu-a"), node("2", "gpu-a", "us-east-1b")).located([], TARIFFS)
    assert record.prices(TARIFFS, [price("p4d", "us-east-1a", 11.0)]) == {"gpu-a": 11.0}
    moved = record.located([node("3", "gpu-a", "us-east-1c")], TARIFFS)
    assert moved.prices(TARIFFS, [price("p4d", "us-east-1a", 11.0)]) == {}


def test_the_record_changes_the_prices_of_its_pools_only() -> None:
    record = SpotRecord(at=1.0, hourly_usd={"gpu-a": 11.0}, zones={"gpu-a": ("us-east-1a",)})
    assert SpotRecord.of(record.to_json()) == record
    assert [each.hourly_usd for each in record.applied(TARIFFS)] == [11.0, 50.0, 0.1, 0.2]
    # Earlier versions kept a price forever, and no zones.
    earlier = SpotRecord.of('{"at": 1.0, "hourly_usd": {"gpu-a": 11.0}}')
    assert [each.hourly_usd for each in earlier.applied(TARIFFS)] == [10.0, 50.0, 0.1, 0.2]
    for text in ("", "{", "[]", '{"at": "x", "hourly_usd": {}}', '{"at": 1, "hourly_usd": []}'):
        assert SpotRecord.of(text) == SpotRecord()


def test_missing_nodes_come_back_in_the_pools_that_have_had_nodes() -> None:
    empty = CostLedger.begun(0.0)
    assert most(empty, [node("3", "cpu")], TARIFFS, 2) == 0.1 + 0.2 + 2 * 50.0
    metered = advance(empty, [node("1", "gpu-a"), node("3", "cpu")], TARIFFS, 3600.0)
    assert most(metered, [node("3", "cpu")], TARIFFS, 2) == 0.1 + 0.2 + 2 * 10.0
