"""The order of candidates for GPU nodes on Google Cloud, their properties and prices."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud.billing_v1.types import Sku
from google.cloud.compute_v1.types import Accelerators, MachineType

from cloudrec.errors import SpecError
from cloudrec.providers.gcp import offers, prices
from cloudrec.providers.gcp.offers import KNOWN
from tests.unit.providers_gcp.support import layout

ZONES = ("us-central1-a", "us-central1-b")


def tried(**given: Any) -> list[tuple[str, str]]:
    return [(way.zone[-1], way.capacity) for way in layout(zones=ZONES, **given).places()]


def test_all_spot_nodes_are_tried_before_the_first_on_demand_one_and_the_queue_comes_last() -> None:
    assert tried(capacity="spot-first", flex_start=True) == [
        ("a", "spot"),
        ("b", "spot"),
        ("a", "on-demand"),
        ("b", "on-demand"),
        ("a", "flex-start"),
        ("b", "flex-start"),
    ]


def test_reserved_nodes_are_the_only_candidates() -> None:
    assert tried(capacity="spot-first", reservation="ours") == [("a", "reservation"), ("b", "reservation")]


def test_fractions_of_an_a3_machine_are_never_tried_on_demand() -> None:
    found = layout(zones=ZONES, types=["a3-highgpu-1g", "a3-highgpu-8g"], capacity="spot-first")
    capacity_types = {(way.instance_type, way.capacity) for way in found.places()}
    assert capacity_types == {
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
        ("a2-megagpu-16g", (16, 40), (96, 0, 0), "tcp"),
        ("a3-ultragpu-8g", (8, 141), (224, 1, 32), "rdma"),
        ("a4-highgpu-8g", (8, 180), (224, 1, 32), "rdma"),
        ("g4-standard-384", (8, 96), (384, 0, 0), "tcp"),
    ],
)
def test_the_properties_of_each_machine_type_are_known(
    name: str, gpus: tuple[int, int], machine: tuple[int, int, int], fabric: str
) -> None:
    found = KNOWN[name]
    assert (found.gpus, found.gpu_memory_gib) == gpus
    assert (found.vcpus, found.gpu_nics, found.local_ssds) == machine
    assert found.fabric == fabric


def test_a_type_missing_from_the_table_is_read_from_the_cloud() -> None:
    gpus = Accelerators(guest_accelerator_type="nvidia-h200-141gb", guest_accelerator_count=8)
    row = MachineType(name="a3-ultragpu-8g", guest_cpus=224, memory_mb=3022848, accelerators=[gpus])
    found = offers.described(row)
    assert (found.gpu, found.gpus, found.gpu_memory_gib, found.memory_gib) == ("H200", 8, 141, 2952)
    assert (found.is_rdma, found.disk, found.quota_family) == (True, "hyperdisk-balanced", "NVIDIA_H200")
    assert (found.profile, found.cards, found.gpu_nics) == ("", 0, 0)
    assert offers.described(MachineType(name="n2-standard-2", guest_cpus=2)).gpus == 0


@pytest.mark.parametrize(
    ("name", "reason", "instead"),
    [
        ("a4x-highgpu-4g", "'a4x-highgpu-4g' is arm64; the trainer's images are for x86_64", "a4-highgpu-8g"),
        ("g4-standard-12", "'g4-standard-12' has a quarter of a GPU", "g4-standard-48"),
    ],
)
def test_a_refused_type_has_a_reason_and_another_choice(name: str, reason: str, instead: str) -> None:
    with pytest.raises(SpecError, match=reason) as refused:
        offers.hardware_of([name], "us-central1", lambda _: pytest.fail("Google was asked"))
    assert instead in str(refused.value.remedy)


def test_a_type_with_arm_cpus_that_only_google_describes_is_refused() -> None:
    gpus = Accelerators(guest_accelerator_type="nvidia-b200", guest_accelerator_count=4)
    row = MachineType(name="a9x-4g", guest_cpus=8, memory_mb=1024, accelerators=[gpus], architecture="ARM64")
    with pytest.raises(SpecError, match="machine type 'a9x-4g' is arm64"):
        offers.hardware_of(["a9x-4g"], "us-central1", lambda _: row)


def test_every_known_type_has_a_dated_price_but_those_that_google_lists_none_of() -> None:
    table = prices.shipped().within("us-central1")
    listed = {name: table.price(name, "on-demand") for name in KNOWN}
    assert [name for name, price in listed.items() if not price] == ["a3-ultragpu-8g", "a4-highgpu-8g"]
    for price in filter(None, listed.values()):
        assert price.as_of >= "2026"
    assert table.node("a3-megagpu-8g") == 93.40


def test_a_spot_price_is_regional_and_a_missing_one_is_at_most_that_of_on_demand_nodes() -> None:
    table = prices.shipped().within("us-central1")
    assert table.nodes("a2-highgpu-8g", 2, "spot", "us-central1-a") == pytest.approx(30.8484)
    assert table.price("a3-megagpu-8g", "spot") is None
    assert table.nodes("a3-megagpu-8g", 2, "spot") == table.nodes("a3-megagpu-8g", 2, "flex-start") == 186.8
    assert table.within("africa-south1").nodes("a2-highgpu-8g", 2, "spot") is None


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
def test_skus_of_other_regions_and_commitments_are_ignored(stranger: Sku) -> None:
    assert prices.parts_of([*MEGA, stranger], "us-central1") == prices.parts_of(MEGA, "us-central1")
    assert prices.parts_of([stranger, *MEGA], "us-central1") == prices.parts_of(MEGA, "us-central1")


def test_a_machine_with_one_unpriced_part_has_no_price() -> None:
    parts = prices.parts_of(MEGA[:-1], "us-central1")
    assert prices.priced("a3-megagpu-8g", "on-demand", parts) is None
    assert prices.priced("a3-megagpu-8g", "spot", prices.parts_of(MEGA, "us-central1")) is None


@pytest.mark.parametrize("name", ["a3-ultragpu-8g", "g4-standard-48"])
def test_a_machine_whose_parts_have_no_known_names_has_no_price(name: str) -> None:
    assert prices.priced(name, "on-demand", prices.parts_of(MEGA, "us-central1")) is None


def test_disks_are_priced_by_the_month() -> None:
    skus = [
        sku("Balanced PD Capacity", 0.10, "GiBy.mo"),
        sku("Balanced PD Capacity in Belgium", 0.12, "GiBy.mo", region="europe-west1"),
        sku("Regional Balanced PD Capacity", 0.2, "GiBy.mo"),
        sku("SSD backed PD Capacity", 0.17, "GiBy.mo"),
    ]
    rows = prices.listed(skus, "us-central1", [])
    assert {row.name: (row.usd, row.unit) for row in rows} == {
        "disk-pd-balanced-gib": (0.10, "GiB-month"),
        "disk-pd-ssd-gib": (0.17, "GiB-month"),
    }


def test_spot_parts_are_distinguished_by_their_descriptions() -> None:
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
