"""The built-in roles that cloudrec knows, by name, with their ids, which are the same in all tenants."""

from __future__ import annotations

ROLES: dict[str, str] = {
    "AcrPull": "7f951dda-4ed3-4680-a7ca-43fe172d538d",
    "AcrPush": "8311e382-0749-4cb8-b61a-304f252e45ec",
    "Azure Kubernetes Service Contributor Role": "ed7f3fbd-7b88-4dd4-9017-9adb7ce333f8",
    "Azure Kubernetes Service RBAC Cluster Admin": "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b",
    "Container Registry Repository Reader": "b93aa761-3e63-49ed-ac28-beffa264f7ac",
    "Container Registry Repository Writer": "2a1e307c-b015-4ebd-883e-5b7698a07328",
    "Managed Identity Operator": "f1a07417-d97a-45cb-824c-7a7467783830",
    "Network Contributor": "4d97b98b-1d4f-4787-a291-c67834d212e7",
    "Reader": "acdd72a7-3385-48ef-bd42-f606fba81ae7",
    "Storage Blob Data Contributor": "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
    "Tag Contributor": "4a9ae827-6dc8-4573-8ac7-8239d42aa03f",
    "Virtual Machine Contributor": "9980e02c-c2be-4d73-94e8-173b1dc7cf3c",
}
CONTRIBUTOR, OWNER = "Contributor", "Owner"
ACCOUNT_CONTRIBUTOR, BLOB_CONTRIBUTOR = "Storage Account Contributor", "Storage Blob Data Contributor"
# Roles that a deployer may not assign: infra/azure/grants.condition does not have them.
POWERFUL: dict[str, str] = {
    CONTRIBUTOR: "b24988ac-6180-42a0-ab88-20f7382dd24c",
    ACCOUNT_CONTRIBUTOR: "17d1049b-9a84-46fb-8f53-869881c3d3ab",
    OWNER: "8e3af657-a8ff-443c-a75c-2fe8c4bcb635",
}
