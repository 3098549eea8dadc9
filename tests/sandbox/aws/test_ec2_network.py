"""VPCs, subnets, route tables, tags and what holds for all of EC2; names begin with the kind of thing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sandbox.aws.support import Aws, refused
from tests.sandbox.aws.support_ec2 import Net, make_net

S3 = "com.amazonaws.us-east-1.s3"


@pytest.fixture
def net(aws: Aws) -> Net:
    return make_net(aws)


def test_a_second_create_call_creates_a_second_object(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    made = [ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"] for _ in range(2)]
    assert made[0] != made[1]


def test_a_client_token_with_the_same_parameters_creates_one_object(net: Net) -> None:
    made = [
        net.ec2.create_route_table(VpcId=net.vpc, ClientToken="once")["RouteTable"]["RouteTableId"]
        for _ in range(2)
    ]
    assert made[0] == made[1]


def test_a_client_token_with_other_parameters_is_refused(net: Net) -> None:
    net.ec2.create_nat_gateway(SubnetId=net.subnets[0], AllocationId=net.address, ClientToken="once")
    with refused("IdempotentParameterMismatch"):
        net.ec2.create_nat_gateway(SubnetId=net.subnets[1], AllocationId=net.address, ClientToken="once")


@pytest.mark.parametrize("name", ["x" * 256, "sg-mine", "smörgås"])
def test_an_invalid_name_is_refused(net: Net, name: str) -> None:
    with refused("InvalidParameterValue"):
        net.ec2.create_security_group(GroupName=name, Description="d", VpcId=net.vpc)


@pytest.mark.parametrize(
    "tags",
    [
        [{"Key": "aws:mine", "Value": ""}],
        [{"Key": "k" * 129, "Value": ""}],
        [{"Key": "k", "Value": "v" * 257}],
    ],
    ids=["reserved", "long key", "long value"],
)
def test_an_invalid_tag_is_refused(aws: Aws, tags: list[dict[str, str]]) -> None:
    with refused("InvalidParameterValue"):
        aws.client("ec2").create_vpc(
            CidrBlock="10.0.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": tags}]
        )


def test_a_tag_for_another_resource_type_is_refused(aws: Aws) -> None:
    with refused("InvalidParameterValue", "'subnet' is not a valid taggable resource type"):
        aws.client("ec2").create_vpc(
            CidrBlock="10.0.0.0/16",
            TagSpecifications=[{"ResourceType": "subnet", "Tags": [{"Key": "a", "Value": "1"}]}],
        )


def test_a_dry_run_creates_nothing(aws: Aws) -> None:
    before = aws.state()
    with refused("DryRunOperation"):
        aws.client("ec2").create_vpc(CidrBlock="10.0.0.0/16", DryRun=True)
    assert aws.state() == before


def test_the_vpc_quota_counts_the_default_vpc(aws: Aws) -> None:
    aws.control(quotas={"vpc/L-F678F1CE": 2})
    aws.client("ec2").create_vpc(CidrBlock="10.0.0.0/16")
    with refused("VpcLimitExceeded"):
        aws.client("ec2").create_vpc(CidrBlock="10.1.0.0/16")


def test_the_address_quota_is_enforced(aws: Aws) -> None:
    aws.control(quotas={"ec2/L-0263D0A3": 1})
    aws.client("ec2").allocate_address(Domain="vpc")
    with refused("AddressLimitExceeded"):
        aws.client("ec2").allocate_address(Domain="vpc")


def test_the_rule_quota_is_enforced(net: Net) -> None:
    net.aws.control(quotas={"vpc/L-0EA8095F": 1})
    group = net.group()
    net.let_in(group, protocol="tcp", port=80)
    with refused("RulesPerSecurityGroupLimitExceeded"):
        net.let_in(group, protocol="tcp", port=81)


def _bare_vpc(aws: Aws) -> str:
    vpc: str = aws.client("ec2").create_vpc(CidrBlock="10.2.0.0/16")["Vpc"]["VpcId"]
    return vpc


def _put_igw(ec2: Any, vpc: str) -> None:
    igw = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=igw, VpcId=vpc)


@pytest.mark.parametrize(
    "put",
    [
        pytest.param(_put_igw, id="internet gateway"),
        pytest.param(lambda ec2, vpc: ec2.create_subnet(VpcId=vpc, CidrBlock="10.2.0.0/24"), id="subnet"),
        pytest.param(lambda ec2, vpc: ec2.create_route_table(VpcId=vpc), id="route table"),
        pytest.param(lambda ec2, vpc: ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=S3), id="endpoint"),
        pytest.param(
            lambda ec2, vpc: ec2.create_security_group(GroupName="g", Description="g", VpcId=vpc),
            id="security group",
        ),
    ],
)
def test_vpc_delete_with_dependents_is_refused(aws: Aws, put: Any) -> None:
    ec2, vpc = aws.client("ec2"), _bare_vpc(aws)
    put(ec2, vpc)
    with refused("DependencyViolation"):
        ec2.delete_vpc(VpcId=vpc)


def test_vpc_delete_of_an_empty_one(aws: Aws) -> None:
    before = aws.state()
    aws.client("ec2").delete_vpc(VpcId=_bare_vpc(aws))
    assert aws.state() == before


@pytest.mark.parametrize("block", ["10.0.0.0/15", "10.0.0.0/29"])
def test_vpc_create_with_a_wrong_block_size_is_refused(aws: Aws, block: str) -> None:
    with refused("InvalidVpc.Range"):
        aws.client("ec2").create_vpc(CidrBlock=block)


def test_vpc_create_clears_host_bits(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="100.68.0.18/18")["Vpc"]
    assert vpc["CidrBlock"] == "100.68.0.0/18"
    assert ec2.describe_vpcs(VpcIds=[vpc["VpcId"]])["Vpcs"][0]["CidrBlock"] == "100.68.0.0/18"


def test_subnet_delete_with_an_interface_inside_is_refused(net: Net) -> None:
    net.nat()
    with refused("DependencyViolation"):
        net.ec2.delete_subnet(SubnetId=net.subnets[0])


def test_subnet_delete_deletes_its_association(net: Net) -> None:
    table = net.table()
    net.ec2.associate_route_table(RouteTableId=table, SubnetId=net.subnets[0])
    net.ec2.delete_subnet(SubnetId=net.subnets[0])
    net.ec2.delete_route_table(RouteTableId=table)


def test_subnet_create_that_overlaps_is_refused(net: Net) -> None:
    with refused("InvalidSubnet.Conflict"):
        net.ec2.create_subnet(VpcId=net.vpc, CidrBlock="10.0.0.128/25")


def test_subnet_create_in_a_zone_of_another_region_is_refused(net: Net) -> None:
    with refused("InvalidParameterValue", "us-east-1a"):
        net.ec2.create_subnet(VpcId=net.vpc, CidrBlock="10.0.9.0/24", AvailabilityZone="eu-west-1a")


def test_route_table_delete_with_a_subnet_or_of_the_main_one_is_refused(net: Net) -> None:
    table = net.table()
    net.ec2.associate_route_table(RouteTableId=table, SubnetId=net.subnets[0])
    main = net.ec2.describe_route_tables(
        Filters=[{"Name": "vpc-id", "Values": [net.vpc]}, {"Name": "association.main", "Values": ["true"]}]
    )["RouteTables"][0]["RouteTableId"]
    for name in (table, main):
        with refused("DependencyViolation"):
            net.ec2.delete_route_table(RouteTableId=name)


def test_route_table_route_that_exists_is_refused(net: Net) -> None:
    table = net.table()
    route = {"RouteTableId": table, "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": net.igw}
    net.ec2.create_route(**route)
    with refused("RouteAlreadyExists"):
        net.ec2.create_route(**route)


def test_route_table_second_association_of_a_subnet_is_refused(net: Net) -> None:
    net.ec2.associate_route_table(RouteTableId=net.table(), SubnetId=net.subnets[0])
    with refused("Resource.AlreadyAssociated"):
        net.ec2.associate_route_table(RouteTableId=net.table(), SubnetId=net.subnets[0])


def test_tags_are_reported_by_kind_key_and_value(net: Net) -> None:
    net.ec2.create_tags(Resources=[net.address, net.vpc], Tags=[{"Key": "run", "Value": "a"}])
    filters = [{"Name": "tag:run", "Values": ["a"]}, {"Name": "resource-type", "Values": ["elastic-ip"]}]
    assert net.ec2.describe_tags(Filters=filters)["Tags"] == [
        {"Key": "run", "Value": "a", "ResourceId": net.address, "ResourceType": "elastic-ip"}
    ]


def test_the_tagging_api_lists_every_tagged_resource(net: Net) -> None:
    tags = [{"Key": "cloudrec:cluster", "Value": "a"}]

    def tagged(kind: str) -> dict[str, Any]:
        return {"TagSpecifications": [{"ResourceType": kind, "Tags": tags}]}

    net.ec2.create_launch_template(
        LaunchTemplateName="gpu",
        LaunchTemplateData={"InstanceType": "g5.xlarge"},
        **tagged("launch-template"),
    )
    net.ec2.create_vpc_endpoint(VpcId=net.vpc, ServiceName=S3, **tagged("vpc-endpoint"))
    net.ec2.allocate_address(Domain="vpc", **tagged("elastic-ip"))
    net.ec2.create_placement_group(GroupName="pg", Strategy="cluster", **tagged("placement-group"))
    net.nat(**tagged("natgateway"))
    net.aws.client("ecr").create_repository(repositoryName="train", tags=tags)
    net.aws.client("logs").create_log_group(logGroupName="/train", tags={"cloudrec:cluster": "a"})
    net.aws.client("kms").create_key(Tags=[{"TagKey": "cloudrec:cluster", "TagValue": "a"}])
    s3 = net.aws.client("s3")
    s3.create_bucket(Bucket="tagged-bucket")
    s3.put_bucket_tagging(Bucket="tagged-bucket", Tagging={"TagSet": tags})
    pages = net.aws.client("resourcegroupstaggingapi").get_paginator("get_resources")
    arns = [
        thing["ResourceARN"]
        for page in pages.paginate(
            TagFilters=[{"Key": "cloudrec:cluster", "Values": ["a"]}], PaginationConfig={"PageSize": 2}
        )
        for thing in page["ResourceTagMappingList"]
    ]
    kinds = {
        arn.split(":", 2)[2].split(":")[0] + ":" + arn.split(":", 5)[5].replace("/", ":").split(":")[0]
        for arn in arns
    }
    assert kinds == {
        "ec2:launch-template",
        "ec2:vpc-endpoint",
        "ec2:elastic-ip",
        "ec2:placement-group",
        "ec2:natgateway",
        "ecr:repository",
        "logs:log-group",
        "kms:key",
        "s3:tagged-bucket",
    }, json.dumps(arns)
