"""From where the nodes of a cluster can read a dataset, and the room that pods have on a node's disk.

Pods of nodes with InfiniBand use the local disks at a path of the node: the add-on `local-disks` joins them
into one volume there. Such pods are privileged anyway, for their cards. Pods of other sizes are restricted,
so they may not mount a path of the node; their files are on its OS disk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec.providers.base.storage import sharing, tiers
from cloudrec.providers.base.storage.rates import CLIENT, rates_of
from cloudrec.providers.base.storage.tiers import GIB, KUBELET_SHARE

if TYPE_CHECKING:
    from cloudrec.providers.azure.layout import AzureLayout
    from cloudrec.providers.azure.offers import AzureVmSize
    from cloudrec.providers.base.storage.tiers import Tier

RATES = rates_of(__package__)
OS_DISK_GIB = 256  # of a GPU node; for images and the pods' own files
# Where the add-on `local-disks` mounts the volume, and the folder below it that pods mount.
MOUNT = "/mnt/cloudrec"
DATA, CACHE = f"{MOUNT}/data", f"{MOUNT}/cache"
_FILE_SYSTEM_SHARE = 0.97  # that ext4 leaves of a disk
_CACHE_SHARE = 0.5  # of the local volume, for BlobFuse2's cache


def has_volume(hardware: AzureVmSize) -> bool:
    """Return whether pods use the local disks of a size."""
    return bool(hardware.infiniband and hardware.nvme_gb)


def local_path(hardware: AzureVmSize) -> str:
    """Return the folder of a node for datasets; empty if its pods use none."""
    return DATA if has_volume(hardware) else ""


def room_gb() -> float:
    """Return the GB that pods can request on a node's OS disk."""
    return OS_DISK_GIB * GIB * KUBELET_SHARE


def cache_mb(hardware: AzureVmSize) -> int:
    """Return the size of the cache of a mounted container, in MiB; 0 for no cache on disks."""
    return int(hardware.nvme_gb * _CACHE_SHARE / GIB) * 1024 if has_volume(hardware) else 0


def of(layout: AzureLayout) -> list[Tier]:
    """Return the tiers of a cluster: local, lustre and bucket."""
    return [
        tiers.least([_local(layout.hardware[name]) for name in layout.instance_types]),
        _lustre(layout),
        tiers.bucket(client=RATES.get((tiers.BUCKET, CLIENT))),
    ]


def _lustre(layout: AzureLayout) -> Tier:
    """Return the tier of the Lustre file system, which has the dataset only if the container fills it.

    A dataset that was copied there by hand is used by its path, /mnt/lustre/NAME.
    """
    settings = layout.settings
    tier = tiers.lustre(
        capacity_gib=settings.lustre_tib * 1024,
        mb_s_each_tib=float(settings.lustre_sku.rpartition("-")[2]),
        nodes=layout.cluster.nodes,
        client=RATES.get((tiers.LUSTRE, CLIENT)),
        remedy="let a Lustre file system be filled from the container: set cluster.settings.lustre_tib and "
        "lustre_importer; or copy the dataset into one, and name its path: --dataset /mnt/lustre/NAME"
        if layout.has_own_storage
        else sharing.LUSTRE_REMEDY,
    )
    if tier.lacks or settings.lustre_importer:
        return tier
    return replace(tier, lacks="nothing has copied the dataset into it")


def _local(hardware: AzureVmSize) -> Tier:
    if not has_volume(hardware):
        return tiers.local(
            title="OS disk", room_gb=room_gb(), rate=None, remedy="choose a VM size of an ND series"
        )
    # The packages and logs of a pod are on the OS disk, so they need no room here.
    return tiers.local(
        title="local disks",
        room_gb=hardware.nvme_gb * _FILE_SYSTEM_SHARE + tiers.OWN_GIB * GIB,
        rate=RATES.get((tiers.LOCAL, hardware.instance_type)),
        remedy="choose a VM size with larger local disks",
    )
