"""The GPU nodes that Azure offers: their hardware, and the zones of a region that have them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import Field

from cloudrec.errors import SpecError
from cloudrec.providers.azure.api.rows import plain
from cloudrec.providers.base.hardware import machines
from cloudrec.providers.base.hardware.machines import MachineRow
from cloudrec.providers.base.offers import X86, InstanceType
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.azure.api import models
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.base.protocol import Offer
    from cloudrec.spec.models import ClusterSpec

DEFAULT_TYPES = ("Standard_ND96asr_v4",)
_PREFIX = "Standard_"
# NVIDIA's models as the names of sizes spell them -> GiB of memory. Sizes with GPUs of other makers count as
# sizes without a GPU.
_MODELS: Mapping[str, int] = MappingProxyType(
    {"T4": 16, "A10": 24, "V100": 16, "A100": 80, "H100": 80, "H200": 141, "GB200": 186}
)

_ARCHITECTURES: Mapping[str, str] = MappingProxyType({"x64": X86, "Arm64": "arm64"})
_NOUN = "VM size"


@dataclass(frozen=True, kw_only=True)
class AzureVmSize(InstanceType):
    """One size of virtual machine.

    Attributes:
        family: the family whose vCPU quota it counts against, in one of Azure's spellings (see `family_key`).
    """

    family: str

    @property
    def infiniband(self) -> int:
        """The number of InfiniBand adapters. The fabric connects the machines of one pool."""
        return self.cards

    @property
    def fabric(self) -> str:
        """InfiniBand, if it has such an adapter."""
        return "infiniband" if self.cards else "tcp"


@dataclass(frozen=True, kw_only=True)
class Sku:
    """What a region reports about one size.

    Attributes:
        hardware: of the size.
        zones: those that have the size and are open to the subscription; empty in a region without zones.
        restriction: why the subscription may not use the size in the region; empty if it may.
        spot: whether the size is sold as spot capacity.
        zonal: whether the region offers the size in zones.
    """

    hardware: AzureVmSize
    zones: tuple[str, ...]
    restriction: str = ""
    spot: bool = True
    zonal: bool = False


class AzureMachineRow(MachineRow):
    """A row of Azure's table.

    Attributes:
        family: the family whose vCPU quota the size counts against, in one of Azure's spellings.
    """

    family: str = Field(min_length=1)

    def hardware(self) -> AzureVmSize:
        """Return the hardware that the row has."""
        return AzureVmSize(**self.shared(), family=self.family)


TABLE = machines.table_of(__package__, AzureMachineRow)
KNOWN: Mapping[str, AzureVmSize] = MappingProxyType(
    {name: row.hardware() for name, row in TABLE.items() if not row.refused}
)


def types_of(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the sizes to try, the best first, spelled as Azure does."""
    return tuple(spelled(name) for name in cluster.instance_types) or DEFAULT_TYPES


def spelled(name: str) -> str:
    """Return a size's full name in Azure's spelling.

    Args:
        name: in any case, with or without `Standard_`.
    """
    full = name if name.lower().startswith(_PREFIX.lower()) else _PREFIX + name
    return next((known for known in TABLE if known.lower() == full.lower()), full)


def family_key(family: str) -> str:
    """Return a family's name in a form that is the same for all of Azure's spellings.

    The list of sizes and the list of quotas differ in case, spaces and a suffix.
    """
    return re.sub(r"[\s_-]|vcpus$", "", family.lower())


def skus(azure: Azure, instance_types: Sequence[str]) -> dict[str, Sku]:
    """Return what the region reports about these sizes, by name; sizes that it does not have are left out."""
    rows = azure.resource_skus()
    by_name = {(row.name or "").lower(): row for row in rows if row.resource_type == "virtualMachines"}
    found = {name: by_name[name.lower()] for name in instance_types if name.lower() in by_name}
    return {name: sku_of(name, row) for name, row in found.items()}


def sku_of(name: str, row: models.compute.ResourceSku) -> Sku:
    """Return a row of `resource_skus.list` as a `Sku`.

    Args:
        name: the size's, in the spelling of the result.
        row: has one location, since the list is filtered by region.
    """
    info = row.location_info[0] if row.location_info else None
    listed = set((info.zones if info is not None else None) or ())
    closed: set[str] = set()
    reason = ""
    for restriction in row.restrictions or ():
        if restriction.type == "Zone":
            closed |= set((restriction.restriction_info and restriction.restriction_info.zones) or ())
        else:
            reason = plain(restriction.reason_code) or "restricted"
    if listed and listed <= closed:
        reason = reason or "NotAvailableForSubscription"
    return Sku(
        hardware=KNOWN.get(name) or described(name, row),
        zones=tuple(sorted(listed - closed)),
        restriction=reason,
        spot=_capabilities(row).get("LowPriorityCapable", "True") == "True",
        zonal=bool(listed),
    )


def described(name: str, row: models.compute.ResourceSku) -> AzureVmSize:
    """Return the hardware of a size that is not in the table; it has 0 GPUs unless they are NVIDIA's."""
    of = _capabilities(row)
    model = next((part for part in name.split("_") if part in _MODELS), "")
    gpus = int(of.get("GPUs", 0)) if model else 0
    return AzureVmSize(
        instance_type=name,
        gpu=model,
        gpus=gpus,
        gpu_memory_gib=_MODELS[model] if gpus else 0,
        vcpus=int(of.get("vCPUs", 0)),
        memory_gib=float(of.get("MemoryGB", 0)),
        nvme_gb=round(int(of.get("NvmeDiskSizeInMiB", 0)) * 1.048576 / 1000),
        family=row.family or "",
        cards=gpus if gpus and of.get("RdmaEnabled") == "True" else 0,
        architecture=_ARCHITECTURES.get(of.get("CpuArchitectureType", ""), X86),
    )


def located(found: Sequence[Offer], region: str) -> list[Offer]:
    """Return the offers with locations as the nodes' zone labels have them: `eastus-1`, or `eastus`."""

    def place(zone: str) -> str:
        return f"{region}-{zone}" if zone.isdigit() else zone or region

    return [replace(each, location=place(each.location)) for each in found]


def refuse(instance_types: Sequence[str]) -> None:
    """Refuse sizes that the table says are not usable; SpecError has the reason."""
    machines.refuse(instance_types, TABLE, _NOUN)


def hardware_of(
    instance_types: Sequence[str], region: Mapping[str, Sku], location: str
) -> dict[str, AzureVmSize]:
    """Return each size's hardware: as the region reports it, or from the table.

    Args:
        instance_types: the sizes' full names.
        region: what `skus` returned.
        location: the region's name, for the messages.

    Raises:
        SpecError: a size is refused, does not exist, or has no NVIDIA GPU.
    """
    refuse(instance_types)
    found: dict[str, AzureVmSize] = {}
    for name in instance_types:
        if name in region:
            found[name] = region[name].hardware
        elif name in KNOWN:
            found[name] = KNOWN[name]
        else:
            raise SpecError(f"there is no VM size {name!r} in {location}", remedy=did_you_mean(name, KNOWN))
        machines.check(found[name], _NOUN, DEFAULT_TYPES)
    return found


def _capabilities(row: models.compute.ResourceSku) -> dict[str, str]:
    return {each.name or "": each.value or "" for each in row.capabilities or ()}
