"""Subnets: a network takes one write at a time, and a subnet in use cannot be deleted."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm import references
from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.network import endpoints, interfaces, service_endpoints
from cloudrec_sandbox.azure.services.network.addresses import check_spaces, check_subnet
from cloudrec_sandbox.azure.services.network.base import MODELS, NetworkKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.azure.arm.paths import Path
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

_LINKS = (("networkSecurityGroup", references.GROUP), ("natGateway", references.NAT))


def subnets_of(world: World, network_id: str) -> list[Resource]:
    """Return a network's subnets."""
    return list(store(world).of_type(references.SUBNET, network_id))


def prefixes_of(properties: Mapping[str, Any]) -> list[str]:
    """Return the ranges that a subnet's properties name."""
    single = properties.get("addressPrefix")
    return [single] if single else list(properties.get("addressPrefixes") or [])


def check_properties(
    world: World,
    properties: Mapping[str, Any],
    *,
    id_: str,
    spaces: Sequence[str],
    others: Mapping[str, Sequence[str]],
    region: str,
) -> None:
    """Raise ArmError for a subnet that does not fit its network, or has a reference to nothing."""
    name, prefixes = id_.rpartition("/")[2], prefixes_of(properties)
    if not prefixes:
        raise ArmError(
            "NoAddressPrefixOrPoolProvided",
            f"No address prefix or IPAM pool was provided for the subnet {name}.",
        )
    check_subnet(name, prefixes, check_spaces(spaces, id_), others)
    known = store(world).find(id_)
    if known and prefixes_of(known.properties) != prefixes and any(interfaces.inside(world, id_)):
        raise ArmError(
            "InUsePrefixCannotBeDeleted",
            f"IpPrefix {', '.join(prefixes_of(known.properties))} on Subnet {name} has active allocations "
            "and cannot be deleted.",
        )
    for member, kind in _LINKS:
        if target := references.id_of(dict(properties), member):
            references.resolve(world, target, kind, owner=id_, region=region)
    service_endpoints.check(name, properties)


def complete(subnet: Resource, region: str) -> None:
    """Fill in what Azure adds to a subnet's properties."""
    properties = subnet.properties
    service_endpoints.complete(properties, region)
    properties.setdefault("delegations", [])
    properties.setdefault("privateEndpointNetworkPolicies", "Disabled")
    properties.setdefault("privateLinkServiceNetworkPolicies", "Enabled")
    # Default outbound access ended on 2026-03-31 (aks-docs).
    properties.setdefault("defaultOutboundAccess", False)
    for member, _ in _LINKS:
        if target := references.id_of(properties, member):
            properties[member] = {"id": target}
        else:
            properties.pop(member, None)


@register
class Subnets(NetworkKind):
    """Subnets as separate resources."""

    type = references.SUBNET
    model = f"{MODELS}:Subnet"
    patch_model = ""
    is_located = takes_tags = False

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the range beside the network's other subnets, and the references."""
        network = store(call.world).find(call.path.parent)
        if network is None:
            return
        others = {
            each.name: prefixes_of(each.properties)
            for each in subnets_of(call.world, network.id)
            if each.key != call.path.key
        }
        check_properties(
            call.world,
            body.get("properties") or {},
            id_=call.path.text,
            spaces=network.properties["addressSpace"]["addressPrefixes"],
            others=others,
            region=network.location,
        )

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the permission to join a security group or a NAT gateway, which is a separate one."""
        for member, kind in _LINKS:
            if target := references.id_of(body.get("properties") or {}, member):
                yield f"{kind}/join/action", target

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Complete it; its network is Updating meanwhile."""
        network = store(call.world).find(call.path.parent)
        complete(resource, network.location if network else "")
        now = {references.id_of(resource.properties, member).lower() for member, _ in _LINKS}
        before = (
            {references.id_of(old["properties"], member).lower() for member, _ in _LINKS} if old else set()
        )
        # Until the write ends, Azure still counts the subnet as a user of what it leaves.
        resource.facts[references.LEAVING] = sorted(before - now - {""})
        _mark_network(call.world, resource, "Updating")

    def before_delete(self, world: World, resource: Resource) -> None:
        """Mark its network as Updating."""
        _mark_network(world, resource, "Updating")

    def finish(self, world: World, resource: Resource, operation: Operation) -> None:
        """Make its network usable again."""
        resource.facts.pop(references.LEAVING, None)
        _mark_network(world, resource, "Succeeded")

    def fail(self, world: World, resource: Resource, operation: Operation) -> None:
        """Make its network usable again."""
        resource.facts.pop(references.LEAVING, None)
        _mark_network(world, resource, "Succeeded")

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse while anything is in it."""
        interfaces.refuse_in_use(world, resource)

    def locks(self, world: World, path: Path) -> Iterable[Resource]:
        """Yield the network and all its subnets."""
        if network := store(world).find(path.parent):
            yield network
        yield from subnets_of(world, path.parent)

    def busy(self, resource: Resource, operation: Operation) -> ArmError:
        """Return the error for another write in the network: a conflict."""
        return ArmError(
            "AnotherOperationInProgress",
            "Another operation on this or dependent resource is in progress. To retrieve status of the "
            f"operation use uri: {operation.id}. ({operation.verb} of {resource.id})",
            status=HTTPStatus.CONFLICT,
        )

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document with what is in the subnet."""
        shown = super().show(world, resource)
        used = {
            "ipConfigurations": list(_configurations(world, resource.id)),
            "privateEndpoints": list(endpoints.inside(world, resource.id)),
        }
        present = {member: rows for member, rows in used.items() if rows}
        return shown | {"properties": {**resource.properties, **present}}


def _configurations(world: World, subnet_id: str) -> Iterator[dict[str, str]]:
    for row in interfaces.inside(world, subnet_id):
        for number in range(row.count):
            yield {"id": f"{row.owner}/ipConfigurations/{number}"}


def _mark_network(world: World, subnet: Resource, state: str) -> None:
    network = store(world).find(subnet.path.parent)
    if network is not None and not network.deleting:
        network.properties["provisioningState"] = state
