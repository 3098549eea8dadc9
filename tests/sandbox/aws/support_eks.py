"""A network, roles and clusters to try EKS with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.sandbox.aws.support import ZONES, Aws, trust

CLUSTER_POLICY = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
NODE_POLICIES = (
    "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy",
    "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryPullOnly",
    "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy",
)


@dataclass(frozen=True)
class Ground:
    """The resources that a cluster needs."""

    vpc: str
    subnets: list[str]
    cluster_role: str
    node_role: str
    route_table: str


def role(aws: Aws, name: str, service: str, *policies: str, actions: tuple[str, ...] = ()) -> str:
    iam = aws.client("iam")
    arn: str = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust(service, *actions))["Role"][
        "Arn"
    ]
    for policy in policies:
        iam.attach_role_policy(RoleName=name, PolicyArn=policy)
    return arn


def pod_role(aws: Aws, name: str = "pods") -> str:
    return role(aws, name, "pods.eks", actions=("sts:AssumeRole", "sts:TagSession"))


def ground(aws: Aws) -> Ground:
    """A VPC with two public subnets, an internet gateway, and roles old enough to be used."""
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    subnets = []
    for number, zone in enumerate(ZONES):
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone=zone)
        subnets.append(subnet["Subnet"]["SubnetId"])
        ec2.modify_subnet_attribute(SubnetId=subnets[-1], MapPublicIpOnLaunch={"Value": True})
        ec2.associate_route_table(RouteTableId=table, SubnetId=subnets[-1])
    made = Ground(
        vpc=vpc,
        subnets=subnets,
        cluster_role=role(aws, "cluster", "eks", CLUSTER_POLICY),
        node_role=role(aws, "node", "ec2", *NODE_POLICIES),
        route_table=table,
    )
    aws.control(durations={"eks-service-role": 0}, quotas={"ec2/L-1216C47A": 1000, "ec2/L-34B43A08": 1000})
    aws.advance(10)
    return made


def create_cluster(aws: Aws, base: Ground, name: str = "one", **more: Any) -> dict[str, Any]:
    config = {"subnetIds": base.subnets} | more.pop("resourcesVpcConfig", {})
    wish = {"accessConfig": {"authenticationMode": "API"}} | more
    made: dict[str, Any] = aws.client("eks").create_cluster(
        name=name, roleArn=base.cluster_role, resourcesVpcConfig=config, **wish
    )["cluster"]
    return made


def active_cluster(aws: Aws, base: Ground, name: str = "one", **more: Any) -> None:
    create_cluster(aws, base, name, **more)
    aws.advance(600)


def create_nodegroup(aws: Aws, base: Ground, name: str = "cpu", **more: Any) -> dict[str, Any]:
    wish: dict[str, Any] = {
        "clusterName": "one",
        "nodegroupName": name,
        "subnets": base.subnets[:1],
        "nodeRole": base.node_role,
        "scalingConfig": {"minSize": 0, "maxSize": 4, "desiredSize": 2},
    }
    if "launchTemplate" not in more:
        wish["instanceTypes"] = ["m5.large"]
    made: dict[str, Any] = aws.client("eks").create_nodegroup(**(wish | more))["nodegroup"]
    return made


def nodegroup(aws: Aws, name: str = "cpu") -> dict[str, Any]:
    found: dict[str, Any] = aws.client("eks").describe_nodegroup(clusterName="one", nodegroupName=name)[
        "nodegroup"
    ]
    return found
