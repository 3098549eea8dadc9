"""The tables of machine types: a damaged row is named, and the stand-ins have the same hardware."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from cloudrec.errors import DataError, SpecError
from cloudrec.providers.azure.offers import KNOWN as AZURE
from cloudrec.providers.base.hardware.machines import MachineRow, parsed, refuse
from cloudrec.providers.gcp.offers import KNOWN as GOOGLE
from cloudrec_sandbox.azure.services.compute.sizes import SIZES
from cloudrec_sandbox.gcp.services.compute.capacity.catalogue import MACHINES

CELLS = {
    "type": "big.8x",
    "gpu": "H100",
    "gpus": "8",
    "gpu_memory_gib": "80",
    "vcpus": "96",
    "memory_gib": "1000",
    "architecture": "x86_64",
    "nvlink_gb_s": "900",
    "nvlink_domain": "8",
    "network_gbit_s": "",
    "fabric": "efa",
    "cards": "32",
    "local_disks": "8",
    "local_disk_gb": "1000",
    "hugepages_2mi_mib": "5120",
    "profile": "aws-p5",
    "refused": "",
    "instead": "",
    "as_of": "2026-11-24",
    "source": "the vendor's page",
}


def text(*rows: dict[str, str]) -> str:
    lines = [",".join(CELLS), *(",".join({**CELLS, **row}.values()) for row in rows)]
    return "\n".join(lines) + "\n"


def test_a_row_is_read_and_an_empty_cell_is_not_known() -> None:
    (row,) = parsed(text({}), MachineRow, name="x.csv").values()
    assert (row.network_gbit_s, row.cards, row.as_of.year) == (None, 32, 2026)
    assert (row.shared()["network_gbit_s"], row.shared()["nvme_gb"]) == (0.0, 8000)


@pytest.mark.parametrize(
    ("cells", "fault"),
    [
        ({"gpus": "eight"}, "gpus: Input should be a valid integer"),
        ({"gpus": "0"}, "gpus: Input should be greater than or equal to 1"),
        ({"vcpus": ""}, "vcpus: Field required"),
        ({"memory_gib": "-1"}, "memory_gib: Input should be greater"),
        ({"architecture": "sparc"}, "architecture: Input should be 'x86_64' or 'arm64'"),
        ({"fabric": "roce"}, "fabric: Input should be 'efa', 'infiniband'"),
        ({"as_of": "last week"}, "as_of: Input should be a valid date"),
        ({"as_of": ""}, "as_of: Field required"),
        ({"source": ""}, "source: Field required"),
        ({"type": "big 8x"}, "type: String should match pattern"),
        ({"cards": "0"}, "0 cards do not agree with the fabric efa"),
        ({"nvlink_domain": "1"}, "nvlink_gb_s and nvlink_domain do not agree"),
        ({"local_disks": "0"}, "local_disks and local_disk_gb do not agree"),
        ({"hugepages_2mi_mib": "3"}, "hugepages_2mi_mib: Input should be a multiple of 2"),
        ({"fabric": "tcpx"}, "hugepages_2mi_mib is for the fabric efa alone"),
        ({"refused": "is old"}, "a refused type needs both refused and instead"),
        ({"architecture": "arm64"}, "arm64 needs a reason in refused"),
    ],
)
def test_a_damaged_row_is_named_by_file_line_type_and_column(cells: dict[str, str], fault: str) -> None:
    with pytest.raises(DataError) as damaged:
        parsed(text({"type": "first"}, cells), MachineRow, name="cloud/machines.csv")
    name = cells.get("type", "big.8x")
    assert damaged.value.message.startswith(f"cloud/machines.csv is damaged: line 3 ({name}): ")
    assert fault in damaged.value.message


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (text({}).replace("vcpus", "cpus"), "its columns are type, gpu, gpus, gpu_memory_gib, cpus"),
        ("", "its columns are , not type"),
        (text({}, {}), "line 3 (big.8x): the type has two rows"),
        (text({}).replace(",aws-p5", ""), "line 2 (big.8x): it has not 20 cells"),
        (text({"source": "the vendor,page 2"}), "line 2 (big.8x): it has not 20 cells"),
        (
            text({"refused": "is old", "instead": "new.8x"}),
            "big.8x: instead has 'new.8x', which is no usable",
        ),
    ],
)
def test_a_damaged_file_is_named(content: str, fault: str) -> None:
    with pytest.raises(DataError, match=r"x\.csv is damaged") as damaged:
        parsed(content, MachineRow, name="x.csv")
    assert fault in damaged.value.message


def test_a_refused_type_names_its_reason_and_what_to_choose_instead() -> None:
    rows = text({}, {"type": "old.8x", "refused": "is old", "instead": "big.8x"})
    table = parsed(rows, MachineRow, name="x.csv")
    refuse(["big.8x", "other"], table, "machine")
    with pytest.raises(SpecError, match=r"machine 'old\.8x' is old") as refused:
        refuse(["old.8x"], table, "machine")
    assert refused.value.remedy == "choose big.8x instead"


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_every_row_has_a_source_and_a_date_of_this_year(cloud: str) -> None:
    table: dict[str, Any] = import_module(f"cloudrec.providers.{cloud}.offers").TABLE
    assert {row.as_of.year for row in table.values()} == {2026}
    assert not [name for name, row in table.items() if " " not in row.source]


@pytest.mark.parametrize("name", sorted(GOOGLE.keys() & MACHINES.keys()))
def test_the_stand_in_of_google_has_the_hardware_of_the_row(name: str) -> None:
    known, there = GOOGLE[name], MACHINES[name]
    assert (known.vcpus, known.memory_gib) == (there.vcpus, there.memory_gb)
    assert (known.accelerator, known.gpus) == (there.accelerator, there.accelerators)
    assert known.local_ssds == there.local_ssds


@pytest.mark.parametrize("name", [name for name in AZURE if name.lower() in SIZES])
def test_the_stand_in_of_azure_has_the_hardware_of_the_row(name: str) -> None:
    known, there = AZURE[name], SIZES[name.lower()]
    assert (known.vcpus, known.memory_gib, known.gpus) == (there.vcpus, there.memory_gib, there.gpus)
    assert bool(known.cards) == there.family.infiniband
