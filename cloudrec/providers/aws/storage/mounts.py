"""The volumes that pods can mount: the bucket, and the Lustre file system if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.providers.aws.api.driver import as_map
from cloudrec.providers.base.driver import is_ours

if TYPE_CHECKING:
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.layout import AwsLayout


def volumes(layout: AwsLayout, aws: Aws, *, cache_gib: int) -> list[dict[str, Any]]:
    """Return each volume for the manifests: name, driver, handle, capacity, attributes and mount options.

    Args:
        layout: the cluster's.
        aws: the account.
        cache_gib: the size of the bucket's cache on a node's disk.
    """
    return [_bucket(layout, cache_gib), *_file_systems(layout, aws)]


def _bucket(layout: AwsLayout, cache_gib: int) -> dict[str, Any]:
    prefix = [f"prefix {layout.prefix}/"] if layout.prefix else []
    return {
        "name": "bucket",
        "driver": "s3.csi.aws.com",
        "handle": layout.bucket,
        "capacity": "1Pi",  # Kubernetes requires a capacity; the driver ignores it
        # Access is by the role of the pod that mounts it: the nodes' role may not read the bucket.
        # The cache is an emptyDir of Mountpoint's own pod, so it is on the node's ephemeral storage; without
        # a limit it could fill that (awslabs/mountpoint-s3-csi-driver, docs/CACHING.md).
        "attributes": {
            "bucketName": layout.bucket,
            "authenticationSource": "pod",
            "cache": "emptyDir",
            "cacheEmptyDirSizeLimit": f"{cache_gib}Gi",
        },
        "mount_options": ["allow-delete", f"region {layout.storage_region}", *prefix],
    }


def _file_systems(layout: AwsLayout, aws: Aws) -> list[dict[str, Any]]:
    if not layout.settings.lustre_gib:
        return []
    pages = aws.fsx.get_paginator("describe_file_systems").paginate
    rows = aws.rows(pages, lambda page: page.get("FileSystems"))
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
