"""The resources that a cluster makes in its own resource group, and their deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from cloudrec_sandbox.azure.arm import operations
from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.references import ADDRESS, BALANCER, GROUP, INTERFACE
from cloudrec_sandbox.azure.arm.registry import kinds
from cloudrec_sandbox.azure.arm.store import Resource, store
from cloudrec_sandbox.azure.identity import entra
from cloudrec_sandbox.azure.services import resource_groups
from cloudrec_sandbox.azure.services.authorization import access
from cloudrec_sandbox.azure.services.identity import identities
from cloudrec_sandbox.azure.services.network import dns, interfaces

if TYPE_CHECKING:
    from cloudrec_sandbox.core.world import World

_CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
_LONGEST = 80


def group_name(cluster: Resource) -> str:
    """Return the name of the group."""
    path = cluster.path
    default = f"MC_{path.group}_{path.name}_{cluster.location}"[:_LONGEST]
    return str(cluster.properties.get("nodeResourceGroup") or default)


def group_id(cluster: Resource) -> str:
    """Return the id of the group."""
    return f"/subscriptions/{cluster.path.subscription}/resourceGroups/{group_name(cluster)}"


def make_group(world: World, id_: str) -> None:
    """Make the group, in which the cluster's identity is Contributor."""
    cluster = store(world).find(id_)
    if cluster is None or store(world).find(group_id(cluster)) is not None:
        return
    tags = {"aks-managed-cluster-name": cluster.name, "aks-managed-cluster-rg": cluster.path.group}
    _add(
        world,
        cluster,
        group_id(cluster),
        resource_groups.TYPE,
        tags=tags,
        managedBy=cluster.id,
        properties={"provisioningState": "Succeeded"},
    )
    access.grant(world, principal_of(world, cluster), _CONTRIBUTOR, group_id(cluster))


def furnish(world: World, cluster: Resource) -> None:
    """Make what every cluster has there: a firewall, the kubelets' identity, ways in and out."""
    make_group(world, cluster.id)
    root = f"{group_id(cluster)}/providers"
    number = guid(cluster, "number")[:8]
    _add(
        world, cluster, f"{root}/{GROUP}/aks-agentpool-{number}-nsg", GROUP, properties={"securityRules": []}
    )
    _kubelet(world, cluster, root)
    if cluster.properties["networkProfile"].get("outboundType") == "loadBalancer":
        _balancer(world, cluster, root)
    if (cluster.properties.get("apiServerAccessProfile") or {}).get("enablePrivateCluster"):
        _private(world, cluster, root)


def _kubelet(world: World, cluster: Resource, root: str) -> None:
    profile = cluster.properties.setdefault("identityProfile", {})
    wanted = (profile.get("kubeletidentity") or {}).get("resourceId")
    found = identities.find(world, wanted) if wanted else None
    if found is None:
        id_ = f"{root}/{identities.TYPE}/{cluster.name}-agentpool"
        found = identities.find(world, id_) or identities.make(
            world, id_, region=cluster.location, tenant=entra.TENANT
        )
    profile["kubeletidentity"] = {
        "resourceId": found.id,
        "clientId": found.properties["clientId"],
        "objectId": found.properties["principalId"],
    }


def _balancer(world: World, cluster: Resource, root: str) -> None:
    name = guid(cluster, "outbound")
    address, sku = f"{root}/{ADDRESS}/{name}", {"name": "Standard", "tier": "Regional"}
    number = int(name[:6], 16)
    text = f"20.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    properties = {"publicIPAllocationMethod": "Static", "ipAddress": text, "publicIPAddressVersion": "IPv4"}
    tags = {"aks-managed-cluster-name": cluster.name, "aks-managed-type": "aks-slb-managed-outbound-ip"}
    _add(world, cluster, address, ADDRESS, sku=sku, tags=tags, properties=properties)
    frontend = {"name": name, "properties": {"publicIPAddress": {"id": address}}}
    _add(
        world,
        cluster,
        f"{root}/{BALANCER}/kubernetes",
        BALANCER,
        sku=sku,
        properties={"frontendIPConfigurations": [frontend]},
    )


def _private(world: World, cluster: Resource, root: str) -> None:
    """Make the private endpoint's interface in the nodes' subnet, and the private DNS zone."""
    subnet = next((pool.properties.get("vnetSubnetID") for pool in pools(world, cluster)), None)
    interface = f"{root}/{INTERFACE}/kube-apiserver.nic.{guid(cluster, 'nic')}"
    rows = [{"name": "ipconfig", "properties": {"subnet": {"id": subnet}}}] if subnet else []
    _add(world, cluster, interface, INTERFACE, properties={"ipConfigurations": rows})
    if subnet:
        interfaces.attach(world, subnet, interface)
    if cluster.properties["apiServerAccessProfile"].get("privateDNSZone", "system") == "system":
        zone = private_zone(cluster)
        _add(world, cluster, f"{root}/{dns.ZONE}/{zone}", dns.ZONE, location="global", properties={})


def private_zone(cluster: Resource) -> str:
    """Return the name of the zone that AKS makes for a private cluster."""
    return f"{guid(cluster, 'zone')}.privatelink.{cluster.location}.azmk8s.io"


def pools(world: World, cluster: Resource) -> list[Resource]:
    """Return the cluster's pools."""
    return list(store(world).of_type("Microsoft.ContainerService/managedClusters/agentPools", cluster.id))


def principal_of(world: World, cluster: Resource) -> str:
    """Return the object id of the cluster's own identity."""
    identity = cluster.document.get("identity") or {}
    for id_ in identity.get("userAssignedIdentities") or {}:
        found = identities.find(world, id_)
        return str(found.properties["principalId"]) if found else ""
    return str(identity.get("principalId") or "")


def guid(cluster: Resource, what: str) -> str:
    """Return a GUID that the cluster always has; a cluster made again has another."""
    return str(uuid5(NAMESPACE_URL, f"{cluster.key}@{cluster.made_at}/{what}"))


def local_token(cluster: Resource) -> str:
    """Return the token of the cluster's local account, its administrator."""
    return guid(cluster, "token").replace("-", "")


def clear(world: World, cluster: Resource) -> None:
    """Remove the group with everything in it; ArmError for what others use, which stays."""
    group = store(world).find(group_id(cluster))
    if group is None:
        return
    # Again and again, since a resource may be deletable only once another one is gone.
    while left := [each for each in store(world).below(group.id) if len(each.path.types) == 1]:
        refusals = {each.id: _refusal(world, each) for each in left}
        gone = [each for each in left if refusals[each.id] is None]
        for each in gone:
            operations.remove(world, each)
        if not gone:
            raise next(refusal for refusal in refusals.values() if refusal is not None)
    operations.remove(world, group)


def _refusal(world: World, each: Resource) -> ArmError | None:
    try:
        kinds[each.type.lower()].check_delete(world, each)
    except ArmError as error:
        return error
    return None


def _add(world: World, cluster: Resource, id_: str, type_: str, **members: Any) -> None:  # noqa: ANN401 - JSON
    if store(world).find(id_) is not None:
        return
    tags = {**(cluster.document.get("tags") or {}), **members.pop("tags", {})}
    properties = {"provisioningState": "Succeeded", **members.pop("properties", {})}
    document = {
        "id": id_,
        "name": id_.rpartition("/")[2],
        "type": type_,
        "location": cluster.location,
        "tags": tags,
        **members,
        "properties": properties,
    }
    store(world).add(
        Resource(id=id_, type=type_, document=document, made_at=world.now(), changed_at=world.now())
    )
