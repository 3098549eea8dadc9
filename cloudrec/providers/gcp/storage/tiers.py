"""From where the nodes of a cluster can read a dataset, and the room that pods have on a node's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.base.storage import sharing, tiers
from cloudrec.providers.base.storage.rates import CLIENT, rates_of
from cloudrec.providers.base.storage.tiers import GIB
from cloudrec.providers.gcp.offers import SSD_GIB

if TYPE_CHECKING:
    from cloudrec.providers.base.storage.tiers import Tier
    from cloudrec.providers.gcp.layout import GcpLayout
    from cloudrec.providers.gcp.offers import GcpMachineType
    from cloudrec.providers.gcp.settings import GcpSettings

RATES = rates_of(__package__)
_CACHE_SHARE = 0.5  # of the room on a node's disk, for the cache of Cloud Storage FUSE
# What GKE keeps of a node's ephemeral storage ("Plan GKE Standard node sizes"): a tenth for evictions, and
# GiB for the system, by the number of local SSDs or by the size of the boot disk.
_EVICTION_SHARE, _FOR_SYSTEM_GIB = 0.1, {1: 50.0, 2: 75.0}
_MOST_FOR_SYSTEM_GIB = 100.0


def room_gb(hardware: GcpMachineType, settings: GcpSettings) -> float:
    """Return the GB that pods can request on a node's disk: its local SSDs, or its boot disk without any."""
    if hardware.local_ssds:
        total = float(hardware.local_ssds * SSD_GIB)
        system = _FOR_SYSTEM_GIB.get(hardware.local_ssds, _MOST_FOR_SYSTEM_GIB)
    else:
        total = float(settings.gpu_root_gib)
        system = min(total / 2, 6 + 0.35 * total, _MOST_FOR_SYSTEM_GIB)
    return (total * (1 - _EVICTION_SHARE) - system) * GIB


def cache_gib(hardware: GcpMachineType, settings: GcpSettings) -> int:
    """Return the size of the cache of a mounted bucket, in GiB."""
    return int(room_gb(hardware, settings) / GIB * _CACHE_SHARE)


def of(layout: GcpLayout) -> list[Tier]:
    """Return the tiers of a cluster: local, lustre and bucket."""
    settings = layout.settings
    return [
        tiers.least([_local(layout.hardware[name], settings) for name in layout.instance_types]),
        tiers.lustre(
            capacity_gib=settings.lustre_gib,
            mb_s_each_tib=settings.lustre_throughput,
            nodes=layout.cluster.nodes,
            client=RATES.get((tiers.LUSTRE, CLIENT)),
            remedy="add a Lustre file system: --set cluster.settings.lustre_gib=36000"
            if layout.has_own_storage
            else sharing.LUSTRE_REMEDY,
        ),
        tiers.bucket(client=RATES.get((tiers.BUCKET, CLIENT))),
    ]


def _local(hardware: GcpMachineType, settings: GcpSettings) -> Tier:
    room, counts = room_gb(hardware, settings), hardware.ssd_counts
    if hardware.local_ssds:
        more = "choose a machine type with more local SSDs"
        if any(count > hardware.local_ssds for count in counts):
            more = f"add local SSDs: --set cluster.settings.local_ssds={max(counts)}"
        rate = RATES.get((tiers.LOCAL, str(hardware.local_ssds)))
        return tiers.local(title="local disks", room_gb=room, rate=rate, remedy=more)
    remedy = "make the root disk larger: --set cluster.settings.gpu_root_gib=GIB"
    if counts:
        remedy = f"add local SSDs: --set cluster.settings.local_ssds={max(counts)}"
    return tiers.local(title="root disk", room_gb=room, rate=None, remedy=remedy)
