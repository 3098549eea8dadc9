"""Local SSDs are added to machines without built-in ones, in the numbers that Google allows."""

from __future__ import annotations

import pytest

from cloudrec.errors import DataError, SpecError
from cloudrec.providers.base.hardware.machines import parsed
from cloudrec.providers.gcp.offers import KNOWN, TABLE, GcpMachineRow, with_ssds
from cloudrec.providers.gcp.settings import GcpSettings
from cloudrec.providers.gcp.storage.tiers import room_gb
from cloudrec_sandbox.gcp.services.compute.capacity.catalogue import MACHINES


@pytest.mark.parametrize(
    ("name", "wanted", "count", "added"),
    [
        ("a2-highgpu-8g", None, 8, 8),
        ("a2-highgpu-8g", 0, 0, 0),
        ("a2-highgpu-1g", 2, 2, 2),
        ("a3-highgpu-8g", None, 16, 0),  # part of the type
        ("a3-highgpu-8g", 8, 16, 0),
        ("g2-standard-4", None, 0, 0),
        ("g2-standard-4", 1, 1, 1),
    ],
)
def test_a_node_has_the_ssds_of_its_type_or_those_that_are_added(
    name: str, wanted: int | None, count: int, added: int
) -> None:
    found = with_ssds({name: KNOWN[name]}, wanted)[name]
    assert (found.local_ssds, found.added_ssds) == (count, added)


def test_a_number_that_a_type_cannot_have_is_refused() -> None:
    with pytest.raises(SpecError, match="local_ssds is 3; machine type 'a2-highgpu-1g' can have 1, 2, 4, 8"):
        with_ssds({"a2-highgpu-1g": KNOWN["a2-highgpu-1g"]}, 3)


def test_the_table_has_the_numbers_of_the_stand_in() -> None:
    for name, machine in KNOWN.items():
        if name in MACHINES and not machine.local_ssds:
            assert machine.ssd_counts == MACHINES[name].ssd_counts, name


def test_a_row_with_a_number_that_cannot_be_added_is_damaged() -> None:
    row = TABLE["a2-highgpu-8g"].model_dump()
    cells = {**row, "added_ssds": 3, "ssd_counts": "8", "only": "", "instead": "", "fast_socket": "yes"}
    header = ",".join(cells)
    line = ",".join(f'"{"" if value is None else value}"' for value in cells.values())
    with pytest.raises(DataError, match="added_ssds is 3"):
        parsed(f"{header}\n{line}\n", GcpMachineRow, name="machines.csv")


@pytest.mark.parametrize(("count", "gib"), [(8, 2600), (1, 287.5), (2, 600), (0, 104)])
def test_pods_have_what_gke_leaves_of_the_disks(count: int, gib: float) -> None:
    machine = with_ssds({"a2-highgpu-1g": KNOWN["a2-highgpu-1g"]}, count)["a2-highgpu-1g"]
    assert room_gb(machine, GcpSettings()) / 1.073741824 == pytest.approx(gib)
