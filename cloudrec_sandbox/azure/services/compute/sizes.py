"""Sizes of virtual machines.

The two services spell a family differently, as Azure's do: `resource_skus` shows `sku_family`, `usages` shows
`quota_family`; they are equal without spaces and case.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloudrec_sandbox.azure.arm.regions import REGIONS


@dataclass(frozen=True, kw_only=True)
class Family:
    """Sizes that share one quota of vCPUs, with what they have in common."""

    sku: str
    quota: str
    title: str  # of the quota, for people
    product: str  # in the price list
    limit: int = 0  # vCPUs of a new subscription
    spot: bool = True
    infiniband: bool = False
    # NVMe Direct disks beside the temporary disk: 8 of 3.5 TB in the tables of ndh100v5-series.md and
    # nd-h200-v5-series.md (azure-compute-docs); nda100-v4-series.md has a temporary disk alone.
    nvme_disks: int = 0
    zones: dict[str, tuple[str, ...]]  # by region; () if the region offers it without zones


@dataclass(frozen=True, kw_only=True)
class Size:
    """The hardware of one machine."""

    name: str
    family: Family
    vcpus: int
    memory_gib: int
    gpus: int = 0
    temp_disk_mib: int = 0

    @property
    def nvme_disks(self) -> int:
        """Return the number of its NVMe Direct disks."""
        return self.family.nvme_disks


def _some(**zones: str) -> dict[str, tuple[str, ...]]:
    """Return zones by region, written as "12"."""
    return {region: tuple(text) for region, text in zones.items()}


_DSV5 = Family(
    sku="standardDSv5Family",
    quota="standardDSv5Family",
    title="Standard DSv5 Family vCPUs",
    product="Dsv5 Series",
    limit=10,
    zones=REGIONS,
)
_DDSV5 = Family(
    sku="standardDDSv5Family",
    quota="standardDDSv5Family",
    title="Standard DDSv5 Family vCPUs",
    product="Ddsv5 Series",
    limit=10,
    zones=REGIONS,
)
_ESV5 = Family(
    sku="standardESv5Family",
    quota="standardESv5Family",
    title="Standard ESv5 Family vCPUs",
    product="Esv5 Series",
    limit=10,
    zones=REGIONS,
)
_BS = Family(
    sku="standardBSFamily",
    quota="standardBSFamily",
    title="Standard BS Family vCPUs",
    product="BS Series",
    limit=10,
    spot=False,
    zones=REGIONS,
)
_T4 = Family(
    sku="StandardNCASv3_T4Family",
    quota="Standard NCASv3_T4 Family",
    title="Standard NCASv3_T4 Family vCPUs",
    product="NCasT4 v3 Series",
    zones=_some(
        eastus="123", eastus2="123", southcentralus="123", westus2="123", westeurope="123", northeurope="12"
    ),
)
_A10 = Family(
    sku="StandardNVADSA10v5Family",
    quota="standardNVADSA10v5Family",
    title="Standard NVADSA10v5 Family vCPUs",
    product="NVadsA10 v5 Series",
    zones=_some(
        eastus="12", eastus2="13", southcentralus="123", westus2="123", westus3="123", westeurope="3"
    ),
)
_NC_A100 = Family(
    sku="StandardNCADSA100v4Family",
    quota="StandardNCADSA100v4Family",
    title="Standard NCADS_A100_v4 Family vCPUs",
    product="NCads A100 v4 Series",
    zones=_some(eastus="12", eastus2="3", southcentralus="23", westus2="12", westus3="13", westeurope="23"),
)
_NC_H100 = Family(
    sku="StandardNCadsH100v5Family",
    quota="StandardNCadsH100v5Family",
    title="Standard NCadsH100v5 Family vCPUs",
    product="NCadsH100v5 Series",
    zones=_some(eastus="12", eastus2="123", southcentralus="13", westus3="123", westeurope="1"),
)
_ND_A100 = Family(
    sku="standardNDASv4_A100Family",
    quota="Standard NDASv4_A100 Family",
    title="Standard NDASv4_A100 Family vCPUs",
    product="NDasr A100 v4 Series",
    infiniband=True,
    zones=_some(eastus="12", southcentralus="13", westus2="12", westeurope="2"),
)
_NDM_A100 = Family(
    sku="standardNDAMSv4_A100Family",
    quota="Standard NDAMSv4_A100Family",
    title="Standard NDAMSv4_A100Family vCPUs",
    product="NDamsr A100 v4 Series",
    infiniband=True,
    zones=_some(eastus="2", southcentralus="1", westus3="12", westeurope="2", swedencentral="3"),
)
_ND_H100 = Family(
    sku="standardNDSH100v5Family",
    quota="standardNDSH100v5Family",
    title="Standard NDSH100v5 Family vCPUs",
    product="NDsr H100 v5 Series",
    infiniband=True,
    nvme_disks=8,
    zones=_some(eastus="12", eastus2="3", southcentralus="3", westus3="12", swedencentral="1"),
)
_ND_H200 = Family(
    sku="standardNDISRH200V5Family",
    quota="standardNDISRH200V5Family",
    title="Standard NDISRH200V5 Family vCPUs",
    product="NDsr H200 v5 Series",
    infiniband=True,
    nvme_disks=8,
    zones=_some(eastus2="2", southcentralus="1", westus3="2", swedencentral="2"),
)

_ROWS: tuple[tuple[str, Family, int, int, int, int], ...] = (
    # name, family, vCPUs, GiB, GPUs, temporary disk in GiB
    ("B2s", _BS, 2, 4, 0, 8),
    ("B2ms", _BS, 2, 8, 0, 16),
    ("B4ms", _BS, 4, 16, 0, 32),
    ("D2s_v5", _DSV5, 2, 8, 0, 0),
    ("D4s_v5", _DSV5, 4, 16, 0, 0),
    ("D8s_v5", _DSV5, 8, 32, 0, 0),
    ("D16s_v5", _DSV5, 16, 64, 0, 0),
    ("D32s_v5", _DSV5, 32, 128, 0, 0),
    ("D2ds_v5", _DDSV5, 2, 8, 0, 75),
    ("D4ds_v5", _DDSV5, 4, 16, 0, 150),
    ("D8ds_v5", _DDSV5, 8, 32, 0, 300),
    ("D16ds_v5", _DDSV5, 16, 64, 0, 600),
    ("E4s_v5", _ESV5, 4, 32, 0, 0),
    ("E8s_v5", _ESV5, 8, 64, 0, 0),
    ("NC4as_T4_v3", _T4, 4, 28, 1, 176),
    ("NC8as_T4_v3", _T4, 8, 56, 1, 352),
    ("NC16as_T4_v3", _T4, 16, 110, 1, 352),
    ("NC64as_T4_v3", _T4, 64, 440, 4, 2816),
    ("NV36ads_A10_v5", _A10, 36, 440, 1, 1440),
    ("NV72ads_A10_v5", _A10, 72, 880, 2, 2880),
    ("NC24ads_A100_v4", _NC_A100, 24, 220, 1, 64),
    ("NC48ads_A100_v4", _NC_A100, 48, 440, 2, 128),
    ("NC96ads_A100_v4", _NC_A100, 96, 880, 4, 256),
    ("NC40ads_H100_v5", _NC_H100, 40, 320, 1, 3576),
    ("NC80adis_H100_v5", _NC_H100, 80, 640, 2, 7152),
    ("ND96asr_v4", _ND_A100, 96, 900, 8, 6000),
    ("ND96amsr_A100_v4", _NDM_A100, 96, 1900, 8, 6400),
    ("ND96isr_H100_v5", _ND_H100, 96, 1900, 8, 1024),
    ("ND96isr_H200_v5", _ND_H200, 96, 1850, 8, 1024),
)

SIZES: dict[str, Size] = {
    f"standard_{name.lower()}": Size(
        name=f"Standard_{name}",
        family=family,
        vcpus=vcpus,
        memory_gib=memory,
        gpus=gpus,
        temp_disk_mib=disk * 1024,
    )
    for name, family, vcpus, memory, gpus, disk in _ROWS
}
FAMILIES: dict[str, Family] = {size.family.quota: size.family for size in SIZES.values()}


def find(name: str) -> Size | None:
    """Return the size with a name, ignoring case; None if there is none."""
    return SIZES.get(name.lower())


def zones(size: Size, region: str) -> tuple[str, ...] | None:
    """Return a region's zones that offer a size; () if it has no zones there, None if it is not offered."""
    return size.family.zones.get(region)
