"""Machine types as data: a provider's table `machines.csv`, one row a type, checked when it is read.

A cell that is empty is not known, except `profile`, `refused` and `instead`. A provider adds the columns that
only its cloud has by a subclass of `MachineRow`; the columns of a file are the fields of its class.
"""

from __future__ import annotations

import csv
import io
from datetime import date  # noqa: TC003 - pydantic reads the annotations
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from cloudrec.errors import DataError, SpecError
from cloudrec.providers.base.offers import X86

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from cloudrec.providers.base.offers import InstanceType

FILE = "machines.csv"
Words = Annotated[tuple[str, ...], BeforeValidator(lambda cell: tuple(str(cell).split()))]


class SharedHardware(TypedDict):
    """The fields of `InstanceType`, as a row has them."""

    instance_type: str
    gpu: str
    gpus: int
    gpu_memory_gib: int
    vcpus: int
    memory_gib: float
    nvme_gb: int
    nvlink_gb_s: int
    nvlink_domain: int
    network_gbit_s: float
    architecture: str
    cards: int
    hugepages_2mi_mib: int
    profile: str


class MachineRow(BaseModel):
    """One row: the columns that all clouds have.

    Attributes:
        type: the cloud's name of the machine type.
        gpu: the GPU's model.
        gpus: its number of GPUs.
        gpu_memory_gib: memory of each GPU, in GiB, as the cloud reports it.
        vcpus: virtual cores.
        memory_gib: main memory, in GiB.
        architecture: the instruction set of its CPUs.
        nvlink_gb_s: bandwidth between two GPUs by NVLink, in GB/s; 0 without NVLink.
        nvlink_domain: number of GPUs that NVLink joins, which may be those of several machines; 0 without.
        network_gbit_s: bandwidth between two such machines, in Gbit/s.
        fabric: the network between GPUs of different machines; tcp for no such fabric.
        cards: the fabric's network cards; 0 without.
        local_disks: number of local disks that are part of the type.
        local_disk_gb: size of each, in GB.
        hugepages_2mi_mib: the huge pages of 2 MiB that a pod can request, in MiB.
        profile: the name of the transport profile that names the type; empty if none does.
        refused: why cloudrec does not use the type, as the words after its name; empty for a usable type.
        instead: the types to choose instead of a refused one.
        as_of: the date of the source, or the day on which it was read if it has none.
        source: where the values are from.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]+$")
    gpu: str = Field(min_length=1)
    gpus: int = Field(ge=1, le=72)
    gpu_memory_gib: int = Field(ge=1, le=1024)
    vcpus: int = Field(ge=1, le=1024)
    memory_gib: float = Field(ge=1, le=65536)
    architecture: Literal["x86_64", "arm64"]
    nvlink_gb_s: int | None = Field(default=None, ge=0, le=10000)
    nvlink_domain: int | None = Field(default=None, ge=0, le=1024)
    network_gbit_s: float | None = Field(default=None, gt=0, le=100000)
    fabric: Literal["efa", "infiniband", "tcpx", "tcpxo", "rdma", "tcp"]
    cards: int | None = Field(default=None, ge=0, le=64)
    local_disks: int | None = Field(default=None, ge=0, le=128)
    local_disk_gb: int | None = Field(default=None, ge=0)
    hugepages_2mi_mib: int = Field(default=0, ge=0, multiple_of=2)
    profile: str = Field(default="", pattern=r"^[a-z0-9-]*$")
    refused: str = ""
    instead: Words = ()
    as_of: date
    source: str = Field(min_length=8)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        """Compare the cells with one another; pydantic adds the row to the error."""
        linked = bool(self.nvlink_gb_s)
        if linked != ((self.nvlink_domain or 0) > 1):
            raise ValueError("nvlink_gb_s and nvlink_domain do not agree")
        if self.cards is not None and (self.cards > 0) != (self.fabric != "tcp"):
            raise ValueError(f"{self.cards} cards do not agree with the fabric {self.fabric}")
        if bool(self.local_disks) != bool(self.local_disk_gb):
            raise ValueError("local_disks and local_disk_gb do not agree")
        if self.hugepages_2mi_mib and self.fabric != "efa":
            raise ValueError("hugepages_2mi_mib is for the fabric efa alone")
        if bool(self.refused) != bool(self.instead):
            raise ValueError("a refused type needs both refused and instead, a usable one neither")
        if self.architecture != X86 and not self.refused:
            raise ValueError(f"{self.architecture} needs a reason in refused: images are for {X86}")
        return self

    def shared(self) -> SharedHardware:
        """Return the fields of `InstanceType`; 0 for a number that is not known."""
        return {
            "instance_type": self.type,
            "gpu": self.gpu,
            "gpus": self.gpus,
            "gpu_memory_gib": self.gpu_memory_gib,
            "vcpus": self.vcpus,
            "memory_gib": self.memory_gib,
            "nvme_gb": (self.local_disks or 0) * (self.local_disk_gb or 0),
            "nvlink_gb_s": self.nvlink_gb_s or 0,
            "nvlink_domain": self.nvlink_domain or 0,
            "network_gbit_s": self.network_gbit_s or 0.0,
            "architecture": self.architecture,
            "cards": self.cards or 0,
            "hugepages_2mi_mib": self.hugepages_2mi_mib,
            "profile": self.profile,
        }


R = TypeVar("R", bound=MachineRow)


def table_of(package: str, row: type[R]) -> Mapping[str, R]:
    """Return the table that ships with a provider, by the names of the types.

    Args:
        package: the provider's package, with the file `machines.csv`.
        row: the class of its rows.

    Raises:
        DataError: the file is damaged.
    """
    text = files(package).joinpath(FILE).read_text(encoding="utf-8")
    return parsed(text, row, name=f"{package.replace('.', '/')}/{FILE}")


def parsed(text: str, row: type[R], *, name: str) -> Mapping[str, R]:
    """Return the rows of a table by the names of their types, in the file's order.

    Args:
        text: the file's content.
        row: the class of its rows.
        name: the file's name, for the messages.

    Raises:
        DataError: a row is damaged; the message names the file, the line, the type and the column.
    """
    reader = csv.DictReader(io.StringIO(text), strict=True)
    if (header := list(reader.fieldnames or ())) != list(row.model_fields):
        raise _damaged(name, f"its columns are {', '.join(header)}, not {', '.join(row.model_fields)}")
    found: dict[str, R] = {}
    for cells in reader:
        place = f"line {reader.line_num} ({cells['type']})"
        if None in cells or None in cells.values():
            raise _damaged(name, f"{place}: it has not {len(header)} cells")
        made = _row(cells, row, name, place)
        if made.type in found:
            raise _damaged(name, f"{place}: the type has two rows")
        found[made.type] = made
    for each in found.values():
        for other in each.instead:
            if other not in found or found[other].refused:
                raise _damaged(name, f"{each.type}: instead has {other!r}, which is no usable type")
    return found


def refuse(names: Sequence[str], table: Mapping[str, R], noun: str) -> None:
    """Refuse a type whose row has a reason.

    Args:
        names: the chosen types.
        table: the provider's table.
        noun: what the cloud calls a type.

    Raises:
        SpecError: with the type, the reason and the types to choose instead.
    """
    for name in names:
        if name in table and table[name].refused:
            raise SpecError(
                f"{noun} {name!r} {table[name].refused}",
                remedy=f"choose {' or '.join(table[name].instead)} instead",
            )


def check(hardware: InstanceType, noun: str, instead: Sequence[str]) -> None:
    """Refuse hardware on which the trainer's images cannot run; for types that only the cloud describes.

    Args:
        hardware: the hardware of the type.
        noun: what the cloud calls a type.
        instead: types to choose instead.

    Raises:
        SpecError: it has no NVIDIA GPU, or CPUs of another architecture.
    """
    name, architecture = hardware.instance_type, hardware.architecture
    remedy = f"choose another type, such as {' or '.join(instead)}"
    if not hardware.gpus:
        raise SpecError(f"{noun} {name!r} has no NVIDIA GPU", remedy=remedy)
    if architecture != X86:
        raise SpecError(
            f"{noun} {name!r} is {architecture}; the trainer's images are for {X86}", remedy=remedy
        )


def _row(cells: Mapping[str, str], row: type[R], name: str, place: str) -> R:
    given = {column: cell.strip() for column, cell in cells.items() if cell.strip()}
    try:
        return row.model_validate(given)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, each['loc'])) or 'row'}: {each['msg']}" for each in error.errors()]
        raise _damaged(name, f"{place}: {'; '.join(faults)}") from error


def _damaged(name: str, fault: str) -> DataError:
    return DataError(f"{name} is damaged: {fault}", remedy="correct the file, or install cloudrec again")
