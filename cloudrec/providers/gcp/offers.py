"""The GPU machine types of Google Cloud, and their hardware."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.providers.base.offers import SPOT, InstanceType
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from google.cloud.compute_v1 import MachineType

    from cloudrec.spec.models import ClusterSpec

DEFAULT_TYPES = ("a2-highgpu-8g",)
# Capacity types that only Google Cloud has: nodes from a queue, and nodes that the user has reserved.
FLEX, RESERVED = "flex-start", "reservation"
TCPX, TCPXO = "tcpx", "tcpxo"  # GPUDirect over TCP: of A3 High, and of A3 Mega
_SSD_GB = 403  # of each local disk of 375 GiB
# Google's name of an accelerator -> the GPU's model, and its memory in GiB.
_GPUS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "nvidia-tesla-t4": ("T4", 16),
        "nvidia-tesla-v100": ("V100", 16),
        "nvidia-l4": ("L4", 24),
        "nvidia-tesla-a100": ("A100", 40),
        "nvidia-a100-80gb": ("A100", 80),
        "nvidia-h100-80gb": ("H100", 80),
        "nvidia-h100-mega-80gb": ("H100", 80),
        "nvidia-h200-141gb": ("H200", 141),
        "nvidia-b200": ("B200", 180),
    }
)
# The GPUs of A3 Ultra and A4: "GPU machine types" of Compute Engine's documentation.
_RDMA = frozenset({"nvidia-h200-141gb", "nvidia-b200"})


@dataclass(frozen=True, kw_only=True)
class GcpMachineType(InstanceType):
    """One machine type.

    Attributes:
        accelerator: Google's name of its GPUs.
        gpu_nics: network cards that only the GPUs use; each needs its own network.
        local_ssds: local disks that are part of the type; 0 if disks can only be added.
        fast_socket: whether NCCL can use GKE's Fast Socket.
        compact: whether nodes can have a compact placement policy.
        only: the capacity types that Google sells it in; empty for all.
        is_rdma: whether its GPUs reach other nodes by RDMA networks, which cloudrec does not make. It has no
            Persistent Disk either.
    """

    accelerator: str
    gpu_nics: int = 0
    local_ssds: int = 0
    fast_socket: bool = False
    compact: bool = False
    only: tuple[str, ...] = ()
    is_rdma: bool = False

    @property
    def disk(self) -> str:
        """The type of its root disk."""
        return "hyperdisk-balanced" if self.is_rdma else "pd-balanced"

    @property
    def fabric(self) -> str:
        """The network fabric between GPUs of different nodes: "tcp", "tcpx" or "tcpxo"."""
        if not self.gpu_nics:
            return "tcp"
        return TCPXO if self.accelerator == "nvidia-h100-mega-80gb" else TCPX


def _machine(
    instance_type: str,
    accelerator: str,
    *,
    gpus: int,
    vcpus: int,
    memory_gib: float,
    gbit_s: float,
    nvlink_gb_s: int = 0,
    gpu_nics: int = 0,
    local_ssds: int = 0,
    fast_socket: bool = False,
    only: tuple[str, ...] = (),
) -> GcpMachineType:
    model, gpu_memory_gib = _GPUS[accelerator]
    return GcpMachineType(
        instance_type=instance_type,
        gpu=model,
        gpus=gpus,
        gpu_memory_gib=gpu_memory_gib,
        vcpus=vcpus,
        memory_gib=memory_gib,
        nvme_gb=local_ssds * _SSD_GB,
        nvlink_gb_s=nvlink_gb_s if gpus > 1 else 0,
        network_gbit_s=gbit_s,
        accelerator=accelerator,
        gpu_nics=gpu_nics,
        local_ssds=local_ssds,
        fast_socket=fast_socket,
        compact=instance_type.startswith(("a2-", "a3-")),
        only=only,
    )


def _a2_high(gpus: int, gbit_s: float) -> GcpMachineType:
    return _machine(
        f"a2-highgpu-{gpus}g",
        "nvidia-tesla-a100",
        gpus=gpus,
        vcpus=12 * gpus,
        memory_gib=85.0 * gpus,
        gbit_s=gbit_s,
        nvlink_gb_s=600,
        fast_socket=True,
    )


def _a2_ultra(gpus: int, gbit_s: float) -> GcpMachineType:
    return _machine(
        f"a2-ultragpu-{gpus}g",
        "nvidia-a100-80gb",
        gpus=gpus,
        vcpus=12 * gpus,
        memory_gib=170.0 * gpus,
        gbit_s=gbit_s,
        nvlink_gb_s=600,
        local_ssds=gpus,
        fast_socket=True,
    )


def _a3(
    name: str, accelerator: str, gpus: int, gbit_s: float, *, nics: int = 0, only: tuple[str, ...] = ()
) -> GcpMachineType:
    return _machine(
        f"a3-{name}-{gpus}g",
        accelerator,
        gpus=gpus,
        vcpus=26 * gpus,
        memory_gib=234.0 * gpus,
        gbit_s=gbit_s,
        nvlink_gb_s=900,
        gpu_nics=nics,
        local_ssds=2 * gpus,
        only=only,
    )


def _g2(vcpus: int, *, gpus: int, gbit_s: float) -> GcpMachineType:
    return _machine(
        f"g2-standard-{vcpus}",
        "nvidia-l4",
        gpus=gpus,
        vcpus=vcpus,
        memory_gib=4.0 * vcpus,
        gbit_s=gbit_s,
    )


def _known(*hardware: GcpMachineType) -> Mapping[str, GcpMachineType]:
    return MappingProxyType({each.instance_type: each for each in hardware})


# A3 High with fewer than 8 GPUs is sold as spot and flex-start only, not on demand.
_PARTS = (SPOT, FLEX)
KNOWN = _known(
    _a2_high(1, 24),
    _a2_high(2, 32),
    _a2_high(4, 50),
    _a2_high(8, 100),
    _a2_ultra(1, 24),
    _a2_ultra(2, 32),
    _a2_ultra(4, 50),
    _a2_ultra(8, 100),
    _a3("highgpu", "nvidia-h100-80gb", 1, 25, only=_PARTS),
    _a3("highgpu", "nvidia-h100-80gb", 2, 50, only=_PARTS),
    _a3("highgpu", "nvidia-h100-80gb", 4, 100, only=_PARTS),
    _a3("highgpu", "nvidia-h100-80gb", 8, 1000, nics=4),
    _a3("megagpu", "nvidia-h100-mega-80gb", 8, 1800, nics=8),
    _g2(4, gpus=1, gbit_s=10),
    _g2(8, gpus=1, gbit_s=16),
    _g2(12, gpus=1, gbit_s=16),
    _g2(16, gpus=1, gbit_s=32),
    _g2(24, gpus=2, gbit_s=32),
    _g2(32, gpus=1, gbit_s=32),
    _g2(48, gpus=4, gbit_s=50),
    _g2(96, gpus=8, gbit_s=100),
)


def types_of(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the machine types to try, the best first."""
    return cluster.instance_types or DEFAULT_TYPES


def hardware_of(
    instance_types: Sequence[str], region: str, asked: Callable[[str], MachineType | None]
) -> dict[str, GcpMachineType]:
    """Return the hardware of each type, from the table or else from Google.

    Args:
        instance_types: the names of the types.
        region: the region of the cluster.
        asked: returns Google's description of a type in that region; None if no zone offers it.

    Raises:
        SpecError: the region has no such type, or the type has no NVIDIA GPU.
    """
    found: dict[str, GcpMachineType] = {}
    for name in instance_types:
        row = None if name in KNOWN else asked(name)
        if name not in KNOWN and row is None:
            raise SpecError(
                f"region {region} has no machine type {name!r}", remedy=did_you_mean(name, sorted(KNOWN))
            )
        found[name] = KNOWN[name] if row is None else described(row)
        if not found[name].gpus:
            raise SpecError(
                f"machine type {name!r} has no NVIDIA GPU", remedy=f"choose one of {', '.join(KNOWN)}"
            )
    return found


def described(row: MachineType) -> GcpMachineType:
    """Return the hardware in Google's description of a machine type; 0 GPUs if it has no known NVIDIA GPU."""
    found = next((each for each in row.accelerators if each.guest_accelerator_type in _GPUS), None)
    model, gpu_memory_gib = _GPUS[found.guest_accelerator_type] if found else ("", 0)
    return GcpMachineType(
        instance_type=row.name,
        gpu=model,
        gpus=found.guest_accelerator_count if found else 0,
        gpu_memory_gib=gpu_memory_gib,
        vcpus=row.guest_cpus,
        memory_gib=row.memory_mb / 1024,
        accelerator=found.guest_accelerator_type if found else "",
        is_rdma=found is not None and found.guest_accelerator_type in _RDMA,
    )
