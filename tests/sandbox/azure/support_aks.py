"""A network, identities, a cluster: what tests of AKS need first."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from tests.sandbox.azure.support import GROUP, LOCATION, Azure
from tests.sandbox.azure.support_network import make_address, make_network, make_subnet, put_nat

NAME, NODES = "one", "cloudrec-one-nodes"
NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"
IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
D4, H100, T4 = "Standard_D4s_v5", "Standard_ND96isr_H100_v5", "Standard_NC4as_T4_v3"
QUOTAS = {
    "cores": 10000,
    "lowPriorityCores": 10000,
    "standardDSv5Family": 2000,
    "standardNDSH100v5Family": 1000,
    "Standard NCASv3_T4 Family": 1000,
}


@dataclass(frozen=True)
class Ground:
    """The ids of the resources that a cluster needs."""

    subnet: str
    identity: str
    kubelet: str
    principal: str


def ground(azure: Azure, *, grants: bool = True) -> Ground:
    """A network with a subnet behind a NAT gateway, and two identities with the roles that AKS wants."""
    azure.group()
    make_network(azure)
    poller = put_nat(azure, addresses=(make_address(azure).id,))
    azure.advance(60)
    subnet = make_subnet(azure, natGateway={"id": poller.result(30).id}).id
    identities = azure.client("msi").user_assigned_identities
    cluster, kubelet = (
        identities.create_or_update(GROUP, name, {"location": LOCATION}) for name in ("cluster", "kubelet")
    )
    azure.advance(60)
    if grants:
        grant(azure, cluster.principal_id, NETWORK_CONTRIBUTOR, subnet)
        grant(azure, cluster.principal_id, IDENTITY_OPERATOR, kubelet.id)
        azure.advance(600)
    return Ground(subnet, cluster.id, kubelet.id, cluster.principal_id)


def grant(azure: Azure, principal: str, role: str, scope: str) -> None:
    root = f"/subscriptions/{azure.subscription}/providers/Microsoft.Authorization"
    name = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{scope}/{principal}/{role}"))
    properties = {"roleDefinitionId": f"{root}/roleDefinitions/{role}", "principalId": principal}
    body = {"properties": {**properties, "principalType": "ServicePrincipal"}}
    azure.client("authorization").role_assignments.create(scope, name, body)


def system(**changes: Any) -> dict[str, Any]:
    return {"name": "system", "mode": "System", "count": 2, "vmSize": D4, **changes}


def body(
    base: Ground | None = None, *, pools: list[dict[str, Any]] | None = None, **properties: Any
) -> dict[str, Any]:
    """A cluster's PUT; on `base`, or with all that AKS makes by itself."""
    pools = pools if pools is not None else [system()]
    found: dict[str, Any] = {
        "location": LOCATION,
        "tags": {"owner": "me"},
        "identity": {"type": "SystemAssigned"},
        "properties": {"dnsPrefix": NAME, "nodeResourceGroup": NODES, **properties},
    }
    if base is not None:
        pools = [{**pool, "vnetSubnetID": base.subnet} for pool in pools]
        found["identity"] = {"type": "UserAssigned", "userAssignedIdentities": {base.identity: {}}}
        wish = found["properties"]
        wish["identityProfile"] = {"kubeletidentity": {"resourceId": base.kubelet}}
        wish["networkProfile"] = {
            "networkPlugin": "azure",
            "networkPluginMode": "overlay",
            "networkDataplane": "cilium",
            "outboundType": "userAssignedNATGateway",
            "podCidr": "10.244.0.0/16",
            "serviceCidr": "10.250.0.0/16",
            "dnsServiceIP": "10.250.0.10",
            **properties.get("networkProfile", {}),
        }
    found["properties"]["agentPoolProfiles"] = pools
    return found


def begin_cluster(azure: Azure, wish: dict[str, Any] | None = None, **options: Any) -> Any:
    clusters = azure.client("containerservice").managed_clusters
    return azure.begin(clusters.begin_create_or_update, GROUP, NAME, wish or body(), **options)


def make_cluster(azure: Azure, wish: dict[str, Any] | None = None, **options: Any) -> Any:
    poller = begin_cluster(azure, wish, **options)
    azure.advance(400)
    return poller.result(30)


def get_cluster(azure: Azure) -> Any:
    return azure.client("containerservice").managed_clusters.get(GROUP, NAME)


def begin_pool(azure: Azure, name: str = "gpu", **properties: Any) -> Any:
    wish = {"properties": {"mode": "User", "count": 1, "vmSize": T4, **properties}}
    pools = azure.client("containerservice").agent_pools
    return azure.begin(pools.begin_create_or_update, GROUP, NAME, name, wish)


def make_pool(azure: Azure, name: str = "gpu", **properties: Any) -> Any:
    poller = begin_pool(azure, name, **properties)
    azure.advance(900)
    return poller.result(30)


def get_pool(azure: Azure, name: str = "gpu") -> Any:
    return azure.client("containerservice").agent_pools.get(GROUP, NAME, name)


def delete_pool(azure: Azure, name: str = "gpu", **options: Any) -> None:
    pools = azure.client("containerservice").agent_pools
    azure.done(pools.begin_delete, GROUP, NAME, name, **options)


def delete_cluster(azure: Azure) -> Any:
    return azure.begin(azure.client("containerservice").managed_clusters.begin_delete, GROUP, NAME)


def things(azure: Azure, group: str = NODES) -> list[str]:
    """The types of what is in a group."""
    return sorted(entry.split(":")[1] for entry in azure.state() if f"/{group}/" in entry)
