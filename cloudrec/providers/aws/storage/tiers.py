"""From where the nodes of a cluster can read a dataset, and the room that pods have on a node's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.base.storage import sharing, tiers
from cloudrec.providers.base.storage.rates import CLIENT, rates_of
from cloudrec.providers.base.storage.tiers import GIB, KUBELET_SHARE

if TYPE_CHECKING:
    from cloudrec.providers.aws.layout import AwsLayout
    from cloudrec.providers.aws.offers import AwsInstanceType
    from cloudrec.providers.aws.settings import AwsSettings
    from cloudrec.providers.base.storage.tiers import Tier

RATES = rates_of(__package__)
_RESERVED_GIB = 1  # that nodeadm reserves of a node's ephemeral storage
_CACHE_SHARE = 0.5  # of the room on a node's disk, for Mountpoint's cache


def room_gb(hardware: AwsInstanceType, settings: AwsSettings) -> float:
    """Return the GB that pods can request on a node's disk.

    That disk is the array of all instance store volumes, to which nodeadm moves the kubelet's folder (see
    `nodes.templates`), or the root volume of a type without such volumes.
    """
    total = hardware.nvme_gb or settings.gpu_root_gib * GIB
    return total * KUBELET_SHARE - _RESERVED_GIB * GIB


def cache_gib(hardware: AwsInstanceType, settings: AwsSettings) -> int:
    """Return the size of the cache of a mounted bucket, in GiB."""
    return int(room_gb(hardware, settings) / GIB * _CACHE_SHARE)


def of(layout: AwsLayout) -> list[Tier]:
    """Return the tiers of a cluster: local, lustre and bucket."""
    settings = layout.settings
    return [
        tiers.least([_local(layout.hardware[name], settings) for name in layout.instance_types]),
        tiers.lustre(
            capacity_gib=settings.lustre_gib,
            mb_s_each_tib=settings.lustre_throughput,
            nodes=layout.cluster.nodes,
            client=RATES.get((tiers.LUSTRE, CLIENT)),
            remedy="add a Lustre file system: --set cluster.settings.lustre_gib=1200, or a multiple of 2400"
            if layout.has_own_storage
            else sharing.LUSTRE_REMEDY,
        ),
        tiers.bucket(client=RATES.get((tiers.BUCKET, CLIENT))),
    ]


def _local(hardware: AwsInstanceType, settings: AwsSettings) -> Tier:
    return tiers.local(
        title="local disks" if hardware.nvme_gb else "root disk",
        room_gb=room_gb(hardware, settings),
        rate=RATES.get((tiers.LOCAL, hardware.instance_type)) if hardware.nvme_gb else None,
        remedy="choose an instance type with larger local disks"
        if hardware.nvme_gb
        else "make the root disk larger: --set cluster.settings.gpu_root_gib=GIB",
    )
