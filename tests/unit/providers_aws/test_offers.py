"""The order of candidates, and their prices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloudrec.providers.aws import prices
from cloudrec.providers.aws.nodes import nodes
from cloudrec.providers.aws.offers import KNOWN, described
from cloudrec.providers.base.offers import CAPACITY_TYPES, Placement, all_ways, catalog, offers
from cloudrec.providers.base.prices import Price
from tests.unit.providers_aws.support import layout


def test_all_spot_candidates_come_before_the_first_on_demand_one() -> None:
    tried = all_ways(["p5.48xlarge", "p4d.24xlarge"], ["a", "b"], CAPACITY_TYPES["spot-first"], {})
    assert [(each.capacity, each.instance_type, each.zone) for each in tried] == [
        (capacity, name, zone)
        for capacity in ("spot", "on-demand")
        for name in ("p5.48xlarge", "p4d.24xlarge")
        for zone in ("a", "b")
    ]


@pytest.mark.parametrize(("capacity", "capacity_types"), [("spot", {"spot"}), ("on-demand", {"on-demand"})])
def test_only_the_requested_capacity_type_is_tried(capacity: str, capacity_types: set[str]) -> None:
    assert {
        each.capacity for each in all_ways(["g5.xlarge"], ["a"], CAPACITY_TYPES[capacity], {})
    } == capacity_types


def test_a_zone_without_a_type_is_not_tried_for_it() -> None:
    tried = all_ways(["p5.48xlarge", "g5.xlarge"], ["a", "b"], ("spot",), {"p5.48xlarge": ["b"]})
    assert [(each.instance_type, each.zone) for each in tried] == [
        ("p5.48xlarge", "b"),
        ("g5.xlarge", "a"),
        ("g5.xlarge", "b"),
    ]


HERE = prices.shipped().within("us-east-1")


def row(usd: float, *, region: str, capacity: str = "spot") -> Price:
    return Price(
        region=region,
        name="p4d.24xlarge",
        capacity=capacity,
        unit="hour",
        usd=usd,
        as_of="2026-11-22",
        source="a list",
    )


def test_every_known_type_has_a_dated_price_but_one_that_is_sold_in_blocks() -> None:
    listed = {name: HERE.price(name, "on-demand") for name in KNOWN}
    assert [name for name, price in listed.items() if price is None] == ["p5e.48xlarge"]
    for price in filter(None, listed.values()):
        assert price.as_of >= "2026"
        assert price.label == f"{price.as_of}, us-east-1, {price.source}"


def test_an_offer_has_the_price_of_its_market_and_its_source() -> None:
    ways = [
        Placement(instance_type="p4d.24xlarge", zone=zone, capacity=capacity)
        for zone, capacity in [("a", "spot"), ("b", "spot"), ("a", "on-demand")]
    ]
    made = offers(ways, KNOWN, HERE.renewed([row(9.5, region="a")]))
    assert [(each.hourly_usd, each.capacity) for each in made] == [
        (9.5, "spot"),
        (None, "spot"),
        (21.9576, "on-demand"),
    ]
    assert made[0].priced == "2026-11-22, a, a list"
    assert (made[0].gpus, made[0].gpu, made[0].vcpus) == (8, "A100", 96)


def test_the_catalogue_lists_the_cheapest_zone_first() -> None:
    table = HERE.renewed([row(9.5, region="b"), row(11.0, region="a"), row(8.0, region="elsewhere")])
    listed = catalog(KNOWN, {"p4d.24xlarge": ("a", "b", "c")}, table)
    assert [(each.capacity, each.location, each.hourly_usd) for each in listed] == [
        ("on-demand", "3 zones", 21.9576),
        ("spot", "b", 9.5),
        ("spot", "a", 11.0),
    ]


def test_the_catalogue_leaves_out_types_that_no_zone_has_unless_they_are_named() -> None:
    zones_of = {"p4d.24xlarge": ("a",), "p5.48xlarge": (), "p5en.48xlarge": ()}
    listed = catalog(KNOWN, zones_of, HERE, named=["p5.48xlarge"])
    assert [(each.instance_type, each.location) for each in listed] == [
        ("p4d.24xlarge", "1 zones"),
        ("p5.48xlarge", "0 zones"),
    ]


def test_the_cost_of_a_type_without_a_price_is_unknown() -> None:
    assert HERE.node("x9.huge") is None
    assert HERE.nodes("x9.huge", 4) is None
    assert HERE.nodes("x9.huge", 0) == 0.0  # no nodes
    assert HERE.service("x9-gateway") is None
    assert HERE.nodes("p5.48xlarge", 2) == pytest.approx(110.08)


def test_spot_nodes_have_the_price_of_their_zone_or_else_at_most_that_of_on_demand_nodes() -> None:
    table = HERE.renewed([row(9.5, region="us-east-1a")])
    made = nodes.resources(
        replace(
            layout(capacity="spot-first"),
            prices=table,
            hardware={"p4d.24xlarge": KNOWN["p4d.24xlarge"]},
        )
    )
    (choice,) = [each for each in made if each.candidates]
    usd = {each.name.removeprefix("t-p4d.24xlarge-us-east-1"): each.hourly_usd for each in choice.candidates}
    assert usd == {"a-spot": 9.5, "b-spot": 21.9576, "a-on-demand": 21.9576, "b-on-demand": 21.9576}


def test_an_offer_without_a_price_names_the_region() -> None:
    way = Placement(instance_type="p4d.24xlarge", zone="b", capacity="on-demand")
    (made,) = offers([way], KNOWN, HERE.within("eu-west-1"))
    assert (made.hourly_usd, made.priced) == (None, "no price of eu-west-1 is known")


def test_a_type_missing_from_the_table_is_read_from_the_cloud() -> None:
    row: Any = {
        "InstanceType": "p9.48xlarge",
        "VCpuInfo": {"DefaultVCpus": 192},
        "MemoryInfo": {"SizeInMiB": 2097152},
        "GpuInfo": {
            "Gpus": [
                {"Name": "B200", "Manufacturer": "NVIDIA", "Count": 8, "MemoryInfo": {"SizeInMiB": 183359}}
            ]
        },
        "InstanceStorageInfo": {"TotalSizeInGB": 30400},
        "NetworkInfo": {
            "EfaInfo": {"MaximumEfaInterfaces": 8},
            "NetworkCards": [{"NetworkCardIndex": 0, "BaselineBandwidthInGbps": 200.0}] * 8,
            "NetworkPerformance": "3200 Gigabit",
        },
    }
    hardware = described(row)
    assert (hardware.gpu, hardware.gpus, hardware.gpu_memory_gib) == ("B200", 8, 179)
    assert (hardware.cards, hardware.nvme_gb, hardware.memory_gib) == (8, 30400, 2048)
    assert (hardware.profile, hardware.network_gbit_s, hardware.hugepages_2mi_mib) == ("", 3200, 5120)
