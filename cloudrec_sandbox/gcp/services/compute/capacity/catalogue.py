"""Machine types and accelerator types, by zone."""

from __future__ import annotations

from dataclasses import dataclass, field

from cloudrec_sandbox.gcp.resources.places import ZONES

A100, A100_80, H100, H100_MEGA = (
    "nvidia-tesla-a100",
    "nvidia-a100-80gb",
    "nvidia-h100-80gb",
    "nvidia-h100-mega-80gb",
)
H200, B200 = "nvidia-h200-141gb", "nvidia-b200"
L4, T4, V100 = "nvidia-l4", "nvidia-tesla-t4", "nvidia-tesla-v100"
WITH_RDMA = (H200, B200)  # the accelerators whose machine types have MRDMA cards


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine type.

    Attributes:
        accelerator: the built-in accelerator's name; '' for none.
        accelerators: the number of them.
        local_ssds: the number of built-in local SSDs of 375 GB.
        ssd_counts: the numbers of local SSDs that can be added ("Choose a valid number of Local SSD disks",
            Compute Engine's documentation); empty for none, and for the families that are not listed here.
        transient: it is offered as spot or flex-start only.
    """

    name: str
    vcpus: int
    memory_gb: float
    accelerator: str = ""
    accelerators: int = 0
    local_ssds: int = 0
    ssd_counts: tuple[int, ...] = ()
    transient: bool = False

    @property
    def family(self) -> str:
        """Return the family, the first part of its name: a3."""
        return self.name.partition("-")[0]


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One accelerator type: its zones, and how many an N1 machine may have (empty: built-in only)."""

    name: str
    description: str
    zones: frozenset[str]
    attachable: tuple[int, ...] = field(default=())


def _zones(text: str) -> frozenset[str]:
    """Return zones from "us-central1-abc us-east4-c"."""
    places = (place.rpartition("-") for place in text.split())
    return frozenset(f"{region}-{letter}" for region, _, letters in places for letter in letters)


_A3 = _zones(
    "us-central1-abc us-east4-abc us-east5-a us-west1-ab us-west4-a europe-west1-bc europe-west4-bc"
    " asia-northeast1-b asia-southeast1-bc australia-southeast1-c"
)
_L4 = _zones(
    "us-central1-abc us-east1-bcd us-east4-ac us-west1-abc us-west4-ac europe-west1-bc europe-west2-ab"
    " europe-west3-ab europe-west4-abc asia-east1-abc asia-northeast1-abc asia-northeast3-ab asia-south1-abc"
    " asia-southeast1-abc"
)
_A2 = _zones(
    "us-central1-abcf us-east1-b us-west1-b us-west3-b us-west4-b europe-west4-ab asia-northeast1-ac"
    " asia-northeast3-ab asia-southeast1-bc"
)
_ULTRA = _zones("us-central1-ac us-east4-c us-east5-ab europe-west4-a asia-southeast1-c")

ACCELERATORS = {
    each.name: each
    for each in (
        Accelerator(name=A100, description="NVIDIA A100 40GB", zones=_A2),
        Accelerator(name=A100_80, description="NVIDIA A100 80GB", zones=_ULTRA),
        Accelerator(name=H100, description="NVIDIA H100 80GB", zones=_A3),
        Accelerator(name=H100_MEGA, description="NVIDIA H100 80GB MEGA", zones=_A3),
        Accelerator(
            name=H200,
            description="NVIDIA H200 141GB",
            zones=_zones("us-central1-b us-east4-b us-east5-a us-west1-c europe-west1-b asia-south1-b"),
        ),
        Accelerator(
            name=B200,
            description="NVIDIA B200 180GB",
            zones=_zones("us-central1-b us-east1-b us-east4-b us-west3-bc europe-west4-b asia-southeast1-b"),
        ),
        Accelerator(name=L4, description="NVIDIA L4", zones=_L4),
        Accelerator(
            name=T4,
            description="NVIDIA T4",
            zones=_L4 | _zones("us-central1-f us-west1-ab"),
            attachable=(1, 2, 4),
        ),
        Accelerator(
            name=V100,
            description="NVIDIA V100",
            zones=_zones("us-central1-abcf us-west1-ab us-east1-c europe-west4-abc asia-east1-c"),
            attachable=(1, 2, 4, 8),
        ),
    )
}

_GIB_OF_VCPU = {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0}
_SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "e2": {"standard": (2, 4, 8, 16, 32), "highmem": (2, 4, 8, 16), "highcpu": (2, 4, 8, 16, 32)},
    "n2": {"standard": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128), "highmem": (2, 4, 8, 16, 32, 48, 64, 80)},
    "n2d": {"standard": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224)},
    "c3": {"standard": (4, 8, 22, 44, 88, 176)},
}


def _general() -> list[Machine]:
    found = [
        Machine(name=f"{family}-{shape}-{size}", vcpus=size, memory_gb=size * _GIB_OF_VCPU[shape])
        for family, shapes in _SIZES.items()
        for shape, sizes in shapes.items()
        for size in sizes
    ]
    for shape, memory in (("standard", 3.75), ("highmem", 6.5), ("highcpu", 0.9)):
        found += [
            Machine(name=f"n1-{shape}-{size}", vcpus=size, memory_gb=size * memory)
            for size in (1, 2, 4, 8, 16, 32, 64, 96)
            if size > 1 or shape == "standard"
        ]
    small = (("e2-micro", 1.0), ("e2-small", 2.0), ("e2-medium", 4.0))
    return found + [Machine(name=name, vcpus=2, memory_gb=memory) for name, memory in small]


_SSD_COUNTS: dict[str, tuple[int, ...]] = {
    "a2-highgpu-1g": (1, 2, 4, 8),
    "a2-highgpu-2g": (2, 4, 8),
    "a2-highgpu-4g": (4, 8),
    "a2-highgpu-8g": (8,),
    "a2-megagpu-16g": (8,),
    **dict.fromkeys(("g2-standard-4", "g2-standard-8", "g2-standard-12"), (1,)),
    **dict.fromkeys(("g2-standard-16", "g2-standard-32"), (1,)),
    "g2-standard-24": (2,),
    "g2-standard-48": (4,),
    "g2-standard-96": (8,),
}


def _with_gpus() -> list[Machine]:
    rows: list[tuple[str, int, float, str, int, int]] = [
        *((f"a2-highgpu-{n}g", 12 * n, 85.0 * n, A100, n, 0) for n in (1, 2, 4, 8)),
        ("a2-megagpu-16g", 96, 1360.0, A100, 16, 0),
        *((f"a2-ultragpu-{n}g", 12 * n, 170.0 * n, A100_80, n, n) for n in (1, 2, 4, 8)),
        *((f"a3-highgpu-{n}g", 26 * n, 234.0 * n, H100, n, 2 * n) for n in (1, 2, 4, 8)),
        ("a3-megagpu-8g", 208, 1872.0, H100_MEGA, 8, 16),
        ("a3-ultragpu-8g", 224, 2952.0, H200, 8, 32),
        ("a4-highgpu-8g", 224, 3968.0, B200, 8, 32),
        ("g2-standard-4", 4, 16.0, L4, 1, 0),
        ("g2-standard-8", 8, 32.0, L4, 1, 0),
        ("g2-standard-12", 12, 48.0, L4, 1, 0),
        ("g2-standard-16", 16, 64.0, L4, 1, 0),
        ("g2-standard-24", 24, 96.0, L4, 2, 0),
        ("g2-standard-32", 32, 128.0, L4, 1, 0),
        ("g2-standard-48", 48, 192.0, L4, 4, 0),
        ("g2-standard-96", 96, 384.0, L4, 8, 0),
    ]
    return [
        Machine(
            name=name,
            vcpus=vcpus,
            memory_gb=memory,
            accelerator=accelerator,
            accelerators=count,
            local_ssds=ssds,
            ssd_counts=_SSD_COUNTS.get(name, ()),
            transient=name in ("a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"),
        )
        for name, vcpus, memory, accelerator, count, ssds in rows
    ]


MACHINES = {machine.name: machine for machine in (*_general(), *_with_gpus())}


def find(machine_type: str, zone: str) -> Machine | None:
    """Return the machine type, if the zone offers it."""
    machine = MACHINES.get(machine_type)
    if machine is None or zone not in ZONES:
        return None
    if machine.accelerator and zone not in ACCELERATORS[machine.accelerator].zones:
        return None
    return machine


def offered(zone: str) -> list[Machine]:
    """Return all machine types of a zone, by name."""
    return [MACHINES[name] for name in sorted(MACHINES) if find(name, zone)]
