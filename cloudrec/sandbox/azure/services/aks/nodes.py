"""What a cluster makes in a resource group of its own, and how that goes again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from cloudrec.sandbox.azure import entra, operations
from cloudrec.sandbox.azure.errors import ArmError
from cloudrec.sandbox.azure.registry import kinds
from cloudrec.sandbox.azure.services import resource_groups
from cloudrec.sandbox.azure.services.authorization import access
from cloudrec.sandbox.azure.services.identity import identities
from cloudrec.sandbox.azure.services.network import dns, interfaces
from cloudrec.sandbox.azure.services.network.references import ADDRESS, BALANCER, GROUP, INTERFACE
from cloudrec.sandbox.azure.store import Resource, store

if TYPE_CHECKING:
    from cloudrec.sandbox.world import World

_CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
_LONGEST = 80


def group_name(cluster: Resource) -> str:
    """The name of the group."""
    path = cluster.path
    default = f"MC_{path.group}_{path.name}_{cluster.location}"[:_LONGEST]
    return str(cluster.properties.get("nodeResourceGroup") or default)


def group_id(cluster: Resource) -> str:
    """The id of the group."""
    return f"/subscriptions/{cluster.path.subscription}/resourceGroups/{group_name(cluster)}"


def make_group(world: World, id_: str) -> None:
    """Make the group, in which the cluster may do everything."""
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
    """Make what every cluster has there: a firewall, the kubelets' identity, the way in and the way out."""
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
    """The private endpoint's interface in the nodes' subnet, and the zone in which its name is."""
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
    """The zone that AKS makes for a private cluster."""
    return f"{guid(cluster, 'zone')}.privatelink.{cluster.location}.azmk8s.io"


def pools(world: World, cluster: Resource) -> list[Resource]:
    """The cluster's pools."""
    return list(store(world).of_type("Microsoft.ContainerService/managedClusters/agentPools", cluster.id))


def principal_of(world: World, cluster: Resource) -> str:
    """The object id of the identity that the cluster acts with."""
    identity = cluster.document.get("identity") or {}
    for id_ in identity.get("userAssignedIdentities") or {}:
        found = identities.find(world, id_)
        return str(found.properties["principalId"]) if found else ""
    return str(identity.get("principalId") or "")


def guid(cluster: Resource, what: str) -> str:
    """A GUID that the cluster has for ever, another after it was made anew."""
    return str(uuid5(NAMESPACE_URL, f"{cluster.key}@{cluster.made_at}/{what}"))


def clear(world: World, cluster: Resource) -> None:
    """Remove the group with all that is in it; ArmError for what others use, which stays."""
    group = store(world).find(group_id(cluster))
    if group is None:
        return
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
