"""Which nodes are tried in which order, and what they cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudrec.cloud.offers import MARKETS, Place, all_ways, offers
from cloudrec.cloud.prices import saved_at
from cloudrec.errors import DataError
from cloudrec.providers.aws import prices
from cloudrec.providers.aws.offers import KNOWN, described


def test_all_spot_candidates_come_before_the_first_on_demand_one() -> None:
    tried = all_ways(["p5.48xlarge", "p4d.24xlarge"], ["a", "b"], MARKETS["spot-first"], {})
    assert [(each.market, each.instance_type, each.zone) for each in tried] == [
        (market, name, zone)
        for market in ("spot", "on-demand")
        for name in ("p5.48xlarge", "p4d.24xlarge")
        for zone in ("a", "b")
    ]


@pytest.mark.parametrize(("capacity", "markets"), [("spot", {"spot"}), ("on-demand", {"on-demand"})])
def test_only_the_market_that_was_asked_for_is_tried(capacity: str, markets: set[str]) -> None:
    assert {each.market for each in all_ways(["g5.xlarge"], ["a"], MARKETS[capacity], {})} == markets


def test_a_zone_that_does_not_have_a_type_is_not_tried_for_it() -> None:
    tried = all_ways(["p5.48xlarge", "g5.xlarge"], ["a", "b"], ("spot",), {"p5.48xlarge": ["b"]})
    assert [(each.instance_type, each.zone) for each in tried] == [
        ("p5.48xlarge", "b"),
        ("g5.xlarge", "a"),
        ("g5.xlarge", "b"),
    ]


def test_every_known_type_has_a_dated_price() -> None:
    table = prices.shipped()
    assert all(table.node(name) for name in KNOWN)
    assert table.date >= "2026"
    assert table.region in table.label


def test_an_offer_tells_the_price_of_its_market_and_where_it_is_from() -> None:
    ways = [
        Place(instance_type="p4d.24xlarge", zone=zone, market=market)
        for zone, market in [("a", "spot"), ("b", "spot"), ("a", "on-demand")]
    ]
    made = offers(ways, KNOWN, prices.shipped(), {("p4d.24xlarge", "a"): 9.5})
    assert [(each.hourly_usd, each.capacity) for each in made] == [
        (9.5, "spot"),
        (None, "spot"),
        (21.96, "on-demand"),
    ]
    assert prices.shipped().date in made[2].priced
    assert (made[0].gpus, made[0].gpu, made[0].vcpus) == (8, "A100", 96)


def test_nodes_of_a_type_without_a_price_count_nothing_and_say_so() -> None:
    assert prices.shipped().node("x9.huge") is None
    assert prices.shipped().nodes("x9.huge", 4) == 0.0
    assert prices.shipped().nodes("p5.48xlarge", 2) == pytest.approx(110.08)


def test_prices_that_were_saved_are_read_again_with_their_date(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    prices.shipped().save(path)
    assert saved_at(path, prices.shipped()) == prices.shipped()
    path.write_text(json.dumps({"hourly_usd": 3}))
    with pytest.raises(DataError, match="is no price table"):
        saved_at(path, prices.shipped())


def test_a_type_that_the_table_lacks_is_read_from_the_clouds_description() -> None:
    row = {
        "InstanceType": "p6-b200.48xlarge",
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
            "NetworkCards": [{"NetworkCardIndex": 0}] * 8,
        },
    }
    hardware = described(row)
    assert (hardware.gpu, hardware.gpus, hardware.gpu_memory_gib) == ("B200", 8, 179)
    assert (hardware.efa, hardware.nvme_gb, hardware.memory_gib) == (8, 30400, 2048)
