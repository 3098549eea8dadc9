"""VPC endpoints: what AWS refuses, the lifecycle of interface endpoints, errors inside a successful reply.

Durations: endpoint-create, endpoint-delete (of interface endpoints; gateway endpoints change at once).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import durations, operation
from cloudrec_sandbox.aws.services.ec2.network import services
from cloudrec_sandbox.aws.services.ec2.network.interfaces import attach_service_interface, remove

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

durations({"endpoint-create": 60, "endpoint-delete": 60})


@operation("ec2", "CreateVpcEndpoint")
def create(call: Call) -> dict[str, Any]:
    """Refuse conflicts; let interface endpoints become available late, with interfaces in their groups."""
    ec2, wanted = call.backend(), call.params
    vpc_id, service = wanted["VpcId"], wanted["ServiceName"]
    if vpc_id not in ec2.vpcs:
        raise AwsError("InvalidVpcId.NotFound", f"The Vpc Id {vpc_id} does not exist")
    services.check(call, service, wanted.get("VpcEndpointType", "Gateway"))
    if wanted.get("VpcEndpointType", "Gateway") == "Interface":
        return _create_interface(call, ec2, wanted)
    tables = wanted.get("RouteTableIds", [])
    # Two gateway endpoints of a service would route the same addresses in one table.
    for endpoint in ec2.vpc_end_points.values():
        if endpoint.service_name == service and set(tables) & set(endpoint.route_table_ids or []):
            raise AwsError(
                "RouteAlreadyExists",
                f"route table {', '.join(tables)} already has a route with destination-prefix-list-id "
                f"{endpoint.destination_prefix_list_id}",
            )
    output = call.output()
    endpoint = ec2.vpc_end_points[output["VpcEndpoint"]["VpcEndpointId"]]
    endpoint.vpc_endpoint_type = output["VpcEndpoint"]["VpcEndpointType"] = "Gateway"
    endpoint.private_dns_enabled = output["VpcEndpoint"]["PrivateDnsEnabled"] = False
    return output


def _create_interface(call: Call, ec2: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - moto's
    subnets = [_subnet(ec2, name) for name in wanted.get("SubnetIds", [])]
    services.check_zones(call, wanted["ServiceName"], subnets)
    zones = [subnet.availability_zone for subnet in subnets]
    if len(zones) != len(set(zones)):
        raise AwsError(
            "DuplicateSubnetsInSameZone", "Found another VPC endpoint subnet in the availability zone."
        )
    for group in wanted.get("SecurityGroupIds", []):
        if ec2.get_security_group_from_id(group) is None:
            raise AwsError("InvalidSecurityGroupId.NotFound", f"The security group '{group}' does not exist")
    if wanted.get("PrivateDnsEnabled", True):
        _check_private_dns(ec2, wanted["VpcId"], wanted["ServiceName"])
    output = call.output()
    endpoint = ec2.vpc_end_points[output["VpcEndpoint"]["VpcEndpointId"]]
    endpoint.private_dns_enabled = wanted.get("PrivateDnsEnabled", True)
    endpoint.state = output["VpcEndpoint"]["State"] = "pending"
    groups = endpoint.security_group_ids or [ec2.get_default_security_group(endpoint.vpc_id).id]
    attach(ec2, endpoint, [subnet.id for subnet in subnets], groups)
    call.world.after(call.world.duration("endpoint-create"), _be_available, call.region, endpoint.id)
    output["VpcEndpoint"] |= {
        "NetworkInterfaceIds": endpoint.network_interface_ids,
        "PrivateDnsEnabled": endpoint.private_dns_enabled,
        "Groups": endpoint.groups,
    }
    return output


def attach(ec2: Any, endpoint: Any, subnets: Iterable[str], groups: list[str]) -> None:  # noqa: ANN401 - moto's
    """Give an endpoint an interface in each subnet, which holds the subnet and the groups, as EC2 does."""
    remove(ec2, endpoint.network_interface_ids)
    endpoint.security_group_ids = groups
    endpoint.network_interface_ids = [
        attach_service_interface(
            ec2,
            subnet,
            groups,
            description=f"VPC Endpoint Interface {endpoint.id}",
            requester="amazon-vpce",
            interface_type="vpc_endpoint",
        ).id
        for subnet in subnets
    ]


def _subnet(ec2: Any, name: str) -> Any:  # noqa: ANN401 - moto's own
    for zone in ec2.subnets.values():
        if name in zone:
            return zone[name]
    raise AwsError("InvalidSubnetId.NotFound", f"The subnet ID '{name}' does not exist")


def _check_private_dns(ec2: Any, vpc_id: str, service: str) -> None:  # noqa: ANN401 - moto's EC2 backend
    vpc = ec2.vpcs[vpc_id]
    # Private names need a resolver in the VPC, and names for its machines.
    if not (_is_on(vpc.enable_dns_support) and _is_on(vpc.enable_dns_hostnames)):
        raise AwsError(
            "InvalidParameter",
            "Enabling private DNS requires both enableDnsSupport and enableDnsHostnames VPC attributes set "
            f"to true for {vpc_id}",
        )
    if any(
        other.vpc_id == vpc_id and other.service_name == service and other.private_dns_enabled
        for other in ec2.vpc_end_points.values()
    ):
        raise AwsError(
            "InvalidParameter",
            "private-dns-enabled cannot be set because there is already a conflicting DNS domain for "
            f"{service} in the VPC {vpc_id}",
        )


def _is_on(attribute: object) -> bool:
    return str(attribute).lower() == "true"


def _be_available(world: World, region: str, name: str) -> None:
    endpoint = world.backend("ec2", region).vpc_end_points.get(name)
    if endpoint is not None and endpoint.state == "pending":
        endpoint.state = "available"


# EC2 reports an unknown endpoint in a successful reply: clients must read it.
@operation("ec2", "DeleteVpcEndpoints")
def delete(call: Call) -> dict[str, Any]:
    """Begin to delete each endpoint that exists; report the others in a successful reply."""
    ec2 = call.backend()
    failed = []
    for name in call.params["VpcEndpointIds"]:
        endpoint = ec2.vpc_end_points.get(name)
        if endpoint is None:
            failed.append(
                _unsuccessful(
                    name, "InvalidVpcEndpoint.NotFound", f"The VpcEndpoint Id '{name}' does not exist"
                )
            )
        elif endpoint.vpc_endpoint_type == "Interface":
            if endpoint.state != "deleting":
                endpoint.state = "deleting"
                call.world.after(call.world.duration("endpoint-delete"), _finish, call.region, name)
        else:
            del ec2.vpc_end_points[name]
            for table in ec2.route_tables.values():
                for route in [route for route in table.routes if route.gateway_id == name]:
                    del table._routes[route.id]
    return {"Unsuccessful": failed}


def _unsuccessful(name: str, code: str, message: str) -> dict[str, Any]:
    return {"ResourceId": name, "Error": {"Code": code, "Message": message}}


def _finish(world: World, region: str, name: str) -> None:
    ec2 = world.backend("ec2", region)
    endpoint = ec2.vpc_end_points.pop(name, None)
    if endpoint is not None:
        remove(ec2, endpoint.network_interface_ids)


@operation("ec2", "DescribeVpcEndpoints")
def describe(call: Call) -> Any:  # noqa: ANN401 - a reply
    """Refuse unknown ids with the code that EC2 has for them."""
    ec2 = call.backend()
    for name in call.params.get("VpcEndpointIds", []):
        if name not in ec2.vpc_end_points:
            raise AwsError("InvalidVpcEndpointId.NotFound", f"The Vpc Endpoint Id '{name}' does not exist")
    return call.pass_on()
