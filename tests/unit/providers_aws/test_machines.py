"""AWS's table of machines, compared with EC2's own description of each type, as moto has it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from cloudrec.errors import SpecError
from cloudrec.providers.aws import offers
from cloudrec.providers.aws.nodes import templates
from cloudrec.providers.aws.offers import KNOWN, TABLE, described
from cloudrec_sandbox.aws.services.ec2.launches import interface_faults

LISTED = sorted(TABLE.keys() & INSTANCE_TYPES.keys())


def test_ec2_describes_every_type_of_the_table_but_the_ultraserver() -> None:
    assert TABLE.keys() - INSTANCE_TYPES.keys() == {"p6e-gb200.36xlarge"}


@pytest.mark.parametrize("name", LISTED)
def test_a_row_says_what_ec2_says(name: str) -> None:
    row, told = TABLE[name], INSTANCE_TYPES[name]
    (gpu,), network = told["GpuInfo"]["Gpus"], told["NetworkInfo"]
    assert (row.gpus, row.gpu_memory_gib) == (gpu["Count"], round(gpu["MemoryInfo"]["SizeInMiB"] / 1024))
    assert row.gpu == gpu["Name"].replace("Server ", "")
    assert row.vcpus == told["VCpuInfo"]["DefaultVCpus"]
    assert row.memory_gib * 1024 == told["MemoryInfo"]["SizeInMiB"]
    assert [row.architecture] == told["ProcessorInfo"]["SupportedArchitectures"]
    disks = told.get("InstanceStorageInfo", {}).get("Disks", [])
    assert (row.local_disks, row.local_disk_gb) == (
        sum(disk["Count"] for disk in disks),
        disks[0]["SizeInGB"] if disks else 0,
    )
    assert row.cards == (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0)
    with_efa = [c["NetworkCardIndex"] for c in network["NetworkCards"] if "efa-only" in c["InterfaceTypes"]]
    assert list(row.hardware().efa_cards) == with_efa


@pytest.mark.parametrize("name", KNOWN)
def test_a_type_that_the_cloud_describes_has_the_hardware_of_its_row(name: str) -> None:
    told: Any = INSTANCE_TYPES[name]
    known = KNOWN[name]
    # What EC2 does not report.
    silent = {
        key: getattr(known, key)
        for key in ("profile", "nvlink_gb_s", "nvlink_domain", "quota_on_demand", "quota_spot")
    }
    assert replace(described(told), **silent) == known


@pytest.mark.parametrize("name", KNOWN)
def test_ec2_accepts_the_network_interfaces_of_every_type(name: str) -> None:
    asked = templates.interfaces(KNOWN[name].efa_cards, ["sg-1"])
    assert list(interface_faults(name, [dict(each) for each in asked])) == []


def test_a_small_machine_asks_for_no_more_huge_pages_than_its_node_reserves() -> None:
    asked = {name: KNOWN[name].hugepages_2mi_mib for name in ("p5.4xlarge", "g5.8xlarge", "p5.48xlarge")}
    assert asked == {"p5.4xlarge": 1760, "g5.8xlarge": 3520, "p5.48xlarge": 5120}


@pytest.mark.parametrize(
    ("name", "reason", "instead"),
    [
        ("g5g.xlarge", "'g5g.xlarge' is arm64; the trainer's images are for x86_64", "g5.xlarge"),
        ("p6e-gb200.36xlarge", "is sold in UltraServers", "choose p6-b200.48xlarge instead"),
    ],
)
def test_a_refused_type_has_a_reason_and_another_choice(name: str, reason: str, instead: str) -> None:
    assert name not in KNOWN
    asked: Any = SimpleNamespace(region="us-east-1")  # EC2 is not asked
    with pytest.raises(SpecError, match=reason) as refused:
        offers.hardware_of([name], asked)
    assert instead in str(refused.value.remedy)
