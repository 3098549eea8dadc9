"""The GPU machine types of Google Cloud, and their hardware."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from cloudrec.errors import SpecError
from cloudrec.providers.base import protocol
from cloudrec.providers.base.hardware import machines
from cloudrec.providers.base.hardware.machines import MachineRow, Words
from cloudrec.providers.base.offers import X86, InstanceType
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from google.cloud.compute_v1 import MachineType

    from cloudrec.spec.models import ClusterSpec

DEFAULT_TYPES = ("a2-highgpu-8g",)
# Nodes from a queue, and nodes that the user has reserved.
FLEX, RESERVED = protocol.FLEX, "reservation"
SSD_GIB = 375  # of one local SSD
_OVER_TCP = frozenset({"tcpx", "tcpxo"})  # GPUDirect over TCP: of A3 High, and of A3 Mega
_NOUN = "machine type"
_ARCHITECTURES: Mapping[str, str] = MappingProxyType({"ARM64": "arm64", "X86_64": X86})


@dataclass(frozen=True, kw_only=True)
class GcpMachineType(InstanceType):
    """One machine type.

    Attributes:
        accelerator: Google's name of its GPUs.
        gpu_fabric: the network between GPUs of different nodes: "tcp", "tcpx", "tcpxo" or "rdma".
        local_ssds: local disks of a node: those that are part of the type, or else those that are added to
            it.
        added_ssds: how many of them are added to the type, and so have a separate price.
        ssd_counts: how many can be added to the type; empty for one with a fixed number, or if it is not
            known.
        fast_socket: whether NCCL can use GKE's Fast Socket.
        compact: whether nodes can have a compact placement policy.
        only: the capacity types that Google sells it in; empty for all.
        disk: the type of its root disk. Newer machines have no Persistent Disk.
        quota_metric: the regional quota of its GPUs; spot and flex-start nodes count against PREEMPTIBLE_ and
            this name. Empty if it is not known.
        quota_family: the name by which Cloud Quotas has the limit of newer GPUs on demand; empty for others.
        gke_since: the first GKE version with its fabric and, by default, with a driver of its GPUs; empty if
            every version that is supported has them.
    """

    accelerator: str
    gpu_fabric: str = "tcp"
    local_ssds: int = 0
    added_ssds: int = 0
    ssd_counts: tuple[int, ...] = ()
    fast_socket: bool = False
    compact: bool = False
    only: tuple[str, ...] = ()
    disk: str = "pd-balanced"
    quota_metric: str = ""
    quota_family: str = ""
    gke_since: str = ""

    @property
    def fabric(self) -> str:
        """The network between GPUs of different nodes."""
        return self.gpu_fabric

    @property
    def gpu_nics(self) -> int:
        """The gVNIC cards besides the first, for each of which cloudrec makes a network.

        Those of A3 High and Mega are the GPUs' own. Machines with RDMA have a second card of the host
        ("Networking and GPU machines", Compute Engine's documentation).
        """
        if self.gpu_fabric in _OVER_TCP:
            return self.cards
        return 1 if self.rdma_nics else 0

    @property
    def rdma_nics(self) -> int:
        """The RDMA cards, each of which is in another subnet of one network."""
        return self.cards if self.is_rdma else 0

    @property
    def is_rdma(self) -> bool:
        """Whether its GPUs reach other nodes by RDMA over Ethernet."""
        return self.gpu_fabric == "rdma"


class GcpMachineRow(MachineRow):
    """A row of Google's table; the columns are the attributes of `GcpMachineType`.

    `added_ssds` is the number that cloudrec adds unless the settings have another one. `ssd_counts` are those
    of "Choose a valid number of Local SSD disks" in Compute Engine's documentation.
    """

    accelerator: str = Field(pattern=r"^nvidia-[a-z0-9-]+$")
    fast_socket: bool = False
    compact: bool = False
    only: Words = ()
    disk: Literal["pd-balanced", "hyperdisk-balanced"]
    quota_metric: str = ""
    quota_family: str = ""
    gke_since: str = Field("", pattern=r"^(\d+\.\d+\.\d+-gke\.\d+)?$")
    ssd_counts: Words = ()
    added_ssds: int = Field(default=0, ge=0, le=32)

    @model_validator(mode="after")
    def _can_be_added(self) -> Self:
        if self.added_ssds and str(self.added_ssds) not in self.ssd_counts:
            raise ValueError(f"added_ssds is {self.added_ssds}; ssd_counts has {' '.join(self.ssd_counts)}")
        if self.ssd_counts and self.local_disks:
            raise ValueError("a type has either built-in local disks or ones that can be added")
        return self

    def hardware(self) -> GcpMachineType:
        """Return the hardware that the row has."""
        return GcpMachineType(
            **self.shared(),
            accelerator=self.accelerator,
            gpu_fabric=self.fabric,
            local_ssds=self.local_disks or 0,
            ssd_counts=tuple(map(int, self.ssd_counts)),
            fast_socket=self.fast_socket,
            compact=self.compact,
            only=self.only,
            disk=self.disk,
            quota_metric=self.quota_metric,
            quota_family=self.quota_family,
            gke_since=self.gke_since,
        )


TABLE = machines.table_of(__package__, GcpMachineRow)
KNOWN: Mapping[str, GcpMachineType] = MappingProxyType(
    {name: row.hardware() for name, row in TABLE.items() if not row.refused}
)
# Google's name of an accelerator -> a row that has it: model, memory, disk and quotas are the same in all.
_ACCELERATORS = MappingProxyType({row.accelerator: row for row in reversed(tuple(TABLE.values()))})


def types_of(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the machine types to try, the best first."""
    return cluster.instance_types or DEFAULT_TYPES


def refuse(instance_types: Sequence[str]) -> None:
    """Refuse types that the table says are not usable; SpecError has the reason."""
    machines.refuse(instance_types, TABLE, _NOUN)


def hardware_of(
    instance_types: Sequence[str], region: str, asked: Callable[[str], MachineType | None]
) -> dict[str, GcpMachineType]:
    """Return the hardware of each type, from the table or else from Google.

    Args:
        instance_types: the names of the types.
        region: the region of the cluster.
        asked: returns Google's description of a type in that region; None if no zone offers it.

    Raises:
        SpecError: a type is refused, is not in the region, or has no NVIDIA GPU.
    """
    refuse(instance_types)
    found: dict[str, GcpMachineType] = {}
    for name in instance_types:
        row = None if name in KNOWN else asked(name)
        if name not in KNOWN and row is None:
            raise SpecError(f"region {region} has no machine type {name!r}", remedy=did_you_mean(name, KNOWN))
        found[name] = KNOWN[name] if row is None else described(row)
        machines.check(found[name], _NOUN, DEFAULT_TYPES)
    return found


def with_ssds(hardware: Mapping[str, GcpMachineType], wanted: int | None) -> dict[str, GcpMachineType]:
    """Return the hardware with the local SSDs that a cluster's nodes have.

    Args:
        hardware: machine type -> its hardware.
        wanted: how many to add to each type that has no built-in ones; None for cloudrec's number.

    Raises:
        SpecError: a type cannot have so many.
    """
    return {name: _with_ssds(machine, wanted) for name, machine in hardware.items()}


def _with_ssds(machine: GcpMachineType, wanted: int | None) -> GcpMachineType:
    if machine.local_ssds:
        return machine  # its number is fixed
    name = machine.instance_type
    if wanted is None:
        wanted = TABLE[name].added_ssds if name in TABLE else 0
    elif wanted and wanted not in machine.ssd_counts:
        counts = ", ".join(map(str, machine.ssd_counts))
        raise SpecError(
            f"local_ssds is {wanted}; machine type {name!r} can have {counts or 'none'}",
            remedy=f"set cluster.settings.local_ssds to one of 0{', ' if counts else ''}{counts}",
        )
    return replace(machine, local_ssds=wanted, added_ssds=wanted)


def described(row: MachineType) -> GcpMachineType:
    """Return the hardware in Google's description of a machine type; 0 GPUs if it has no known NVIDIA GPU.

    Google describes no network: a type whose GPUs use RDMA networks in the table is taken to use them too,
    with an unknown number of cards. It has no transport profile.
    """
    found = next((each for each in row.accelerators if each.guest_accelerator_type in _ACCELERATORS), None)
    like = _ACCELERATORS[found.guest_accelerator_type].hardware() if found is not None else None
    return GcpMachineType(
        instance_type=row.name,
        gpu=like.gpu if like else "",
        gpus=found.guest_accelerator_count if found else 0,
        gpu_memory_gib=like.gpu_memory_gib if like else 0,
        vcpus=row.guest_cpus,
        memory_gib=row.memory_mb / 1024,
        architecture=_ARCHITECTURES.get(row.architecture, X86),
        accelerator=like.accelerator if like else "",
        gpu_fabric="rdma" if like and like.is_rdma else "tcp",
        disk=like.disk if like else "pd-balanced",
        quota_metric=like.quota_metric if like else "",
        quota_family=like.quota_family if like else "",
    )
