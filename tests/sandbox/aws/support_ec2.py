"""A network to try refusals in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.sandbox.aws.support import ZONES, Aws


@dataclass
class Net:
    """A VPC with a subnet in each of two zones, an internet gateway and an elastic address."""

    aws: Aws
    vpc: str
    subnets: list[str]
    igw: str
    address: str

    @property
    def ec2(self) -> Any:
        return self.aws.client("ec2")

    def nat(self, **more: Any) -> str:
        wanted = {"SubnetId": self.subnets[0], "AllocationId": self.address, **more}
        gateway: str = self.ec2.create_nat_gateway(**wanted)["NatGateway"]["NatGatewayId"]
        return gateway

    def nat_row(self, name: str) -> dict[str, Any]:
        row: dict[str, Any] = self.ec2.describe_nat_gateways(NatGatewayIds=[name])["NatGateways"][0]
        return row

    def group(self, name: str = "group") -> str:
        made = self.ec2.create_security_group(GroupName=name, Description=name, VpcId=self.vpc)
        group: str = made["GroupId"]
        return group

    def table(self) -> str:
        table: str = self.ec2.create_route_table(VpcId=self.vpc)["RouteTable"]["RouteTableId"]
        return table

    def let_in(self, group: str, source: str | None = None, protocol: str = "-1", port: int = 0) -> None:
        permission: dict[str, Any] = {
            "IpProtocol": protocol,
            "UserIdGroupPairs": [{"GroupId": source or group}],
        }
        if protocol != "-1":
            permission |= {"FromPort": port, "ToPort": port}
        self.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[permission])


def make_net(aws: Aws) -> Net:
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{at}.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for at, zone in enumerate(ZONES)
    ]
    igw = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=igw, VpcId=vpc)
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    return Net(aws=aws, vpc=vpc, subnets=subnets, igw=igw, address=address)
