"""A storage account of the stand-in with one container, and its data's REST API."""

from __future__ import annotations

from typing import Any

from azure.identity import ClientSecretCredential
from azure.storage.blob import BlobServiceClient, ContainerClient

from tests.sandbox.azure.support import GROUP, LOCATION, Azure

ACCOUNT, CONTAINER = "cr0123456789", "data"
CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
OPERATOR = "bbbbbbbb-cccc-4ddd-8eee-ffffffffffff"


def make_account(
    azure: Azure, *, has_folders: bool = True, location: str = LOCATION, **properties: Any
) -> None:
    """Make the account and its container."""
    body = {
        "location": location,
        "kind": "StorageV2",
        "sku": {"name": "Standard_LRS"},
        "properties": {"isHnsEnabled": has_folders, **properties},
    }
    storage = azure.client("storage")
    azure.done(storage.storage_accounts.begin_create, GROUP, ACCOUNT, body, seconds=60)
    storage.blob_containers.create(GROUP, ACCOUNT, CONTAINER, {})


def container_id(azure: Azure) -> str:
    kind = "Microsoft.Storage/storageAccounts/blobServices/containers"
    return azure.id(kind, ACCOUNT, "default", CONTAINER)


def grant(
    azure: Azure,
    role: str = CONTRIBUTOR,
    *,
    principal: str = OPERATOR,
    waits: bool = True,
    **properties: str,
) -> None:
    """Assign a role on the container, with a condition perhaps; by default it has taken effect."""
    definitions = f"/subscriptions/{azure.subscription}/providers/Microsoft.Authorization/roleDefinitions"
    body = {
        "properties": {
            "roleDefinitionId": f"{definitions}/{role}",
            "principalId": principal,
            "principalType": "ServicePrincipal",
            **properties,
        }
    }
    name = f"{role[:-12]}{principal[-12:]}"
    azure.client("authorization").role_assignments.create(container_id(azure), name, body)
    if waits:
        azure.advance(60)


def blobs(
    azure: Azure, *, credential: ClientSecretCredential | str | None = None, account: str = ACCOUNT
) -> ContainerClient:
    """A client of the container's data."""
    service = BlobServiceClient(
        f"{azure.env['AZURE_BLOB_STORAGE_URL']}/{account}",
        credential=credential or azure.credential(),
        connection_verify=azure.env["AZURE_CA_BUNDLE"],
        retry_total=0,
        max_single_put_size=1024,
        max_block_size=1024,
    )
    return service.get_container_client(CONTAINER)
