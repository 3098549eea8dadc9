"""Simulated eventual consistency of ids, lists and the tagging API."""

from __future__ import annotations

import pytest

from tests.sandbox.aws.support import Aws, refused

TAGS = [{"Key": "run", "Value": "1"}]
MINE = [{"Name": "tag:run", "Values": ["1"]}]


def make_vpc(aws: Aws) -> str:
    spec = [{"ResourceType": "vpc", "Tags": TAGS}]
    return str(aws.client("ec2").create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=spec)["Vpc"]["VpcId"])


def listed(aws: Aws) -> list[str]:
    return [vpc["VpcId"] for vpc in aws.client("ec2").describe_vpcs(Filters=MINE)["Vpcs"]]


def tagged(aws: Aws) -> list[str]:
    found = aws.client("resourcegroupstaggingapi").get_resources(TagFilters=[{"Key": "run", "Values": ["1"]}])
    return [row["ResourceARN"].rpartition("/")[2] for row in found["ResourceTagMappingList"]]


def test_a_new_id_is_not_found_by_calls_that_use_it(aws: Aws) -> None:
    aws.control(lag_s={"ids": 5})
    ec2, vpc = aws.client("ec2"), make_vpc(aws)
    with refused("InvalidVpcID.NotFound", vpc):
        ec2.describe_vpcs(VpcIds=[vpc])
    with refused("InvalidVpcID.NotFound"):
        ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")
    aws.advance(5)
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    with refused("InvalidSubnetID.NotFound", subnet):
        ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})


def test_a_late_list_omits_new_resources_and_shows_deleted_ones(aws: Aws) -> None:
    aws.control(lag_s={"lists": 10})
    vpc = make_vpc(aws)
    assert listed(aws) == []
    assert aws.client("ec2").describe_vpcs(VpcIds=[vpc])["Vpcs"][0]["VpcId"] == vpc
    aws.advance(10)
    assert listed(aws) == [vpc]
    aws.client("ec2").delete_vpc(VpcId=vpc)
    assert listed(aws) == [vpc]
    assert aws.client("ec2").describe_vpcs(Filters=[{"Name": "tag:run", "Values": ["2"]}])["Vpcs"] == []
    aws.advance(10)
    assert listed(aws) == []


def test_the_tagging_api_is_eventually_consistent(aws: Aws) -> None:
    aws.control(lag_s={"tags": 20})
    vpc = make_vpc(aws)
    assert tagged(aws) == []
    aws.advance(20)
    assert tagged(aws) == [vpc]
    aws.client("ec2").delete_vpc(VpcId=vpc)
    assert tagged(aws) == [vpc]
    aws.advance(20)
    assert tagged(aws) == []
    assert [line["action"] for line in aws.calls()].count("GetResources") == 4


def test_only_eventually_consistent_calls_are_late(aws: Aws) -> None:
    with pytest.raises(ValueError, match="nothing lags by moon"):
        aws.control(lag_s={"moon": 1})
