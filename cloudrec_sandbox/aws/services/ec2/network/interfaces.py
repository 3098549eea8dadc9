"""Network interfaces: those that AWS's services put into subnets, and which may not be deleted."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.core.http import Reply

_RESERVED = 4  # AWS reserves the first four addresses of a subnet


def attach_service_interface(
    ec2: Any,  # noqa: ANN401 - moto's EC2 backend
    subnet_id: str,
    groups: Sequence[str],
    *,
    description: str,
    requester: str,
    interface_type: str = "interface",
) -> Any:  # noqa: ANN401 - moto's network interface
    """Make an AWS service's interface: it holds its subnet and groups until the service removes it."""
    eni = ec2.create_network_interface(
        subnet_id, free_address(ec2, subnet_id), group_ids=list(groups), description=description
    )
    eni.status = "in-use"
    eni.requester_managed = True
    eni.requester_id = requester
    eni.interface_type = interface_type
    return eni


def free_address(ec2: Any, subnet_id: str) -> str:  # noqa: ANN401 - moto's EC2 backend
    """Take the first free address of a subnet; AwsError if there is none."""
    taken = {
        address["PrivateIpAddress"]
        for eni in in_subnet(ec2, subnet_id)
        for address in eni.private_ip_addresses
    }
    subnet = ec2.get_subnet(subnet_id)
    for offset in range(_RESERVED, subnet.cidr.num_addresses - 1):
        address = str(ip_address(int(subnet.cidr.network_address) + offset))
        if address not in taken and address not in subnet._subnet_ips:
            subnet._subnet_ips[address] = None  # so that moto does not give it to an instance
            return address
    raise AwsError(
        "InsufficientFreeAddressesInSubnet",
        f"The specified subnet {subnet_id} does not have enough free addresses to satisfy the request.",
    )


def remove(ec2: Any, names: Iterable[str]) -> None:  # noqa: ANN401 - moto's EC2 backend
    """Remove interfaces; unknown names are ignored."""
    for name in names:
        eni = ec2.enis.pop(name, None)
        if eni is not None:
            eni.subnet.del_subnet_ip(eni.private_ip_address)


def free_addresses(ec2: Any, subnet_id: str) -> int:  # noqa: ANN401 - moto's EC2 backend
    """Return how many more interfaces fit into a subnet."""
    return int(ec2.get_subnet(subnet_id).available_ip_address_count)


def in_subnet(ec2: Any, subnet_id: str) -> Iterator[Any]:  # noqa: ANN401 - moto's EC2 backend
    """Return the interfaces in a subnet."""
    return (eni for eni in ec2.enis.values() if eni.subnet.id == subnet_id)


def in_vpc(ec2: Any, vpc_id: str) -> Iterator[Any]:  # noqa: ANN401 - moto's EC2 backend
    """Return the interfaces in a VPC."""
    return (eni for eni in ec2.enis.values() if eni.subnet.vpc_id == vpc_id)


@operation("ec2", "DeleteNetworkInterface")
def delete(call: Call) -> Reply:
    """Refuse an interface that is attached, or that a service uses."""
    name = call.params["NetworkInterfaceId"]
    eni = call.backend().enis.get(name)
    if eni is not None and eni.status == "in-use":
        raise AwsError("InvalidParameterValue", f"Network interface '{name}' is currently in use.")
    return call.pass_on()


@operation("ec2", "CreateNetworkInterface")
def create(call: Call) -> Reply:
    """Refuse unknown groups: moto would create them."""
    ec2 = call.backend()
    for group in call.params.get("Groups", []):
        if ec2.get_security_group_from_id(group) is None:
            raise AwsError("InvalidGroup.NotFound", f"The security group '{group}' does not exist")
    return call.pass_on()
