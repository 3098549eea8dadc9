"""What pods can mount: the bucket, and the Lustre file system where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import is_ours
from cloudrec.providers.aws.driver import as_map

if TYPE_CHECKING:
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout


def volumes(layout: Layout, aws: Aws) -> list[dict[str, Any]]:
    """Return each as its CSI driver wants it described."""
    return [_bucket(layout, aws), *_file_systems(layout, aws)]


def _bucket(layout: Layout, aws: Aws) -> dict[str, Any]:
    prefix = [f"prefix {layout.settings.prefix}/"] if layout.settings.prefix else []
    return {
        "name": "bucket",
        "driver": "s3.csi.aws.com",
        "handle": layout.bucket,
        "capacity": "1Pi",  # which Kubernetes wants to be told, and nobody looks at
        # With the rights of the pod that mounts it, not of the node.
        "attributes": {"bucketName": layout.bucket, "authenticationSource": "pod"},
        "mount_options": ["allow-delete", f"region {aws.region}", *prefix],
    }


def _file_systems(layout: Layout, aws: Aws) -> list[dict[str, Any]]:
    if not layout.settings.lustre_gib:
        return []
    rows = aws.read("fsx", "describe_file_systems", "FileSystems")
    return [
        {
            "name": "lustre",
            "driver": "fsx.csi.aws.com",
            "handle": row["FileSystemId"],
            "capacity": f"{row['StorageCapacity']}Gi",
            "attributes": {
                "dnsname": row["DNSName"],
                "mountname": row["LustreConfiguration"]["MountName"],
            },
            "mount_options": ["flock"],
        }
        for row in rows
        if row["Lifecycle"] == "AVAILABLE" and is_ours(as_map(row.get("Tags")), layout.title)
    ]
