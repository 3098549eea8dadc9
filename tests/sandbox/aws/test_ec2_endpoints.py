"""VPC endpoints, security groups and network interfaces; names begin with the kind of thing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.aws.support import ZONES, Aws, refused
from tests.sandbox.aws.support_ec2 import Net, make_net

S3 = "com.amazonaws.us-east-1.s3"
STS = "com.amazonaws.us-east-1.sts"


@pytest.fixture
def net(aws: Aws) -> Net:
    return make_net(aws)


def _interface_endpoint(net: Net, **more: Any) -> str:
    net.ec2.modify_vpc_attribute(VpcId=net.vpc, EnableDnsHostnames={"Value": True})
    wanted = {
        "VpcId": net.vpc,
        "ServiceName": STS,
        "VpcEndpointType": "Interface",
        "SubnetIds": net.subnets,
        "PrivateDnsEnabled": True,
        **more,
    }
    name: str = net.ec2.create_vpc_endpoint(**wanted)["VpcEndpoint"]["VpcEndpointId"]
    return name


def test_vpc_endpoint_delete_reports_a_bad_id_in_a_successful_response(net: Net) -> None:
    good = net.ec2.create_vpc_endpoint(VpcId=net.vpc, ServiceName=S3)["VpcEndpoint"]["VpcEndpointId"]
    bad = "vpce-0123456789abcdef0"
    failed = net.ec2.delete_vpc_endpoints(VpcEndpointIds=[bad, good])["Unsuccessful"]
    assert [(row["ResourceId"], row["Error"]["Code"]) for row in failed] == [
        (bad, "InvalidVpcEndpoint.NotFound")
    ]
    with refused("InvalidVpcEndpointId.NotFound"):
        net.ec2.describe_vpc_endpoints(VpcEndpointIds=[good])


@pytest.mark.parametrize("table_goes_first", [True, False])
def test_vpc_endpoint_gateway_is_deleted_with_its_routes(net: Net, *, table_goes_first: bool) -> None:
    table = net.table()
    made = net.ec2.create_vpc_endpoint(VpcId=net.vpc, ServiceName=S3, RouteTableIds=[table])["VpcEndpoint"]
    if table_goes_first:
        net.ec2.delete_route_table(RouteTableId=table)
    assert net.ec2.delete_vpc_endpoints(VpcEndpointIds=[made["VpcEndpointId"]])["Unsuccessful"] == []
    if not table_goes_first:
        routes = net.ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"]
        assert [route["GatewayId"] for route in routes] == ["local"]


def test_a_second_vpc_endpoint_with_private_dns_is_refused(net: Net) -> None:
    _interface_endpoint(net)
    with refused("InvalidParameter", "conflicting DNS domain"):
        _interface_endpoint(net)


def test_vpc_endpoint_with_private_dns_needs_host_names(net: Net) -> None:
    with refused("InvalidParameter", "enableDnsHostnames"):
        net.ec2.create_vpc_endpoint(
            VpcId=net.vpc, ServiceName=STS, VpcEndpointType="Interface", PrivateDnsEnabled=True
        )


def test_vpc_endpoint_with_two_subnets_in_a_zone_is_refused(net: Net) -> None:
    more = net.ec2.create_subnet(VpcId=net.vpc, CidrBlock="10.0.7.0/24", AvailabilityZone=ZONES[0])["Subnet"]
    with refused("DuplicateSubnetsInSameZone"):
        _interface_endpoint(net, SubnetIds=[net.subnets[0], more["SubnetId"]])


def test_vpc_endpoint_gateway_in_a_table_that_already_has_it_is_refused(net: Net) -> None:
    wanted = {"VpcId": net.vpc, "ServiceName": S3, "RouteTableIds": [net.table()]}
    net.ec2.create_vpc_endpoint(**wanted)
    with refused("RouteAlreadyExists"):
        net.ec2.create_vpc_endpoint(**wanted)


def test_vpc_interface_endpoint_takes_time_and_blocks_its_group_and_subnet(net: Net) -> None:
    group = net.group()
    name = _interface_endpoint(net, SecurityGroupIds=[group])

    def state() -> str:
        found: str = net.ec2.describe_vpc_endpoints(VpcEndpointIds=[name])["VpcEndpoints"][0]["State"]
        return found

    assert state() == "pending"
    net.aws.advance(60)
    assert state() == "available"
    net.ec2.delete_vpc_endpoints(VpcEndpointIds=[name])
    assert state() == "deleting"
    with refused("DependencyViolation"):
        net.ec2.delete_security_group(GroupId=group)
    with refused("DependencyViolation"):
        net.ec2.delete_subnet(SubnetId=net.subnets[0])
    net.aws.advance(60)
    with refused("InvalidVpcEndpointId.NotFound"):
        state()
    net.ec2.delete_security_group(GroupId=group)
    net.ec2.delete_subnet(SubnetId=net.subnets[0])


def test_security_group_delete_while_an_interface_uses_it_is_refused(net: Net) -> None:
    group = net.group()
    net.ec2.create_network_interface(SubnetId=net.subnets[0], Groups=[group])
    with refused("DependencyViolation"):
        net.ec2.delete_security_group(GroupId=group)


def test_security_group_delete_while_another_group_references_it_is_refused(net: Net) -> None:
    one, other = net.group("one"), net.group("other")
    net.let_in(one, other)
    net.let_in(other, one)
    net.let_in(one)
    for group in (one, other):
        with refused("DependencyViolation"):
            net.ec2.delete_security_group(GroupId=group)
    permission = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": one}]}
    net.ec2.revoke_security_group_ingress(GroupId=other, IpPermissions=[permission])
    net.ec2.delete_security_group(GroupId=one)
    net.ec2.delete_security_group(GroupId=other)


def test_security_group_call_with_an_existing_rule_is_refused_entirely(net: Net) -> None:
    group = net.group()
    everything = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    new = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "10.0.0.0/16"}]}
    with refused("InvalidPermission.Duplicate"):
        net.ec2.authorize_security_group_egress(GroupId=group, IpPermissions=[new, everything])
    rules = net.ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissionsEgress"]
    assert [rule["IpProtocol"] for rule in rules] == ["-1"]


def test_security_group_name_is_unique_regardless_of_case(net: Net) -> None:
    net.group("nodes")
    with refused("InvalidGroup.Duplicate"):
        net.group("Nodes")


def test_security_group_rule_with_a_missing_group_is_refused(net: Net) -> None:
    with refused("InvalidGroup.NotFound"):
        net.let_in(net.group(), "sg-0123456789abcdef0")


def test_network_interface_delete_while_in_use_is_refused(net: Net) -> None:
    _interface_endpoint(net)
    eni = net.ec2.describe_network_interfaces()["NetworkInterfaces"][0]["NetworkInterfaceId"]
    with refused("InvalidParameterValue", "currently in use"):
        net.ec2.delete_network_interface(NetworkInterfaceId=eni)


def test_an_available_network_interface_blocks_its_subnet_and_group_until_deleted(net: Net) -> None:
    group = net.group()
    made = net.ec2.create_network_interface(SubnetId=net.subnets[0], Groups=[group])["NetworkInterface"]
    with refused("DependencyViolation"):
        net.ec2.delete_subnet(SubnetId=net.subnets[0])
    net.ec2.delete_network_interface(NetworkInterfaceId=made["NetworkInterfaceId"])
    net.ec2.delete_subnet(SubnetId=net.subnets[0])
    net.ec2.delete_security_group(GroupId=group)
