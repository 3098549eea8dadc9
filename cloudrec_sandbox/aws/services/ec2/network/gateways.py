"""Internet gateways, NAT gateways with their lifecycle, and Elastic IP addresses.

Durations: nat-create, nat-delete; dead-nat-listed, for which DescribeNatGateways still lists it; eip-release,
after which the address of a deleted NAT gateway can be released; igw-detach, for which a deleted NAT gateway
keeps its VPC's internet gateway from being detached.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import durations, operation
from cloudrec_sandbox.aws.services import quotas
from cloudrec_sandbox.aws.services.ec2.filters import with_tags
from cloudrec_sandbox.aws.services.ec2.network import interfaces
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.core.http import Reply

durations({"nat-create": 120, "nat-delete": 60, "dead-nat-listed": 3600, "eip-release": 20, "igw-detach": 30})

_GONE = ("deleted", "failed")
_FAILURES = {
    "Gateway.NotAttached": "Network {vpc_id} has no Internet gateway attached",
    "InvalidAllocationID.NotFound": "Elastic IP address could not be associated with this NAT gateway",
    "Resource.AlreadyAssociated": "Elastic IP address is already associated",
    "InsufficientFreeAddressesInSubnet": "Subnet has insufficient free addresses to create this NAT gateway",
}


@dataclass
class Holds:
    """What a NAT gateway still holds after its end, and until when."""

    addresses: dict[str, float] = field(default_factory=dict)  # by allocation id
    networks: dict[str, float] = field(default_factory=dict)  # by VPC id


@operation("ec2", "CreateNatGateway")
def create_nat(call: Call) -> dict[str, Any]:
    """Accept nearly all of them: an error shows later, as a gateway that fails."""
    ec2, wanted = call.backend(), call.params
    subnet = ec2.get_subnet(wanted["SubnetId"]) if _has_subnet(ec2, wanted["SubnetId"]) else None
    if subnet is None:
        raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{wanted['SubnetId']}' does not exist")
    public = wanted.get("ConnectivityType", "public") == "public"
    if public and not wanted.get("AllocationId"):
        raise AwsError("MissingParameter", "The request must contain the parameter AllocationId")
    failure = _failure(ec2, subnet, wanted if public else {})
    tags = {
        tag["Key"]: tag.get("Value", "")
        for specification in wanted.get("TagSpecifications", [])
        for tag in specification.get("Tags", [])
    }
    nat = ec2.create_nat_gateway(
        subnet.id, None if failure else wanted.get("AllocationId"), tags, "public" if public else "private"
    )
    _set_interface(ec2, nat)
    nat.state = "pending"
    call.world.after(call.world.duration("nat-create"), _settle_nat, call.region, nat.id, failure)
    return {"NatGateway": _shown(nat), "ClientToken": wanted.get("ClientToken", "")}


def _has_subnet(ec2: Any, name: str) -> bool:  # noqa: ANN401 - moto's EC2 backend
    return any(name in zone for zone in ec2.subnets.values())


def _failure(ec2: Any, subnet: Any, wanted: Mapping[str, Any]) -> str:  # noqa: ANN401 - moto's own
    """Return why the gateway will fail; empty if it will not."""
    if interfaces.free_addresses(ec2, subnet.id) < 1:
        return "InsufficientFreeAddressesInSubnet"
    if not wanted:
        return ""
    if not any(igw.vpc and igw.vpc.id == subnet.vpc_id for igw in ec2.internet_gateways.values()):
        return "Gateway.NotAttached"
    address = next((a for a in ec2.addresses if a.allocation_id == wanted["AllocationId"]), None)
    if address is None:
        return "InvalidAllocationID.NotFound"
    return "Resource.AlreadyAssociated" if address.association_id else ""


def _set_interface(ec2: Any, nat: Any) -> None:  # noqa: ANN401 - moto's own
    """Set the attributes that AWS gives to the gateway's interface, and an address of its subnet."""
    eni = nat._eni
    free = interfaces.free_address(ec2, nat.subnet_id)
    eni.private_ip_address = nat.private_ip = free
    eni.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": free}]
    eni.status, eni.interface_type, eni.requester_managed = "in-use", "nat_gateway", True
    eni.description = f"Interface for NAT Gateway {nat.id}"
    nat.address_set[0]["privateIp"] = free
    eni._group_set = []  # a NAT gateway has no security groups


def _settle_nat(world: World, region: str, name: str, failure: str) -> None:
    ec2 = world.backend("ec2", region)
    nat = ec2.nat_gateways.get(name)
    if nat is None or nat.state != "pending":
        return
    if failure:
        nat.state, nat.failure_code, nat.failure_message = (
            "failed",
            failure,
            _FAILURES[failure].format(vpc_id=nat.vpc_id),
        )
        interfaces.remove(ec2, [nat._eni.id])
        world.after(world.duration("dead-nat-listed"), _forget_nat, region, name)
    else:
        nat.state = "available"


@operation("ec2", "DeleteNatGateway")
def delete_nat(call: Call) -> dict[str, Any]:
    """Begin to delete it; the address, the interface and the routes stay for now."""
    ec2, name = call.backend(), call.params["NatGatewayId"]
    nat = ec2.nat_gateways.get(name)
    if nat is None:
        raise AwsError("NatGatewayNotFound", f"The Nat Gateway {name} was not found")
    if nat.state in ("pending", "available"):
        nat.state = "deleting"
        call.world.after(call.world.duration("nat-delete"), _finish_nat, call.region, name)
    elif nat.state == "failed":
        _end(call.world, nat)
    return {"NatGatewayId": name}


def _finish_nat(world: World, region: str, name: str) -> None:
    ec2 = world.backend("ec2", region)
    nat = ec2.nat_gateways[name]
    _end(world, nat)
    interfaces.remove(ec2, [nat._eni.id])
    # AWS frees the address and the VPC's internet gateway some seconds after the gateway is gone.
    for address in ec2.addresses:
        if address.eni is nat._eni:
            holds = world.state(Holds, region)
            holds.addresses[address.allocation_id] = world.now() + world.duration("eip-release")
            holds.networks[nat.vpc_id] = world.now() + world.duration("igw-detach")
            ec2.disassociate_address(address=address.public_ip)
    world.after(world.duration("dead-nat-listed"), _forget_nat, region, name)


def _end(world: World, nat: Any) -> None:  # noqa: ANN401 - moto's NAT gateway
    nat.state, nat.delete_time = "deleted", as_datetime(world.now())


def _forget_nat(world: World, region: str, name: str) -> None:
    world.backend("ec2", region).nat_gateways.pop(name, None)


@operation("ec2", "DescribeNatGateways")
def describe_nats(call: Call) -> dict[str, Any]:
    """Return the failure and the end of each, filtered by tag, which moto cannot do."""
    ec2 = call.backend()
    for name in call.params.get("NatGatewayIds", []):
        if name not in ec2.nat_gateways:
            raise AwsError("NatGatewayNotFound", f"The Nat Gateway {name} was not found")
    output = call.output()
    shown = with_tags(output["NatGateways"], call.params.get("Filters") or call.params.get("Filter") or [])
    return {"NatGateways": [_shown(ec2.nat_gateways[row["NatGatewayId"]]) for row in shown]}


def _shown(nat: Any) -> dict[str, Any]:  # noqa: ANN401 - moto's NAT gateway
    address = nat.address_set[0]
    row: dict[str, Any] = {
        "NatGatewayId": nat.id,
        "State": nat.state,
        "SubnetId": nat.subnet_id,
        "VpcId": nat.vpc_id,
        "CreateTime": nat._created_at,
        "ConnectivityType": nat.connectivity_type,
        "Tags": [{"Key": tag["key"], "Value": tag["value"]} for tag in nat.get_tags()],
        "NatGatewayAddresses": [
            {
                "AllocationId": address.get("allocationId"),
                "AssociationId": address.get("associationId"),
                "NetworkInterfaceId": address["networkInterfaceId"],
                "PrivateIp": address["privateIp"],
                "PublicIp": address.get("publicIp"),
                "IsPrimary": True,
            }
        ],
    }
    for member, attribute in (
        ("FailureCode", "failure_code"),
        ("FailureMessage", "failure_message"),
        ("DeleteTime", "delete_time"),
    ):
        if value := getattr(nat, attribute, None):
            row[member] = value
    return row


@operation("ec2", "AllocateAddress")
def allocate(call: Call) -> Reply:
    """Refuse more addresses than the quota."""
    if len(call.backend().addresses) >= quotas.limit(call.world, quotas.ELASTIC_IPS):
        raise AwsError("AddressLimitExceeded", "The maximum number of addresses has been reached.")
    return call.pass_on()


@operation("ec2", "ReleaseAddress")
def release(call: Call) -> Reply:
    """Refuse an address in use, and for some seconds the address of a deleted NAT gateway."""
    ec2, name = call.backend(), call.params.get("AllocationId")
    address = next((address for address in ec2.addresses if name and address.allocation_id == name), None)
    if address is None:
        return call.pass_on()
    # EC2's code for an address that a service holds is AuthFailure: the caller does not own the association.
    if _is_held(call, ec2, address):
        raise AwsError("AuthFailure", "You do not have permission to access the specified resource.")
    if address.association_id:
        raise AwsError("InvalidIPAddress.InUse", f"Address {address.public_ip} is in use.")
    return call.pass_on()


@operation("ec2", "DisassociateAddress")
def disassociate(call: Call) -> Reply:
    """Refuse the address of a NAT gateway: only EC2 may disassociate it."""
    ec2, name = call.backend(), call.params.get("AssociationId")
    for address in ec2.addresses:
        if address.association_id == name and address.eni and address.eni.requester_managed:
            raise AwsError("AuthFailure", "You do not have permission to access the specified resource.")
    return call.pass_on()


def _is_held(call: Call, ec2: Any, address: Any) -> bool:  # noqa: ANN401 - moto's own
    until = call.world.state(Holds, call.region).addresses.get(address.allocation_id, 0.0)
    return until > call.world.now() or any(
        nat.state == "deleting" and nat._eni is address.eni for nat in ec2.nat_gateways.values()
    )


@operation("ec2", "AttachInternetGateway")
def attach(call: Call) -> Reply:
    """Refuse a second internet gateway of a VPC."""
    vpc_id = call.params["VpcId"]
    for igw in call.backend().internet_gateways.values():
        if igw.vpc and igw.vpc.id == vpc_id:
            raise AwsError(
                "Resource.AlreadyAssociated", f"resource {igw.id} is already attached to network {vpc_id}"
            )
    return call.pass_on()


@operation("ec2", "DetachInternetGateway")
def detach(call: Call) -> Reply:
    """Refuse while the VPC has public addresses mapped, and some seconds longer."""
    ec2, vpc_id = call.backend(), call.params["VpcId"]
    until = call.world.state(Holds, call.region).networks.get(vpc_id, 0.0)
    if until > call.world.now() or any(_is_public(ec2, eni) for eni in interfaces.in_vpc(ec2, vpc_id)):
        raise AwsError(
            "DependencyViolation",
            f"Network {vpc_id} has some mapped public address(es). Please unmap those public address(es) "
            "before detaching the gateway.",
        )
    return call.pass_on()


def _is_public(ec2: Any, eni: Any) -> bool:  # noqa: ANN401 - moto's own
    return bool(eni.public_ip) or any(address.eni is eni for address in ec2.addresses)
