"""Public addresses, and the NAT gateways by which private machines reach the internet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.references import (
    ADDRESS,
    BALANCER,
    NAT,
    SUBNET,
    id_of,
    referring,
    resolve,
)
from cloudrec_sandbox.azure.arm.regions import check_zones
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import region_of, store
from cloudrec_sandbox.azure.services.compute import quotas
from cloudrec_sandbox.azure.services.network.base import MODELS, NetworkKind, guid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

_MEMBERS = ("publicIpAddresses", "publicIpAddressesV6")
_MOST_ADDRESSES = 16  # of one NAT gateway
_IDLE_MINUTES = range(4, 121)


@register
class PublicAddresses(NetworkKind):
    """Public addresses."""

    type = ADDRESS
    model = f"{MODELS}:PublicIPAddress"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check SKU, allocation, zones, and the quota."""
        properties, sku = body.get("properties") or {}, (body.get("sku") or {}).get("name") or "Basic"
        region = region_of(body)
        # Basic public addresses can no longer be made: Azure's limit for them is 0.
        if sku == "Basic":
            raise ArmError(
                "IPv4BasicSkuPublicIpCountLimitReached",
                "Cannot create more than 0 IPv4 Basic SKU public IP addresses for this subscription in this "
                "region.",
            )
        if properties.get("publicIPAllocationMethod") != "Static":
            raise ArmError(
                "StandardSkuPublicIPAddressesMustBeStatic",
                f"{sku} sku publicIp {call.path.text} must have AllocationMethod set to Static.",
            )
        if old and (
            (old.document.get("sku") or {}).get("name") != sku or _zones(old.document) != _zones(body)
        ):
            raise ArmError(
                "PropertyChangeNotAllowed",
                f"Changing property 'sku' or 'zones' of public IP address {call.path.text} is not allowed.",
            )
        check_zones(call.path.text, _zones(body), region)
        limit = quotas.limit(call.world, region, quotas.PUBLIC_IPS)
        used = sum(each.location == region for each in store(call.world).of_type(ADDRESS))
        if old is None and used >= limit:
            raise ArmError(
                "PublicIPCountLimitReached",
                f"Cannot create more than {limit} public IP addresses for this subscription in this region.",
            )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Choose the address."""
        properties = resource.properties
        properties["resourceGuid"] = guid(resource)
        properties.setdefault("publicIPAddressVersion", "IPv4")
        properties.setdefault("idleTimeoutInMinutes", 4)
        properties.setdefault("ipTags", [])
        resource.document["sku"] = {"tier": "Regional", **resource.document["sku"]}
        number = int(properties["resourceGuid"][:6], 16)
        properties["ipAddress"] = f"20.{number >> 16}.{number >> 8 & 255}.{number & 255}"

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse while a gateway or a load balancer uses it."""
        for user in users_of(world, resource.id):
            raise ArmError(
                "PublicIPAddressCannotBeDeleted",
                f"Public IP address {resource.id} can not be deleted since it is still allocated to resource "
                f"{user}. In order to delete the public IP, disassociate/detach the Public IP address from "
                "the resource.  To learn how to do this, see aka.ms/deletepublicip.",
            )

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document with the resource that uses it."""
        shown = super().show(world, resource)
        for user in users_of(world, resource.id):
            member = "natGateway" if "/natgateways/" in user.lower() else "ipConfiguration"
            shown["properties"] = {**resource.properties, member: {"id": user}}
        return shown


def users_of(world: World, address_id: str) -> Iterator[str]:
    """Yield the ids of the resources that use a public address."""
    for gateway in store(world).of_type(NAT):
        if address_id.lower() in {id_.lower() for id_ in _addresses(gateway.properties)}:
            yield gateway.id
    for balancer in store(world).of_type(BALANCER):
        for frontend in balancer.properties.get("frontendIPConfigurations") or []:
            public = (frontend.get("properties") or {}).get("publicIPAddress") or {}
            if str(public.get("id") or "").lower() == address_id.lower():
                yield f"{balancer.id}/frontendIPConfigurations/{frontend['name']}"


@register
class NatGateways(NetworkKind):
    """NAT gateways."""

    type = NAT
    model = f"{MODELS}:NatGateway"
    create_time, update_time, delete_time = "nat-create", "nat-update", "nat-delete"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check SKU, zones, and the addresses."""
        properties, sku = body.get("properties") or {}, (body.get("sku") or {}).get("name")
        region, owner = region_of(body), call.path.text
        if sku is None:
            raise ArmError("MissingSku", f"NAT gateway {owner} must have a sku name: Standard or StandardV2.")
        if old and (old.document["sku"]["name"] != sku or _zones(old.document) != _zones(body)):
            raise ArmError(
                "PropertyChangeNotAllowed",
                f"Changing property 'sku' or 'zones' of NAT gateway {owner} is not allowed.",
            )
        check_zones(owner, _zones(body), region)
        # A Standard gateway is in one zone or in none that is named; StandardV2 is in all of a region's.
        if sku == "Standard" and len(_zones(body)) > 1:
            raise ArmError("NatGatewayMultipleZones", f"NAT gateway {owner} can be in one zone at most.")
        idle = properties.get("idleTimeoutInMinutes")
        if idle is not None and idle not in _IDLE_MINUTES:
            raise ArmError(
                "InvalidIdleTimeout",
                f"IdleTimeoutInMinutes {idle} of {owner} is not in {_IDLE_MINUTES[0]}-{_IDLE_MINUTES[-1]}.",
            )
        wanted = list(_addresses(properties))
        if len(wanted) > _MOST_ADDRESSES:
            raise ArmError(
                "NatGatewayPublicIpLimitReached",
                f"NAT gateway {owner} cannot have more than {_MOST_ADDRESSES} public IP addresses.",
            )
        for id_ in wanted:
            address = resolve(call.world, id_, ADDRESS, owner=owner, region=region)
            _check_address(call.world, owner, sku, address)

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the permission to join an address, which is a separate one."""
        for id_ in _addresses(body.get("properties") or {}):
            yield f"{ADDRESS}/join/action", id_

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Fill in the defaults."""
        resource.properties["resourceGuid"] = guid(resource)
        resource.properties.setdefault("idleTimeoutInMinutes", 4)
        resource.document["sku"] = {"tier": "Regional", **resource.document["sku"]}

    def finish(self, world: World, resource: Resource, operation: Operation) -> None:
        """Refuse a deletion late: a subnet may have been associated meanwhile."""
        if operation.verb == "delete":
            self.check_delete(world, resource)

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse while a subnet refers to it."""
        for user in referring(world, resource.id, SUBNET, "natGateway"):
            raise ArmError(
                "InUseNatGatewayCannotBeDeleted",
                f"Nat Gateway {resource.id} is in use by {user.id} and cannot be deleted.",
            )

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document with the subnets that refer to it."""
        shown = super().show(world, resource)
        users = [{"id": user.id} for user in referring(world, resource.id, SUBNET, "natGateway")]
        return shown | {"properties": {**resource.properties, **({"subnets": users} if users else {})}}


def addresses_of(world: World, subnet: Resource) -> Iterator[str]:
    """Yield the public addresses from which a subnet's machines reach the internet, by its NAT gateway."""
    gateway = store(world).find(id_of(subnet.properties, "natGateway"))
    for id_ in _addresses(gateway.properties) if gateway else ():
        if (address := store(world).find(id_)) is not None:
            yield str(address.properties["ipAddress"])


def _check_address(world: World, owner: str, sku: str, address: Resource) -> None:
    # Azure requires the same sku of a gateway and of its addresses.
    if address.document["sku"]["name"] != sku:
        raise ArmError(
            "NatGatewayPublicIpSkuMismatch",
            f"NAT gateway {owner} of sku {sku} cannot use public IP address {address.id} of sku "
            f"{address.document['sku']['name']}.",
        )
    for user in users_of(world, address.id):
        if user.lower() != owner.lower():
            raise ArmError(
                "PublicIPAddressInUse",
                f"Resource {owner} is referencing public IP address {address.id} that is already allocated "
                f"to resource {user}.",
            )


def _zones(document: dict[str, Any]) -> list[str]:
    return list(document.get("zones") or [])


def _addresses(properties: dict[str, Any]) -> Iterator[str]:
    for member in _MEMBERS:
        for row in properties.get(member) or []:
            yield str(row.get("id") or "")
