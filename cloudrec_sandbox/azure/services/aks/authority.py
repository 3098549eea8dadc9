"""Who may do what in a cluster's API: role assignments with data actions, and local accounts.

A cluster with Azure RBAC asks for a permission of Azure where no binding of the cluster allows a request; to
have created the cluster, or to own the subscription, gives none ("Use Azure role-based access control for
Kubernetes authorization", azure-aks-docs, manage-azure-rbac.md). So here a principal's tokens stand for a
user without groups, and its role assignments become rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.identity import entra, exchange, tokens
from cloudrec_sandbox.azure.services.aks import nodes
from cloudrec_sandbox.azure.services.authorization import access

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

_ACTION = "Microsoft.ContainerService/managedClusters"
_MASTERS = "system:masters"
# Of the stand-in's roles with data actions in clusters, Cluster Admin has this one, and so all.
_ALL = f"{_ACTION}/rbac.authorization.k8s.io/clusterroles/escalate/action"


def callers(world: World, cluster: Resource) -> list[dict[str, Any]]:
    """Return the users of the cluster's API, with what they may do now, as `Picture.callers`."""
    found = [_user(world, cluster, principal) for principal in _principals(world)]
    if not cluster.properties.get("disableLocalAccounts"):
        found.append({"token": nodes.local_token(cluster), "user": "masterclient", "groups": [_MASTERS]})
    return found


def issuer(cluster: Resource) -> dict[str, Any] | None:
    """Return the issuer of the cluster's service accounts' tokens; None without an OIDC issuer."""
    url = (cluster.properties.get("oidcIssuerProfile") or {}).get("issuerURL")
    if not url:
        return None
    profile = (cluster.properties.get("securityProfile") or {}).get("workloadIdentity") or {}
    azure = {"tenant": entra.TENANT, "authority": f"{cluster.facts['authority']}/"}
    return {"url": url, "key": exchange.key_of(url), "azure": azure if profile.get("enabled") else None}


def _principals(world: World) -> list[str]:
    """Return the object ids of all service principals, in a fixed order."""
    clients = {client.principal for client in world.state(entra.Directory).clients.values()}
    return sorted({*clients, *(row.principal for row in world.state(access.Grants).rows.values())})


def _user(world: World, cluster: Resource, principal: str) -> dict[str, Any]:
    has_azure_rbac = (cluster.properties.get("aadProfile") or {}).get("enableAzureRBAC")
    may = has_azure_rbac and access.has(world, principal, _ALL, cluster.id, data=True)
    return {
        "prefix": tokens.prefix(principal, tokens.KUBERNETES),
        "user": principal,
        "groups": [],
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}] if may else [],
    }
