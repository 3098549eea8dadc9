"""VPCs and subnets: what blocks their deletion, host bits of CIDR blocks, zones, quotas."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.services import quotas
from cloudrec_sandbox.aws.services.ec2.network import interfaces
from cloudrec_sandbox.aws.services.ec2.network.requests import ask_instead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.core.http import Reply

_SUBNET_PREFIXES = range(16, 29)


@operation("ec2", "CreateVpc")
def create_vpc(call: Call) -> Reply:
    """Refuse more VPCs than the quota; clear host bits."""
    if len(call.backend().vpcs) >= quotas.limit(call.world, quotas.VPCS):
        raise AwsError("VpcLimitExceeded", "The maximum number of VPCs has been reached.")
    if block := call.params.get("CidrBlock"):
        ask_instead(call, CidrBlock=str(_network(block)))
    return call.pass_on()


def _network(block: str) -> IPv4Network:
    """Return the block as AWS keeps it: without host bits."""
    try:
        return IPv4Network(block, strict=False)
    except ValueError:
        raise AwsError(
            "InvalidParameterValue",
            f"Value ({block}) for parameter cidrBlock is invalid. This is not a valid CIDR block.",
        ) from None


@operation("ec2", "DeleteVpc")
def delete_vpc(call: Call) -> Reply:
    """Refuse a VPC that still has anything but what was created with it."""
    ec2, name = call.backend(), call.params["VpcId"]
    if name in ec2.vpcs and any(_left_in_vpc(ec2, name)):
        raise AwsError("DependencyViolation", f"The vpc '{name}' has dependencies and cannot be deleted.")
    return call.pass_on()


def _left_in_vpc(ec2: Any, vpc_id: str) -> Iterator[str]:  # noqa: ANN401 - moto's EC2 backend
    yield from (igw.id for igw in ec2.internet_gateways.values() if igw.vpc and igw.vpc.id == vpc_id)
    yield from (eni.id for eni in interfaces.in_vpc(ec2, vpc_id))
    yield from (endpoint.id for endpoint in ec2.vpc_end_points.values() if endpoint.vpc_id == vpc_id)
    yield from (group.id for group in ec2.groups[vpc_id].values() if group.name != "default")
    yield from (
        table.id
        for table in ec2.route_tables.values()
        if table.vpc_id == vpc_id and not table.main_association_id
    )


@operation("ec2", "CreateSubnet")
def create_subnet(call: Call) -> Reply:
    """Refuse sizes and zones that AWS refuses; clear host bits."""
    ec2, block = call.backend(), call.params.get("CidrBlock")
    zone = call.params.get("AvailabilityZone")
    zones = [zone.name for zone in ec2.describe_availability_zones()]
    if zone is not None and zone not in zones:
        raise AwsError(
            "InvalidParameterValue",
            f"Value ({zone}) for parameter availabilityZone is invalid. Subnets can currently only be "
            f"created in the following availability zones: {', '.join(zones)}.",
        )
    if block:
        network = _network(block)
        if network.prefixlen not in _SUBNET_PREFIXES:
            raise AwsError("InvalidSubnet.Range", f"The CIDR '{block}' is invalid.")
        ask_instead(call, CidrBlock=str(network))
    return call.pass_on()


@operation("ec2", "DeleteSubnet")
def delete_subnet(call: Call) -> Reply:
    """Refuse a subnet that still has an interface, including those of AWS services."""
    ec2, name = call.backend(), call.params["SubnetId"]
    if any(interfaces.in_subnet(ec2, name)):
        raise AwsError("DependencyViolation", f"The subnet '{name}' has dependencies and cannot be deleted.")
    reply = call.pass_on()
    for table in ec2.route_tables.values():
        for association in [key for key, subnet in table._associations.items() if subnet == name]:
            del table._associations[association]
    return reply
