"""The clouds' price tables: every row has a place, a date and a source, and no plan counts a node as $0."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from cloudrec.engine.graph import Resource
from cloudrec.errors import DataError
from cloudrec.providers.aws.nodes import nodes as aws_nodes
from cloudrec.providers.aws.offers import AwsInstanceType
from cloudrec.providers.azure.nodes import nodes as azure_nodes
from cloudrec.providers.azure.offers import AzureVmSize
from cloudrec.providers.base.prices import Price, Prices, renewed_at, save
from cloudrec.providers.gcp.nodes import nodes as gcp_nodes
from cloudrec.providers.gcp.offers import GcpMachineType
from cloudrec_sandbox.azure.services.compute import sizes
from cloudrec_sandbox.gcp.resources.places import ZONES
from cloudrec_sandbox.gcp.services.compute.capacity import catalogue
from tests.unit.providers_aws.support import layout as aws_layout
from tests.unit.providers_azure.support import layout as azure_layout
from tests.unit.providers_gcp.support import layout as gcp_layout

CLOUDS = ("aws", "azure", "gcp")
COMMON: dict[str, Any] = {
    "gpu": "A100",
    "gpus": 8,
    "gpu_memory_gib": 80,
    "vcpus": 96,
    "memory_gib": 1000,
}


def shipped(cloud: str) -> Prices:
    table: Prices = import_module(f"cloudrec.providers.{cloud}.prices").shipped()
    return table


def candidates(cloud: str, region: str, name: str) -> Sequence[Resource[Any]]:
    """The GPU nodes, on demand and as spot, of a plan for one type in one zone of a region."""
    made: Sequence[Resource[Any]]
    if cloud == "aws":
        of = replace(
            aws_layout(zones=(f"{region}a",), capacity="spot-first"),
            region=region,
            instance_types=(name,),
            hardware={name: AwsInstanceType(instance_type=name, **COMMON)},
        )
        made = aws_nodes.resources(of)
    elif cloud == "azure":
        size = AzureVmSize(instance_type=name, family="f", **COMMON)
        sized = replace(azure_layout(zones=("1",), capacity="spot-first"), region=region)
        made = azure_nodes.resources(replace(sized, instance_types=(name,), hardware={name: size}))
    else:
        zone = f"{region}-a"
        machine = GcpMachineType(instance_type=name, accelerator="nvidia-l4", **COMMON)
        zoned = replace(gcp_layout(capacity="spot-first"), region=region, gpu_zones=(zone,), home_zone=zone)
        made = gcp_nodes.resources(
            replace(zoned, instance_types=(name,), hardware={name: machine}, offered={name: (zone,)})
        )
    (choice,) = [each for each in made if each.candidates]
    return choice.candidates


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_row_has_a_place_a_date_and_a_source(cloud: str) -> None:
    rows = shipped(cloud).rows.values()
    assert len(rows) > 100
    assert [row.name for row in rows if not row.usd] == (["aks-free"] if cloud == "azure" else [])
    for row in rows:
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.as_of)
        assert row.as_of <= f"{datetime.now(UTC):%Y-%m-%d}"
        assert row.source
        assert row.region
        assert row.capacity in {"", "on-demand", "spot"}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_node_of_the_table_is_planned_at_zero_or_at_another_price(cloud: str) -> None:
    rows = [row for row in shipped(cloud).rows.values() if row.capacity]
    planned = 0
    for region, name in sorted({(row.region, row.name) for row in rows}):
        table = shipped(cloud).within(region)
        disks = 0.0 if cloud != "gcp" else table.service("disk-pd-balanced-gib", 200) or None
        for each in candidates(cloud, region, name):
            capacity = each.properties.capacity
            price = table.price(name, capacity) or table.price(name, "on-demand")
            assert price is not None
            expected = None if disks is None else price.usd + disks
            assert each.hourly_usd == pytest.approx(expected), (region, name, capacity)
            planned += 1
    assert planned > len(rows) * 0.9


def offered(cloud: str) -> Iterator[tuple[str, str]]:
    """The (region, type) pairs of NVIDIA GPUs that the cloud's stand-in offers."""
    if cloud == "aws":
        for name, row in INSTANCE_TYPES.items():
            gpus = row.get("GpuInfo", {}).get("Gpus", [])
            if any(gpu["Manufacturer"] == "NVIDIA" for gpu in gpus):
                yield from ((region, name) for region in ("us-east-1", "eu-west-1"))
    elif cloud == "azure":
        for size in sizes.SIZES.values():
            if size.gpus:
                yield from ((region, size.name) for region in size.family.zones)
    else:
        for zone, region in ZONES.items():
            yield from ((region, each.name) for each in catalogue.offered(zone) if each.accelerator)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_gpu_of_a_stand_in_is_planned_at_zero(cloud: str) -> None:
    found = {
        (region, name, each.properties.capacity): each.hourly_usd
        for region, name in sorted(set(offered(cloud)))
        for each in candidates(cloud, region, name)
    }
    assert len(found) > 30
    assert [key for key, usd in found.items() if usd is not None and usd < 0.1] == []
    known = [key for key, usd in found.items() if usd is not None]
    assert len(known) > 30


def test_prices_of_another_region_are_unknown() -> None:
    for cloud, home in (("aws", "us-east-1"), ("azure", "eastus"), ("gcp", "us-central1")):
        table = shipped(cloud)
        (name,) = {row.name for row in table.rows.values() if row.name in {"p4d.24xlarge", "public-ip"}} or {
            "forwarding-rule"
        }
        capacity = "on-demand" if cloud == "aws" else ""
        assert table.within(home).price(name, capacity) is not None
        assert table.within("xx-nowhere-1").price(name, capacity) is None
        assert table.price(name, capacity) is None


def test_a_price_that_holds_everywhere_is_used_in_every_region() -> None:
    table = shipped("gcp").within("africa-south1")
    price = table.price("gke-cluster")
    assert price is not None
    assert (price.region, table.service("gke-cluster")) == ("global", 0.10)


@pytest.mark.parametrize(
    ("unit", "hourly"),
    [("hour", 0.73), ("day", 0.73 / 24), ("month", 0.001), ("GiB-month", 0.001), ("GB", None)],
)
def test_a_price_is_given_by_the_hour_except_for_traffic(unit: str, hourly: float | None) -> None:
    row = Price(region="r", name="n", capacity="", unit=unit, usd=0.73, as_of="2026-11-23", source="s")
    assert row.hourly_usd == (None if hourly is None else pytest.approx(hourly))


def test_saved_prices_replace_older_ones_of_the_same_place_and_keep_the_others(tmp_path: Path) -> None:
    path, table = tmp_path / "prices.csv", shipped("aws")
    old = table.rows["us-east-1", "p4d.24xlarge", "on-demand"]
    assert renewed_at(path, table) == table
    save(path, [replace(old, usd=20.0, as_of="2026-11-20"), replace(old, region="eu-west-1", usd=23.0)])
    save(path, [replace(old, usd=19.0, as_of="2026-11-22")])
    found = renewed_at(path, table)
    assert (
        found.within("us-east-1").node("p4d.24xlarge"),
        found.within("eu-west-1").node("p4d.24xlarge"),
    ) == (
        19.0,
        23.0,
    )
    assert found.within("us-east-1").node("p5.48xlarge") == table.within("us-east-1").node("p5.48xlarge")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name,usd\na,1\n", "its columns are name, usd"),
        ("region,name,capacity,unit,usd,as_of,source\nr,n,,hour,much,d,s\n", "could not convert"),
        ("region,name,capacity,unit,usd,as_of,source\nr,n,,hour,nan,d,s\n", "n has the price nan"),
        ("region,name,capacity,unit,usd,as_of,source\nr,n,,fortnight,1,d,s\n", "has the unit 'fortnight'"),
        ("region,name,capacity,unit,usd,as_of,source\nr,n\n", "is no price table"),
    ],
)
def test_a_damaged_file_of_prices_is_refused_by_name(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=re.escape(reason)) as caught:
        renewed_at(path, shipped("aws"))
    assert caught.value.remedy == f"remove {path}"


def test_the_tables_are_read_only_when_a_cloud_is_used() -> None:
    code = "import sys, cloudrec.cli.main; print([m for m in sys.modules if m.endswith('.prices')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
