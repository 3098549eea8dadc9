"""What pods can mount: the container, and the Lustre file system where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import is_ours

if TYPE_CHECKING:
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.layout import Layout

_FILE_SYSTEM = "lustrefs"  # as Azure calls every one


def volumes(layout: Layout, azure: Azure, *, client_id: str) -> list[dict[str, Any]]:
    """Return each as its CSI driver wants it described.

    Args:
        layout: of the cluster.
        azure: who is asked.
        client_id: of the identity that runs have; the account has no keys that could be used instead.
    """
    return [_container(layout, client_id), *_file_systems(layout, azure)]


def _container(layout: Layout, client_id: str) -> dict[str, Any]:
    container = layout.settings.container
    return {
        "name": "bucket",
        "driver": "blob.csi.azure.com",
        "handle": f"{layout.storage_account}_{container}",
        "capacity": "1Pi",  # which Kubernetes wants to be told, and nobody looks at
        "attributes": {
            "protocol": "fuse2",
            "resourceGroup": layout.group,
            "storageAccount": layout.storage_account,
            "containerName": container,
            "clientID": client_id,
            "mountWithWorkloadIdentityToken": "true",
        },
        "mount_options": ["-o allow_other", "--use-attr-cache=true"],
    }


def _file_systems(layout: Layout, azure: Azure) -> list[dict[str, Any]]:
    if not layout.settings.lustre_tib:
        return []
    rows = azure.rows(azure.client("storagecache").aml_filesystems.list_by_resource_group, layout.group)
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
