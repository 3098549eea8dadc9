"""Internet gateways, NAT gateways and elastic addresses; names begin with the kind of thing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.aws.support import Aws, refused
from tests.sandbox.aws.support_ec2 import Net, make_net

NAT_CREATE_S, NAT_DELETE_S, RELEASE_S, DETACH_S = 120, 60, 20, 30


@pytest.fixture
def net(aws: Aws) -> Net:
    return make_net(aws)


def test_internet_gateway_detach_is_refused_until_some_time_after_addresses_are_unmapped(
    net: Net,
) -> None:
    nat = net.nat()
    with refused("DependencyViolation", "mapped public address"):
        net.ec2.detach_internet_gateway(InternetGatewayId=net.igw, VpcId=net.vpc)
    net.ec2.delete_nat_gateway(NatGatewayId=nat)
    net.aws.advance(NAT_DELETE_S)
    with refused("DependencyViolation", "mapped public address"):
        net.ec2.detach_internet_gateway(InternetGatewayId=net.igw, VpcId=net.vpc)
    net.aws.advance(DETACH_S)
    net.ec2.detach_internet_gateway(InternetGatewayId=net.igw, VpcId=net.vpc)


def test_internet_gateway_attach_twice_is_refused(net: Net) -> None:
    with refused("Resource.AlreadyAssociated"):
        net.ec2.attach_internet_gateway(InternetGatewayId=net.igw, VpcId=net.vpc)
    other = net.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    with refused("Resource.AlreadyAssociated"):
        net.ec2.attach_internet_gateway(InternetGatewayId=other, VpcId=net.vpc)


def test_internet_gateway_delete_while_attached_is_refused(net: Net) -> None:
    with refused("DependencyViolation"):
        net.ec2.delete_internet_gateway(InternetGatewayId=net.igw)


def test_nat_gateway_without_an_internet_gateway_fails_later(net: Net) -> None:
    net.ec2.detach_internet_gateway(InternetGatewayId=net.igw, VpcId=net.vpc)
    _fails_later(net, net.nat(), "Gateway.NotAttached")


def test_nat_gateway_with_a_missing_address_fails_later(net: Net) -> None:
    _fails_later(net, net.nat(AllocationId="eipalloc-0123456789abcdef0"), "InvalidAllocationID.NotFound")


def test_nat_gateway_with_an_address_in_use_fails_later(net: Net) -> None:
    net.nat()
    _fails_later(net, net.nat(SubnetId=net.subnets[1]), "Resource.AlreadyAssociated")


def test_nat_gateway_in_a_full_subnet_fails_later(net: Net) -> None:
    small = net.ec2.create_subnet(VpcId=net.vpc, CidrBlock="10.0.8.0/28")["Subnet"]["SubnetId"]
    for _ in range(11):
        net.ec2.create_network_interface(SubnetId=small)
    _fails_later(net, net.nat(SubnetId=small), "InsufficientFreeAddressesInSubnet")


def _fails_later(net: Net, nat: str, code: str) -> None:
    assert net.nat_row(nat)["State"] == "pending"
    net.aws.advance(NAT_CREATE_S)
    row = net.nat_row(nat)
    assert (row["State"], row["FailureCode"]) == ("failed", code)


def test_nat_gateway_lifecycle_and_its_row_after_deletion(net: Net) -> None:
    nat = net.nat(TagSpecifications=[{"ResourceType": "natgateway", "Tags": [{"Key": "run", "Value": "a"}]}])
    assert net.nat_row(nat)["State"] == "pending"
    net.aws.advance(NAT_CREATE_S)
    assert net.nat_row(nat)["State"] == "available"
    net.ec2.delete_nat_gateway(NatGatewayId=nat)
    assert net.nat_row(nat)["State"] == "deleting"
    net.aws.advance(NAT_DELETE_S)
    filters = [{"Name": "tag:run", "Values": ["a"]}]
    rows = net.ec2.describe_nat_gateways(Filters=filters)["NatGateways"]
    assert [(row["NatGatewayId"], row["State"]) for row in rows] == [(nat, "deleted")]
    filters.append({"Name": "state", "Values": ["pending", "available"]})
    assert net.ec2.describe_nat_gateways(Filters=filters)["NatGateways"] == []
    net.aws.advance(3600)
    with refused("NatGatewayNotFound"):
        net.nat_row(nat)


def test_nat_gateway_without_a_duration_is_available_at_once(net: Net) -> None:
    net.aws.control(durations={"nat": 0})
    nat = net.nat()
    assert net.nat_row(nat)["State"] == "available"
    net.ec2.delete_nat_gateway(NatGatewayId=nat)
    assert net.nat_row(nat)["State"] == "deleted"


def test_nat_gateway_delete_keeps_the_address_and_makes_routes_blackholes(net: Net) -> None:
    nat, table = net.nat(), net.table()
    net.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)
    net.ec2.delete_nat_gateway(NatGatewayId=nat)
    assert "AssociationId" in _address(net)
    net.aws.advance(NAT_DELETE_S)
    assert "AssociationId" not in _address(net)
    routes = net.ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"]
    assert {route["DestinationCidrBlock"]: route["State"] for route in routes} == {
        "10.0.0.0/16": "active",
        "0.0.0.0/0": "blackhole",
    }


def _address(net: Net) -> dict[str, Any]:
    row: dict[str, Any] = net.ec2.describe_addresses(AllocationIds=[net.address])["Addresses"][0]
    return row


def test_a_missing_nat_gateway_has_two_error_codes(net: Net) -> None:
    missing = "nat-0123456789abcdef0"
    with refused("NatGatewayNotFound"):
        net.nat_row(missing)
    with refused("InvalidNatGatewayID.NotFound"):
        net.ec2.create_route(RouteTableId=net.table(), DestinationCidrBlock="0.0.0.0/0", NatGatewayId=missing)


def test_elastic_ip_release_after_its_nat_gateway_is_refused_with_a_permission_error(net: Net) -> None:
    nat = net.nat()
    net.aws.advance(NAT_CREATE_S)
    net.ec2.delete_nat_gateway(NatGatewayId=nat)
    for seconds in (NAT_DELETE_S, RELEASE_S):
        with refused("AuthFailure", "permission"):
            net.ec2.release_address(AllocationId=net.address)
        net.aws.advance(seconds)
    net.ec2.release_address(AllocationId=net.address)


def test_elastic_ip_release_in_use_and_twice_is_refused(net: Net) -> None:
    eni = net.ec2.create_network_interface(SubnetId=net.subnets[0])["NetworkInterface"]["NetworkInterfaceId"]
    link = net.ec2.associate_address(AllocationId=net.address, NetworkInterfaceId=eni)["AssociationId"]
    with refused("InvalidIPAddress.InUse"):
        net.ec2.release_address(AllocationId=net.address)
    net.ec2.disassociate_address(AssociationId=link)
    net.ec2.release_address(AllocationId=net.address)
    with refused("InvalidAllocationID.NotFound"):
        net.ec2.release_address(AllocationId=net.address)
