"""Spot prices of the pools that have nodes."""

from __future__ import annotations

from cloudrec.keeper.meter import CostLedger, LiveNode, Tariff, advance, most
from cloudrec.keeper.spot import SpotRecord, by_pool, types_in_use
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


def test_only_pools_with_spot_nodes_are_asked_for() -> None:
    assert types_in_use([node("1", "gpu-a"), node("2", "gpu-b"), node("3", "cpu")], TARIFFS) == ("p4d",)
    assert types_in_use([node("3", "cpu")], TARIFFS) == ()


def test_a_pool_has_the_price_of_its_zone_or_region() -> None:
    prices = [
        price("p4d", "us-east-1a", 11.0),
        price("p4d", "us-east-1b", 12.0),
        price("p4d", "eastus", 13.0),
        price("p4d", "us-east-1a", 99.0, capacity="on-demand"),
    ]
    assert by_pool([node("1", "gpu-a")], TARIFFS, prices) == {"gpu-a": 11.0}
    both = [node("1", "gpu-a"), node("2", "gpu-a", "us-east-1b")]
    assert by_pool(both, TARIFFS, prices) == {"gpu-a": 12.0}
    assert by_pool([node("1", "gpu-a", "eastus-2")], TARIFFS, prices) == {"gpu-a": 13.0}
    assert by_pool([node("1", "gpu-a", "us-west-2a")], TARIFFS, prices) == {}
    assert by_pool([node("1", "gpu-a", "")], TARIFFS, prices) == {}


def test_the_record_changes_the_prices_of_its_pools_only() -> None:
    record = SpotRecord(at=1.0, hourly_usd={"gpu-a": 11.0})
    assert SpotRecord.of(record.to_json()) == record
    assert [each.hourly_usd for each in record.applied(TARIFFS)] == [11.0, 50.0, 0.1, 0.2]
    for text in ("", "{", "[]", '{"at": "x", "hourly_usd": {}}', '{"at": 1, "hourly_usd": []}'):
        assert SpotRecord.of(text) == SpotRecord()


def test_missing_nodes_come_back_in_the_pools_that_have_had_nodes() -> None:
    empty = CostLedger.begun(0.0)
    assert most(empty, [node("3", "cpu")], TARIFFS, 2) == 0.1 + 0.2 + 2 * 50.0
    metered = advance(empty, [node("1", "gpu-a"), node("3", "cpu")], TARIFFS, 3600.0)
    assert most(metered, [node("3", "cpu")], TARIFFS, 2) == 0.1 + 0.2 + 2 * 10.0
