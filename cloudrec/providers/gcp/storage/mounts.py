"""The volumes that pods can mount: the bucket, and the Lustre file system if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.gcp.api import labels
from cloudrec.providers.gcp.storage import lustre

if TYPE_CHECKING:
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout


def volumes(layout: GcpLayout, gcp: Gcp, *, cache_gib: int) -> list[dict[str, object]]:
    """Return the volumes in the format of their CSI drivers.

    Args:
        layout: the cluster's.
        gcp: the project.
        cache_gib: the size of the bucket's cache on a node's disk.
    """
    return [_bucket(layout, cache_gib), *_file_systems(layout, gcp)]


def _bucket(layout: GcpLayout, cache_gib: int) -> dict[str, object]:
    prefix = [f"only-dir:{layout.prefix}"] if layout.prefix else []
    return {
        "name": "bucket",
        "driver": "gcsfuse.csi.storage.gke.io",
        "handle": layout.bucket,
        "capacity": "1Pi",  # Kubernetes requires a capacity, and the driver ignores it
        # The cache is on the node's ephemeral storage; the driver refuses a mount option for it. The second
        # attribute caches files that are not read from their start, too.
        "attributes": {"fileCacheCapacity": f"{cache_gib}Gi", "fileCacheForRangeRead": "true"},
        "mount_options": ["implicit-dirs", *prefix],
        # GKE adds the driver's sidecar. Its own limit of ephemeral storage, 5Gi, would end it; 0 is no limit.
        "pod_annotations": {"gke-gcsfuse/volumes": "true", "gke-gcsfuse/ephemeral-storage-limit": "0"},
    }


def _file_systems(layout: GcpLayout, gcp: Gcp) -> list[dict[str, object]]:
    if not layout.settings.lustre_gib:
        return []
    return [
        {
            "name": "lustre",
            "driver": "lustre.csi.storage.gke.io",
            "handle": "/".join(row.name.split("/")[1::2]),  # project, zone and name
            "capacity": f"{row.capacity_gib}Gi",
            "attributes": {"ip": row.mount_point.partition("@")[0], "filesystem": row.filesystem},
            "mount_options": [],
        }
        for row in lustre.instances(gcp)
        if is_ours(labels.decode(dict(row.labels)), layout.title) and row.mount_point
    ]
