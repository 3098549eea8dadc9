"""Azure's built-in roles, those that this stand-in knows, with what each allows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any

OWNER = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
PATH = "/providers/Microsoft.Authorization/roleDefinitions/"


@dataclass(frozen=True, kw_only=True)
class Role:
    """A role. Actions are patterns such as Microsoft.Network/*; data actions are on the resource's data."""

    id: str
    title: str
    description: str
    actions: tuple[str, ...] = ()
    not_actions: tuple[str, ...] = ()
    data_actions: tuple[str, ...] = ()
    not_data_actions: tuple[str, ...] = ()
    kind: str = "BuiltInRole"
    scopes: tuple[str, ...] = field(default=("/",))

    def allows(self, action: str, *, data: bool = False) -> bool:
        """Return whether the role allows `action`, written as Microsoft.Network/virtualNetworks/read."""
        given, taken = (
            (self.data_actions, self.not_data_actions) if data else (self.actions, self.not_actions)
        )
        return _matches(given, action) and not _matches(taken, action)

    def document(self, subscription: str) -> dict[str, Any]:
        """Return the role as the service shows it."""
        return {
            "id": f"/subscriptions/{subscription}{PATH}{self.id}",
            "type": "Microsoft.Authorization/roleDefinitions",
            "name": self.id,
            "properties": {
                "roleName": self.title,
                "type": self.kind,
                "description": self.description,
                "assignableScopes": list(self.scopes),
                "permissions": [
                    {
                        "actions": list(self.actions),
                        "notActions": list(self.not_actions),
                        "dataActions": list(self.data_actions),
                        "notDataActions": list(self.not_data_actions),
                    }
                ],
            },
        }


def _matches(patterns: tuple[str, ...], action: str) -> bool:
    return any(_pattern(text).fullmatch(action) for text in patterns)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    # A star between slashes also matches nothing: userAssignedIdentities/*/assign/action allows
    # userAssignedIdentities/assign/action.
    expression = re.escape(text).replace(r"/\*/", "/(?:.*/)?").replace(r"\*", ".*")
    return re.compile(expression, re.IGNORECASE)


_COMMON = (
    "Microsoft.Authorization/*/read",
    "Microsoft.Insights/alertRules/*",
    "Microsoft.Resources/deployments/*",
    "Microsoft.Resources/subscriptions/resourceGroups/read",
    "Microsoft.Support/*",
)
_CONTAINERS = "Microsoft.Storage/storageAccounts/blobServices/containers"
_REPOSITORIES = "Microsoft.ContainerRegistry/registries/repositories"

BUILT_IN: tuple[Role, ...] = (
    Role(
        id=OWNER,
        title="Owner",
        description="Grants full access to manage all resources, including the ability to assign roles.",
        actions=("*",),
    ),
    Role(
        id="b24988ac-6180-42a0-ab88-20f7382dd24c",
        title="Contributor",
        description="Grants full access to manage all resources, but does not allow you to assign roles.",
        actions=("*",),
        not_actions=(
            "Microsoft.Authorization/*/Delete",
            "Microsoft.Authorization/*/Write",
            "Microsoft.Authorization/elevateAccess/Action",
            "Microsoft.Blueprint/blueprintAssignments/write",
            "Microsoft.Blueprint/blueprintAssignments/delete",
            "Microsoft.Compute/galleries/share/action",
        ),
    ),
    Role(
        id="acdd72a7-3385-48ef-bd42-f606fba81ae7",
        title="Reader",
        description="View all resources, but does not allow you to make any changes.",
        actions=("*/read",),
    ),
    Role(
        id="18d7d88d-d35e-4fb5-a5c3-7773c20a72d9",
        title="User Access Administrator",
        description="Lets you manage user access to Azure resources.",
        actions=("*/read", "Microsoft.Authorization/*", "Microsoft.Support/*"),
    ),
    Role(
        id="f58310d9-a9f6-439a-9e8d-f62e7b41a168",
        title="Role Based Access Control Administrator",
        description="Manage access to Azure resources by assigning roles using Azure RBAC.",
        actions=(
            "Microsoft.Authorization/roleAssignments/write",
            "Microsoft.Authorization/roleAssignments/delete",
            "*/read",
            "Microsoft.Support/*",
        ),
    ),
    Role(
        id="4d97b98b-1d4f-4787-a291-c67834d212e7",
        title="Network Contributor",
        description="Lets you manage networks, but not access to them.",
        actions=(*_COMMON, "Microsoft.Network/*", "Microsoft.ResourceHealth/availabilityStatuses/read"),
    ),
    Role(
        id="f1a07417-d97a-45cb-824c-7a7467783830",
        title="Managed Identity Operator",
        description="Read and Assign User Assigned Identity",
        actions=(
            *_COMMON,
            "Microsoft.ManagedIdentity/userAssignedIdentities/*/read",
            "Microsoft.ManagedIdentity/userAssignedIdentities/*/assign/action",
        ),
    ),
    Role(
        id="7f951dda-4ed3-4680-a7ca-43fe172d538d",
        title="AcrPull",
        description="acr pull",
        actions=("Microsoft.ContainerRegistry/registries/pull/read",),
    ),
    Role(
        id="8311e382-0749-4cb8-b61a-304f252e45ec",
        title="AcrPush",
        description="acr push",
        actions=(
            "Microsoft.ContainerRegistry/registries/pull/read",
            "Microsoft.ContainerRegistry/registries/push/write",
        ),
    ),
    Role(
        id="b93aa761-3e63-49ed-ac28-beffa264f7ac",
        title="Container Registry Repository Reader",
        description="Allows for read access to Azure Container Registry repositories.",
        data_actions=(f"{_REPOSITORIES}/metadata/read", f"{_REPOSITORIES}/content/read"),
    ),
    Role(
        id="2a1e307c-b015-4ebd-883e-5b7698a07328",
        title="Container Registry Repository Writer",
        description="Allows for read and write access to Azure Container Registry repositories.",
        data_actions=(
            f"{_REPOSITORIES}/metadata/read",
            f"{_REPOSITORIES}/content/read",
            f"{_REPOSITORIES}/metadata/write",
            f"{_REPOSITORIES}/content/write",
        ),
    ),
    Role(
        id="17d1049b-9a84-46fb-8f53-869881c3d3ab",
        title="Storage Account Contributor",
        description="Lets you manage storage accounts, including accessing storage account keys.",
        actions=(
            *_COMMON,
            "Microsoft.Insights/diagnosticSettings/*",
            "Microsoft.Network/virtualNetworks/subnets/joinViaServiceEndpoint/action",
            "Microsoft.ResourceHealth/availabilityStatuses/read",
            "Microsoft.Storage/storageAccounts/*",
        ),
    ),
    Role(
        id="ba92f5b4-2d11-453d-a403-e96b0029c9fe",
        title="Storage Blob Data Contributor",
        description="Allows for read, write and delete access to Azure Storage blob containers and data",
        actions=(
            f"{_CONTAINERS}/delete",
            f"{_CONTAINERS}/read",
            f"{_CONTAINERS}/write",
            "Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action",
        ),
        data_actions=(
            f"{_CONTAINERS}/blobs/delete",
            f"{_CONTAINERS}/blobs/read",
            f"{_CONTAINERS}/blobs/write",
            f"{_CONTAINERS}/blobs/move/action",
            f"{_CONTAINERS}/blobs/add/action",
        ),
    ),
    Role(
        id="2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",
        title="Storage Blob Data Reader",
        description="Allows for read access to Azure Storage blob containers and data",
        actions=(
            f"{_CONTAINERS}/read",
            "Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action",
        ),
        data_actions=(f"{_CONTAINERS}/blobs/read",),
    ),
    Role(
        id="b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b",
        title="Azure Kubernetes Service RBAC Cluster Admin",
        description="Lets you manage all resources in the cluster.",
        actions=(
            "Microsoft.Authorization/*/read",
            "Microsoft.Resources/subscriptions/operationresults/read",
            "Microsoft.Resources/subscriptions/read",
            "Microsoft.Resources/subscriptions/resourceGroups/read",
            "Microsoft.ContainerService/managedClusters/listClusterUserCredential/action",
        ),
        data_actions=("Microsoft.ContainerService/managedClusters/*",),
    ),
    Role(
        id="ed7f3fbd-7b88-4dd4-9017-9adb7ce333f8",
        title="Azure Kubernetes Service Contributor Role",
        description="Grants access to read and write Azure Kubernetes Service clusters",
        actions=(
            "Microsoft.ContainerService/locations/*",
            "Microsoft.ContainerService/managedClusters/*",
            "Microsoft.ContainerService/managedclustersnapshots/*",
            "Microsoft.ContainerService/snapshots/*",
            "Microsoft.Insights/alertRules/*",
            "Microsoft.Resources/deployments/*",
            "Microsoft.Resources/subscriptions/resourceGroups/read",
        ),
    ),
    Role(
        id="9980e02c-c2be-4d73-94e8-173b1dc7cf3c",
        title="Virtual Machine Contributor",
        description="Lets you manage virtual machines, but neither access nor networks.",
        actions=(
            *_COMMON,
            "Microsoft.Compute/availabilitySets/*",
            "Microsoft.Compute/virtualMachines/*",
            "Microsoft.Compute/virtualMachineScaleSets/*",
            "Microsoft.Network/networkInterfaces/*",
            "Microsoft.Network/virtualNetworks/read",
            "Microsoft.Network/virtualNetworks/subnets/join/action",
        ),
    ),
    Role(
        id="4a9ae827-6dc8-4573-8ac7-8239d42aa03f",
        title="Tag Contributor",
        description="Lets you manage tags on entities, without providing access to the entities themselves.",
        actions=(
            *_COMMON,
            "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
            "Microsoft.Resources/subscriptions/resources/read",
            "Microsoft.Resources/tags/*",
        ),
    ),
    Role(
        id="4abbcc35-e782-43d8-92c5-2d3f1bd2253f",
        title="Azure Kubernetes Service Cluster User Role",
        description="List cluster user credential action.",
        actions=(
            "Microsoft.ContainerService/managedClusters/listClusterUserCredential/action",
            "Microsoft.ContainerService/managedClusters/read",
        ),
    ),
)
