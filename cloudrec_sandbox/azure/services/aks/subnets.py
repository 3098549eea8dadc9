"""What AKS requires of the subnets of its nodes, and of the cluster's identity."""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.paths import parse
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.aks.refusals import invalid
from cloudrec_sandbox.azure.services.authorization import access
from cloudrec_sandbox.azure.services.network import interfaces, outbound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

_TYPE = "microsoft.network/virtualnetworks/subnets"
_NEEDED = (
    "Microsoft.Network/virtualNetworks/subnets/read",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
)
_NAT = "userAssignedNATGateway"


def check(world: World, id_: str, *, region: str, outbound: str, nodes: int) -> Resource:
    """Return the network of a subnet; ArmError if nodes cannot be in it."""
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
    # Delegated subnets belong to another service, which places its own machines in them.
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


def check_egress(world: World, pool: Resource) -> None:
    """Fail a pool whose nodes cannot reach the API server, because their own address is not authorised.

    "In non-private clusters, API server cluster traffic is routed and processed through the cluster's
    outbound type" (azure-aks-docs, nat-gateway.md). AKS authorises a load balancer's address by itself, no
    other (api-server-authorized-ip-ranges.md). The error is that of Azure/AKS-Construction#344 and
    MicrosoftDocs/azure-docs#111834.
    """
    cluster, subnet = (
        store(world).find(str(id_ or "")) for id_ in (pool.path.parent, pool.properties.get("vnetSubnetID"))
    )
    if cluster is None or subnet is None or cluster.properties["networkProfile"].get("outboundType") != _NAT:
        return
    profile = cluster.properties.get("apiServerAccessProfile") or {}
    ranges = [ipaddress.ip_network(each, strict=False) for each in profile.get("authorizedIPRanges") or []]
    egress = {ipaddress.ip_address(address) for address in outbound.addresses_of(world, subnet)}
    if ranges and any(not any(address in each for each in ranges) for address in egress):
        raise ArmError(
            "CreateVMSSAgentPoolFailed",
            "Unable to establish connection from agents to Kubernetes API server, please see "
            'https://aka.ms/aks-required-ports-and-addresses for more information. Details: Code="'
            'VMExtensionProvisioningError" Message="VM has reported a failure when processing extension '
            "'vmssCSE'. Error message: \"Enable failed: failed to execute command: command terminated with "
            f'exit status=51"" (agent pool {pool.name})',
        )


# Nodes take addresses of the subnet; with overlay networking pods do not.
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
    """Refuse a range of the cluster that overlaps one of a network."""
    wanted = ipaddress.ip_network(cidr)
    for prefix in (network.properties.get("addressSpace") or {}).get("addressPrefixes") or []:
        taken = ipaddress.ip_network(prefix, strict=False)
        if taken.version == wanted.version and taken.overlaps(wanted):
            raise invalid(
                f"The specified {name} {cidr} is conflicted with an existing subnet CIDR {prefix}", code
            )


def unauthorized(world: World, principal: str, client: str, subnets: set[str]) -> Iterator[ArmError]:
    """Yield the errors for what the cluster's identity may not do yet in the nodes' subnets."""
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
