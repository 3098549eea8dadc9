"""The GPU nodes that can be had on Azure: their hardware, and where a region has them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.offers import Machine
from cloudrec.errors import SpecError
from cloudrec.providers.azure.rows import plain
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.provider import Offer
    from cloudrec.providers.azure.client import Azure
    from cloudrec.spec.models import ClusterSpec

DEFAULT_TYPES = ("Standard_ND96asr_v4",)
_PREFIX = "Standard_"
# NVIDIA's models as the names of sizes spell them, with the memory of each; those of other makers are none.
_MODELS: Mapping[str, int] = MappingProxyType(
    {"T4": 16, "A10": 24, "V100": 16, "A100": 80, "H100": 80, "H200": 141, "GB200": 186}
)


@dataclass(frozen=True, kw_only=True)
class Hardware(Machine):
    """One size of virtual machine.

    Attributes:
        family: whose quota on virtual cores it counts against, as `compute usage list` names it.
        infiniband: network cards of the InfiniBand fabric, which joins the machines of one pool.
    """

    family: str
    infiniband: int = 0


@dataclass(frozen=True, kw_only=True)
class Sku:
    """What a region tells of one size.

    Attributes:
        hardware: of it.
        zones: those that have it and let this subscription use it; none where the region has no zones.
        restriction: why the subscription may not use it anywhere in the region; empty where it may.
        spot: whether it is sold as spot.
        zonal: whether the region has it in zones at all.
    """

    hardware: Hardware
    zones: tuple[str, ...]
    restriction: str = ""
    spot: bool = True
    zonal: bool = False


def _known(*hardware: Hardware) -> Mapping[str, Hardware]:
    return MappingProxyType({each.instance_type: each for each in hardware})


def _t4(size: int, *, gpus: int, memory_gib: float, temporary_gb: int, gbit_s: float) -> Hardware:
    return Hardware(
        instance_type=f"Standard_NC{size}as_T4_v3",
        gpu="T4",
        gpus=gpus,
        gpu_memory_gib=16,
        vcpus=size,
        memory_gib=memory_gib,
        nvme_gb=temporary_gb,
        network_gbit_s=gbit_s,
        family="Standard NCASv3_T4 Family",
    )


def _nc_a100(gpus: int) -> Hardware:
    return Hardware(
        instance_type=f"Standard_NC{24 * gpus}ads_A100_v4",
        gpu="A100",
        gpus=gpus,
        gpu_memory_gib=80,
        vcpus=24 * gpus,
        memory_gib=220.0 * gpus,
        nvme_gb=960 * gpus,
        network_gbit_s=20.0 * gpus,
        family="StandardNCADSA100v4Family",
    )


def _nc_h100(gpus: int, letters: str) -> Hardware:
    return Hardware(
        instance_type=f"Standard_NC{40 * gpus}{letters}_H100_v5",
        gpu="H100",
        gpus=gpus,
        gpu_memory_gib=94,
        vcpus=40 * gpus,
        memory_gib=320.0 * gpus,
        nvme_gb=3576 * gpus,
        network_gbit_s=40.0 * gpus,
        family="StandardNCadsH100v5Family",
    )


KNOWN = _known(
    Hardware(
        instance_type="Standard_ND96asr_v4",
        gpu="A100",
        gpus=8,
        gpu_memory_gib=40,
        vcpus=96,
        memory_gib=900,
        nvme_gb=6442,
        nvlink_gb_s=600,
        network_gbit_s=1600,
        family="Standard NDASv4_A100 Family",
        infiniband=8,
    ),
    Hardware(
        instance_type="Standard_ND96amsr_A100_v4",
        gpu="A100",
        gpus=8,
        gpu_memory_gib=80,
        vcpus=96,
        memory_gib=1900,
        nvme_gb=6871,
        nvlink_gb_s=600,
        network_gbit_s=1600,
        family="standard NDAMSv4_A100Family",
        infiniband=8,
    ),
    Hardware(
        instance_type="Standard_ND96isr_H100_v5",
        gpu="H100",
        gpus=8,
        gpu_memory_gib=80,
        vcpus=96,
        memory_gib=1900,
        nvme_gb=30786,
        nvlink_gb_s=900,
        network_gbit_s=3200,
        family="standardNDSH100v5Family",
        infiniband=8,
    ),
    _nc_a100(1),
    _nc_a100(2),
    _nc_a100(4),
    _nc_h100(1, "ads"),
    _nc_h100(2, "adis"),
    _t4(4, gpus=1, memory_gib=28, temporary_gb=189, gbit_s=8),
    _t4(8, gpus=1, memory_gib=56, temporary_gb=378, gbit_s=8),
    _t4(16, gpus=1, memory_gib=110, temporary_gb=378, gbit_s=8),
    _t4(64, gpus=4, memory_gib=440, temporary_gb=3023, gbit_s=32),
)


def types_of(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the sizes to try, the best first, spelled as Azure does."""
    return tuple(spelled(name) for name in cluster.instance_types) or DEFAULT_TYPES


def spelled(name: str) -> str:
    """Return a size's full name: Azure takes any case, and people leave out `Standard_`."""
    full = name if name.lower().startswith(_PREFIX.lower()) else _PREFIX + name
    return next((known for known in KNOWN if known.lower() == full.lower()), full)


def family_key(family: str) -> str:
    """Return a family's name without what its several spellings differ in."""
    return re.sub(r"[\s_-]|vcpus$", "", family.lower())


def skus(azure: Azure, instance_types: Sequence[str]) -> dict[str, Sku]:
    """Return what the region tells of these sizes; what it does not have is not in it."""
    rows = azure.resource_skus()
    by_name = {row.name.lower(): row for row in rows if row.resource_type == "virtualMachines"}
    found = {name: by_name[name.lower()] for name in instance_types if name.lower() in by_name}
    return {name: sku_of(name, row) for name, row in found.items()}


def sku_of(name: str, row: Any) -> Sku:  # noqa: ANN401 - the SDK's model
    """Read a row of `resource_skus.list`, of one location."""
    info = (row.location_info or [None])[0]
    listed = set((info.zones if info is not None else None) or ())
    closed: set[str] = set()
    reason = ""
    for restriction in row.restrictions or ():
        if restriction.type == "Zone":
            closed |= set((restriction.restriction_info and restriction.restriction_info.zones) or ())
        else:
            reason = str(plain(restriction.reason_code) or "restricted")
    if listed and listed <= closed:
        reason = reason or "NotAvailableForSubscription"
    return Sku(
        hardware=KNOWN.get(name) or described(name, row),
        zones=tuple(sorted(listed - closed)),
        restriction=reason,
        spot=_capabilities(row).get("LowPriorityCapable", "True") == "True",
        zonal=bool(listed),
    )


def described(name: str, row: Any) -> Hardware:  # noqa: ANN401 - the SDK's model
    """Read the hardware of a size that the table does not have; 0 GPUs where none is of NVIDIA."""
    of = _capabilities(row)
    model = next((part for part in name.split("_") if part in _MODELS), "")
    gpus = int(of.get("GPUs", 0)) if model else 0
    return Hardware(
        instance_type=name,
        gpu=model,
        gpus=gpus,
        gpu_memory_gib=_MODELS[model] if gpus else 0,
        vcpus=int(of.get("vCPUs", 0)),
        memory_gib=float(of.get("MemoryGB", 0)),
        nvme_gb=round(int(of.get("NvmeDiskSizeInMiB", 0)) * 1.048576 / 1000),
        family=row.family or "",
        infiniband=gpus if gpus and of.get("RdmaEnabled") == "True" else 0,
    )


def located(found: Sequence[Offer], region: str) -> list[Offer]:
    """Return the offers with their places as labels of nodes tell them: `eastus-1`, or `eastus`."""

    def place(zone: str) -> str:
        return f"{region}-{zone}" if zone.isdigit() else zone or region

    return [replace(each, location=place(each.location)) for each in found]


def hardware_of(
    instance_types: Sequence[str], region: Mapping[str, Sku], location: str
) -> dict[str, Hardware]:
    """Return each size's hardware: from the table, or as the region tells it.

    Args:
        instance_types: the sizes' full names.
        region: what `skus` returned.
        location: the region, for people.

    Raises:
        SpecError: a size does not exist, or has no GPU.
    """
    found: dict[str, Hardware] = {}
    for name in instance_types:
        if name in region:
            found[name] = region[name].hardware
        elif name in KNOWN:
            found[name] = KNOWN[name]
        else:
            raise SpecError(
                f"there is no VM size {name!r} in {location}", remedy=did_you_mean(name, sorted(KNOWN))
            )
        if not found[name].gpus:
            raise SpecError(
                f"VM size {name!r} has no GPU of NVIDIA", remedy=f"choose one of {', '.join(KNOWN)}"
            )
    return found


def _capabilities(row: Any) -> dict[str, str]:  # noqa: ANN401 - the SDK's model
    return {each.name: each.value for each in row.capabilities or ()}
