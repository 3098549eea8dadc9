"""Which GPU nodes are tried in which order on Google Cloud, what they are and what they cost."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud.billing_v1.types import Sku
from google.cloud.compute_v1.types import Accelerators, MachineType

from cloudrec.providers.gcp import nodes, offers, prices
from cloudrec.providers.gcp.offers import KNOWN
from tests.unit.providers_gcp.support import layout

ZONES = ("us-central1-a", "us-central1-b")


def tried(**given: Any) -> list[tuple[str, str]]:
    return [(way.zone[-1], way.market) for way in nodes.places(layout(zones=ZONES, **given))]


def test_all_spot_nodes_are_tried_before_the_first_on_demand_one_and_the_queue_comes_last() -> None:
    assert tried(capacity="spot-first", flex_start=True) == [
        ("a", "spot"),
        ("b", "spot"),
        ("a", "on-demand"),
        ("b", "on-demand"),
        ("a", "flex-start"),
        ("b", "flex-start"),
    ]


def test_where_nodes_are_reserved_nothing_else_is_tried() -> None:
    assert tried(capacity="spot-first", reservation="ours") == [("a", "reservation"), ("b", "reservation")]


def test_parts_of_an_a3_machine_are_never_tried_on_demand() -> None:
    found = layout(zones=ZONES, types=["a3-highgpu-1g", "a3-highgpu-8g"], capacity="spot-first")
    markets = {(way.instance_type, way.market) for way in nodes.places(found)}
    assert markets == {
        ("a3-highgpu-1g", "spot"),
        ("a3-highgpu-8g", "spot"),
        ("a3-highgpu-8g", "on-demand"),
    }


@pytest.mark.parametrize(
    ("name", "gpus", "machine", "fabric"),
    [
        ("a2-highgpu-8g", (8, 40), (96, 0, 0), "tcp"),
        ("a2-ultragpu-8g", (8, 80), (96, 0, 8), "tcp"),
        ("a3-highgpu-8g", (8, 80), (208, 4, 16), "tcpx"),
        ("a3-megagpu-8g", (8, 80), (208, 8, 16), "tcpxo"),
        ("a3-highgpu-1g", (1, 80), (26, 0, 2), "tcp"),
        ("g2-standard-48", (4, 24), (48, 0, 0), "tcp"),
    ],
)
def test_each_machine_is_known_for_what_it_is(
    name: str, gpus: tuple[int, int], machine: tuple[int, int, int], fabric: str
) -> None:
    found = KNOWN[name]
    assert (found.gpus, found.gpu_memory_gib) == gpus
    assert (found.vcpus, found.gpu_nics, found.local_ssds) == machine
    assert found.fabric == fabric


def test_a_type_that_the_table_lacks_is_read_from_the_clouds_description() -> None:
    gpus = Accelerators(guest_accelerator_type="nvidia-h200-141gb", guest_accelerator_count=8)
    row = MachineType(name="a3-ultragpu-8g", guest_cpus=224, memory_mb=3022848, accelerators=[gpus])
    found = offers.described(row)
    assert (found.gpu, found.gpus, found.gpu_memory_gib, found.memory_gib) == ("H200", 8, 141, 2952)
    assert offers.described(MachineType(name="n2-standard-2", guest_cpus=2)).gpus == 0


def test_every_known_type_has_a_dated_price() -> None:
    table = prices.shipped()
    assert all(table.node(name) for name in KNOWN)
    assert table.date >= "2026"
    assert table.node("a3-megagpu-8g") == 93.40


def test_a_spot_price_holds_in_every_zone_and_a_missing_one_is_no_free_node() -> None:
    table = prices.shipped()
    known = prices.spot(table, ["a2-highgpu-8g", "g2-standard-4"], ZONES)
    assert known == {("a2-highgpu-8g", zone): 10.3468 for zone in ZONES}
    assert prices.nodes(table, "a2-highgpu-8g", "spot", 2) == pytest.approx(20.6936)
    assert prices.nodes(table, "g2-standard-4", "spot", 2) == prices.nodes(table, "g2-standard-4", "flex", 2)


def sku(
    description: str, usd: float, unit: str = "h", usage: str = "OnDemand", region: str = "us-central1"
) -> Sku:
    rate = {"unit_price": {"units": int(usd), "nanos": round((usd - int(usd)) * 1e9)}}
    return Sku(
        {
            "description": description,
            "category": {"usage_type": usage},
            "service_regions": [region],
            "pricing_info": [
                {
                    "pricing_expression": {
                        "usage_unit": unit,
                        "tiered_rates": [{"unit_price": {"units": 0}}, rate] if usd else [rate],
                    }
                }
            ],
        }
    )


MEGA = [
    sku("A3Plus Instance Core running in Americas", 0.026924),
    sku("A3Plus Instance Ram running in Americas", 0.002344, "GiBy.h"),
    sku("Nvidia H100 80GB Plus GPU running in Americas", 10.344276),
    sku("SSD backed Local Storage", 0.08, "GiBy.mo"),
]


def test_a_machine_costs_the_sum_of_its_parts() -> None:
    parts = prices.parts_of(MEGA, "us-central1")
    assert prices.priced("a3-megagpu-8g", "on-demand", parts) == pytest.approx(93.40, abs=0.01)


@pytest.mark.parametrize(
    "stranger",
    [
        sku("Reserved Nvidia H100 80GB Mega GPU in Americas in Calendar Mode", 4.8),
        sku("Nvidia H100 80GB Mega GPU attached to DWS Defined Duration VMs running in Americas", 4.8),
        sku("Commitment v1: A3Plus Cpu in Americas for 1 Year", 0.01, usage="Commit1Yr"),
        sku("Nvidia H100 80GB Plus GPU running in Tokyo", 20.0, region="asia-northeast1"),
        sku("A3Plus Instance Core running in Americas", 0.01, usage="Commit3Yr"),
    ],
)
def test_what_is_sold_otherwise_or_elsewhere_changes_no_price(stranger: Sku) -> None:
    assert prices.parts_of([*MEGA, stranger], "us-central1") == prices.parts_of(MEGA, "us-central1")
    assert prices.parts_of([stranger, *MEGA], "us-central1") == prices.parts_of(MEGA, "us-central1")


def test_a_machine_of_which_one_part_has_no_price_has_none() -> None:
    parts = prices.parts_of(MEGA[:-1], "us-central1")
    assert prices.priced("a3-megagpu-8g", "on-demand", parts) is None
    assert prices.priced("a3-megagpu-8g", "spot", prices.parts_of(MEGA, "us-central1")) is None


def test_spot_parts_are_told_apart_by_their_descriptions() -> None:
    parts = prices.parts_of(
        [
            sku("Spot Preemptible G2 Instance Core running in Americas", 0.01, usage="Preemptible"),
            sku("Spot Preemptible G2 Instance Ram running in Americas", 0.001, "GiBy.h", "Preemptible"),
            sku(
                "Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas", 0.2, usage="Preemptible"
            ),
        ],
        "us-central1",
    )
    assert prices.priced("g2-standard-4", "spot", parts) == pytest.approx(0.04 + 0.016 + 0.2)
    assert prices.priced("g2-standard-4", "on-demand", parts) is None
