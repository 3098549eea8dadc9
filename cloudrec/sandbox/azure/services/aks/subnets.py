"""What AKS asks of the subnets that its nodes are to be in, and of whom it acts for."""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from typing import TYPE_CHECKING

from cloudrec.sandbox.azure.errors import ArmError
from cloudrec.sandbox.azure.paths import parse
from cloudrec.sandbox.azure.services.aks.refusals import invalid
from cloudrec.sandbox.azure.services.authorization import access
from cloudrec.sandbox.azure.services.network import interfaces
from cloudrec.sandbox.azure.store import store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.sandbox.azure.store import Resource
    from cloudrec.sandbox.world import World

_TYPE = "microsoft.network/virtualnetworks/subnets"
_NEEDED = (
    "Microsoft.Network/virtualNetworks/subnets/read",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
)
_NAT = "userAssignedNATGateway"


def check(world: World, id_: str, *, region: str, outbound: str, nodes: int) -> Resource:
    """The network of a subnet; refused where its nodes could not be in it."""
    if parse(id_).type.lower() != _TYPE:
        raise invalid(f"Property id '{id_}' is invalid. Expect a subnet.", "LinkedInvalidPropertyId")
    subnet, network = store(world).find(id_), store(world).find(parse(id_).parent)
    if subnet is None or network is None:
        raise ArmError("SubnetNotFound", f"The subnet {id_} was not found.", status=HTTPStatus.BAD_REQUEST)
    for each in (network, subnet):
        state = each.properties.get("provisioningState")
        if state != "Succeeded":
            raise ArmError(
                "VirtualNetworkNotInSucceededState",
                f"Set virtual network ownership failed. {each.id} is in state {state}; it must be Succeeded.",
            )
    if network.location != region:
        raise invalid(
            f"The virtual network {network.id} is in {network.location}; the cluster is in {region}.",
            "VnetLocationMismatch",
        )
    if subnet.properties.get("delegations"):
        raise invalid(
            f"Subnet {id_} is delegated, AKS does not support delegated subnets for nodes.",
            "SubnetDelegationNotAllowed",
        )
    if outbound == _NAT and not subnet.properties.get("natGateway"):
        raise invalid(
            f"Outbound type {_NAT} needs a NAT gateway that is associated with the subnet {id_}.",
            "NatGatewayNotAssociatedWithSubnet",
        )
    _check_room(world, id_, nodes)
    return network


def _check_room(world: World, id_: str, nodes: int) -> None:
    free = interfaces.free_addresses(world, id_)
    if nodes > free:
        raise invalid(
            f"Pre-allocated IPs {nodes} exceeds IPs available {free} in Subnet Cidr "
            f"{','.join(interfaces.prefixes(world, id_))}, Subnet Name {parse(id_).name}. "
            "http://aka.ms/aks/insufficientsubnetsize",
            "InsufficientSubnetSize",
        )


def check_overlap(network: Resource, name: str, cidr: str, code: str) -> None:
    """Refuse a range of the cluster's own that a network has."""
    wanted = ipaddress.ip_network(cidr)
    for prefix in (network.properties.get("addressSpace") or {}).get("addressPrefixes") or []:
        taken = ipaddress.ip_network(prefix, strict=False)
        if taken.version == wanted.version and taken.overlaps(wanted):
            raise invalid(
                f"The specified {name} {cidr} is conflicted with an existing subnet CIDR {prefix}", code
            )


def unauthorized(world: World, principal: str, client: str, subnets: set[str]) -> Iterator[ArmError]:
    """What the cluster's identity may not do yet in the nodes' subnets."""
    for id_ in sorted(subnets):
        for action in _NEEDED:
            if not access.has(world, principal, action, id_):
                yield ArmError(
                    "LinkedAuthorizationFailed",
                    f"Reconcile VNet failed. Details: The client '{client}' with object id '{principal}' "
                    f"does not "
                    f"have authorization to perform action '{action}' over scope '{id_}' or the scope is "
                    f"invalid. "
                    "If access was recently granted, please refresh your credentials.",
                    status=HTTPStatus.FORBIDDEN,
                )
