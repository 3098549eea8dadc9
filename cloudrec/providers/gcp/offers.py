"""The GPU nodes that can be had on Google Cloud, and their hardware."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.offers import MARKETS, SPOT, Machine, Place, all_ways
from cloudrec.errors import SpecError
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.layout import Layout
    from cloudrec.spec.models import ClusterSpec

DEFAULT_TYPES = ("a2-highgpu-8g",)
# Markets beside those of every cloud: nodes that come once Google has them, and nodes that are ours already.
FLEX, RESERVED = "flex-start", "reservation"
TCPX, TCPXO = "tcpx", "tcpxo"  # GPUDirect over TCP, of A3 High and of A3 Mega
_SSD_GB = 403  # of each local disk, which Google calls 375 GiB
# What Google calls the accelerators, with the GPU's model and the memory of each.
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


@dataclass(frozen=True, kw_only=True)
class Hardware(Machine):
    """One machine type.

    Attributes:
        accelerator: what Google calls its GPUs.
        gpu_nics: network cards for the GPUs alone, each of which wants a network of its own.
        local_ssds: disks that belong to it; where they are to be asked for, none.
        fast_socket: whether NCCL may use GKE's Fast Socket on it.
        compact: whether nodes of it can be placed close together.
        only: the markets in which it is sold; all when empty.
    """

    accelerator: str
    gpu_nics: int = 0
    local_ssds: int = 0
    fast_socket: bool = False
    compact: bool = False
    only: tuple[str, ...] = ()

    @property
    def fabric(self) -> str:
        """How GPUs of different nodes talk."""
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
) -> Hardware:
    model, gpu_memory_gib = _GPUS[accelerator]
    return Hardware(
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


def _a2_high(gpus: int, gbit_s: float) -> Hardware:
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


def _a2_ultra(gpus: int, gbit_s: float) -> Hardware:
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
) -> Hardware:
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


def _g2(vcpus: int, *, gpus: int, gbit_s: float) -> Hardware:
    return _machine(
        f"g2-standard-{vcpus}",
        "nvidia-l4",
        gpus=gpus,
        vcpus=vcpus,
        memory_gib=4.0 * vcpus,
        gbit_s=gbit_s,
    )


def _known(*hardware: Hardware) -> Mapping[str, Hardware]:
    return MappingProxyType({each.instance_type: each for each in hardware})


_PARTS = (SPOT, FLEX)  # how parts of an A3 machine are sold: nobody has them on demand
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


def places(layout: Layout) -> list[Place]:
    """Return the ways of having the GPU nodes, the best first.

    What is reserved is paid for already: nothing else is tried then. Flex-start comes last, since it never
    fails, but waits.
    """
    settings = layout.settings
    markets = (*MARKETS[layout.cluster.capacity], *((FLEX,) if settings.flex_start else ()))
    if settings.reservation:
        markets = (RESERVED,)
    return [
        way
        for way in all_ways(layout.instance_types, layout.gpu_zones, markets, layout.offered)
        if not (only := layout.hardware[way.instance_type].only) or way.market in only
    ]


def hardware_of(instance_types: Sequence[str], gcp: Gcp) -> dict[str, Hardware]:
    """Return each type's hardware, asking the cloud for those that the table does not have.

    Raises:
        SpecError: a type does not exist, or has no GPU.
    """
    found: dict[str, Hardware] = {}
    for name in instance_types:
        row = None if name in KNOWN else _asked(gcp, name)
        if name not in KNOWN and row is None:
            raise SpecError(
                f"machine type {name!r} is not in {gcp.region}", remedy=did_you_mean(name, sorted(KNOWN))
            )
        found[name] = KNOWN[name] if row is None else described(row)
        if not found[name].gpus:
            raise SpecError(
                f"machine type {name!r} has no GPU of NVIDIA", remedy=f"choose one of {', '.join(KNOWN)}"
            )
    return found


def _asked(gcp: Gcp, name: str) -> Any:  # noqa: ANN401 - the SDK's message
    """Ask the zones of the region for a machine type; None where none has it."""
    types = gcp.compute("machine_types")
    listed = gcp.rows(types.aggregated_list, project=gcp.project, filter=f'name = "{name}"')
    for place, scoped in listed:
        if place.startswith(f"zones/{gcp.region}-") and scoped.machine_types:
            return scoped.machine_types[0]
    return None


def described(row: Any) -> Hardware:  # noqa: ANN401 - the SDK's message
    """Read a row of `machine_types`; 0 GPUs where it brings none of NVIDIA."""
    found = next((each for each in row.accelerators if each.guest_accelerator_type in _GPUS), None)
    model, gpu_memory_gib = _GPUS[found.guest_accelerator_type] if found else ("", 0)
    return Hardware(
        instance_type=row.name,
        gpu=model,
        gpus=found.guest_accelerator_count if found else 0,
        gpu_memory_gib=gpu_memory_gib,
        vcpus=row.guest_cpus,
        memory_gib=row.memory_mb / 1024,
        accelerator=found.guest_accelerator_type if found else "",
    )
