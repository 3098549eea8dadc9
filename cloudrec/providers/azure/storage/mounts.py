"""The volumes that pods can mount: the container, and the Lustre file system if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.providers.azure.storage import tiers
from cloudrec.providers.base.driver import is_ours

if TYPE_CHECKING:
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.layout import AzureLayout

_FILE_SYSTEM = "lustrefs"  # Azure gives every file system this name


def volumes(layout: AzureLayout, azure: Azure, *, client_id: str, cache_mb: int) -> list[dict[str, Any]]:
    """Return the volumes in the form that their CSI drivers need.

    Args:
        layout: the cluster's.
        azure: the subscription.
        client_id: client id of the runs' identity. The driver needs it because the account accepts no keys.
        cache_mb: the size of the container's cache on the node's local volume, in MiB; 0 for the driver's
            own.
    """
    return [_container(layout, client_id, cache_mb), *_file_systems(layout, azure)]


def _container(layout: AzureLayout, client_id: str, cache_mb: int) -> dict[str, Any]:
    container = layout.container
    # Options of blobfuse2. Without a path, the driver caches in a folder of /mnt of the node.
    cache = [f"--tmp-path={tiers.CACHE}/{container}", f"--cache-size-mb={cache_mb}"] if cache_mb else []
    return {
        "name": "bucket",
        "driver": "blob.csi.azure.com",
        # Must be unique in the cluster.
        "handle": f"{layout.storage_account}_{container}",
        "capacity": "1Pi",  # Kubernetes requires a capacity and ignores it
        "attributes": {
            "protocol": "fuse2",
            "resourceGroup": layout.storage_group,
            "storageAccount": layout.storage_account,
            "containerName": container,
            "clientID": client_id,
            "mountWithWorkloadIdentityToken": "true",
        },
        "mount_options": ["-o allow_other", "--use-attr-cache=true", *cache],
    }


def _file_systems(layout: AzureLayout, azure: Azure) -> list[dict[str, Any]]:
    if not layout.settings.lustre_tib:
        return []
    rows = azure.rows(azure.storagecache.aml_filesystems.list_by_resource_group, layout.group)
    return [
        {
            "name": "lustre",
            "driver": "azurelustre.csi.azure.com",
            "handle": f"{row.name}#{_FILE_SYSTEM}",
            "capacity": f"{int(row.storage_capacity_ti_b)}Ti",
            "attributes": {"mgs-ip-address": row.client_info.mgs_address, "fs-name": _FILE_SYSTEM},
            "mount_options": ["noatime", "flock"],
        }
        for row in rows
        if is_ours(row.tags or {}, layout.title) and row.client_info and row.client_info.mgs_address
    ]
