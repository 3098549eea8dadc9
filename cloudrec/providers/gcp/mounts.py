"""What pods can mount: the bucket, and the Lustre file system where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import is_ours
from cloudrec.providers.gcp import labels

if TYPE_CHECKING:
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.layout import Layout


def volumes(layout: Layout, gcp: Gcp) -> list[dict[str, Any]]:
    """Return each as its CSI driver wants it described."""
    return [_bucket(layout), *_file_systems(layout, gcp)]


def _bucket(layout: Layout) -> dict[str, Any]:
    prefix = [f"only-dir:{layout.settings.prefix}"] if layout.settings.prefix else []
    return {
        "name": "bucket",
        "driver": "gcsfuse.csi.storage.gke.io",
        "handle": layout.bucket,
        "capacity": "1Pi",  # which Kubernetes wants to be told, and nobody looks at
        "attributes": {},
        "mount_options": ["implicit-dirs", *prefix],
        "pod_annotations": {"gke-gcsfuse/volumes": "true"},  # by which a pod gets the driver's sidecar
    }


def _file_systems(layout: Layout, gcp: Gcp) -> list[dict[str, Any]]:
    if not layout.settings.lustre_gib:
        return []
    parent = f"projects/{gcp.project}/locations/-"
    rows = gcp.rows(gcp.client("lustre").list_instances, parent=parent)
    return [
        {
            "name": "lustre",
            "driver": "lustre.csi.storage.gke.io",
            "handle": "/".join(row.name.split("/")[1::2]),  # project, zone and name
            "capacity": f"{row.capacity_gib}Gi",
            "attributes": {"ip": row.mount_point.partition("@")[0], "filesystem": row.filesystem},
            "mount_options": [],
        }
        for row in rows
        if is_ours(labels.decode(dict(row.labels)), layout.title) and row.mount_point
    ]
