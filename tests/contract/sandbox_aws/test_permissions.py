"""Permissions on order: a caller who is not root may do what policies say and nothing else."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from tests.contract.sandbox_aws.support import CONFIG, Aws, refused, trust


@pytest.fixture
def deployer(aws: Aws) -> Any:
    """Makes boto3 clients of a user with the given statements."""

    def client(service: str, *statements: dict[str, Any]) -> Any:
        iam = aws.client("iam")
        iam.create_user(UserName="deployer")
        document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
        iam.put_user_policy(UserName="deployer", PolicyName="all", PolicyDocument=document)
        key = iam.create_access_key(UserName="deployer")["AccessKey"]
        aws.control(enforce_iam=True)
        return boto3.client(
            service,
            endpoint_url=aws.endpoint,
            region_name="us-east-1",
            aws_access_key_id=key["AccessKeyId"],
            aws_secret_access_key=key["SecretAccessKey"],
            config=CONFIG,
        )

    return client


def allow(*actions: str, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": list(actions), "Resource": "*"} | more


def test_what_no_policy_allows_is_refused_in_the_services_words(aws: Aws, deployer: Any) -> None:
    ec2 = deployer("ec2", allow("ec2:Describe*"))
    ec2.describe_vpcs()
    with refused("UnauthorizedOperation", "ec2:CreateVpc"):
        ec2.create_vpc(CidrBlock="10.0.0.0/16")
    aws.client("ec2").create_vpc(CidrBlock="10.0.0.0/16")


def test_tags_at_creation_need_a_permission_of_their_own(deployer: Any) -> None:
    ec2 = deployer("ec2", allow("ec2:CreateVpc"))
    ec2.create_vpc(CidrBlock="10.0.0.0/16")
    spec = [{"ResourceType": "vpc", "Tags": [{"Key": "a", "Value": "b"}]}]
    with refused("UnauthorizedOperation", "ec2:CreateTags"):
        ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=spec)


def test_resources_and_conditions_are_looked_at(deployer: Any) -> None:
    mine = allow("iam:CreateRole", Resource="arn:aws:iam::123456789012:role/mine-*")
    tagged = {"StringEquals": {"aws:RequestTag/run": "1"}}
    iam = deployer("iam", mine | {"Condition": tagged})
    tags = [{"Key": "run", "Value": "1"}]
    iam.create_role(RoleName="mine-a", AssumeRolePolicyDocument=trust("eks"), Tags=tags)
    with refused("AccessDenied", "role/other"):
        iam.create_role(RoleName="other", AssumeRolePolicyDocument=trust("eks"), Tags=tags)
    with refused("AccessDenied", "role/mine-b"):
        iam.create_role(RoleName="mine-b", AssumeRolePolicyDocument=trust("eks"))


def test_a_role_is_handed_over_only_by_who_may_pass_it(deployer: Any) -> None:
    eks = deployer("eks", allow("eks:*"))
    with refused("AccessDeniedException", "iam:PassRole"):
        eks.create_cluster(
            name="one",
            roleArn="arn:aws:iam::123456789012:role/r",
            resourcesVpcConfig={"subnetIds": ["subnet-1"]},
        )


def test_attached_policies_count_like_inline_ones(aws: Aws, deployer: Any) -> None:
    ec2 = deployer("ec2", allow("s3:*"))
    with refused("UnauthorizedOperation"):
        ec2.describe_vpcs()
    policy = "arn:aws:iam::aws:policy/AmazonEC2ReadOnlyAccess"
    aws.client("iam").attach_user_policy(UserName="deployer", PolicyArn=policy)
    ec2.describe_vpcs()


def test_a_deny_outdoes_every_allow(deployer: Any) -> None:
    s3 = deployer("s3", allow("*"), {"Effect": "Deny", "Action": "s3:CreateBucket", "Resource": "*"})
    s3.list_buckets()
    with refused("AccessDenied", "s3:CreateBucket"):
        s3.create_bucket(Bucket="bucket")


def test_a_key_of_nobody_is_refused(aws: Aws) -> None:
    aws.control(enforce_iam=True)
    stranger = boto3.client(
        "iam",
        endpoint_url=aws.endpoint,
        region_name="us-east-1",
        aws_access_key_id="AKIANOBODY0000000000",
        aws_secret_access_key=aws.env["AWS_SECRET_ACCESS_KEY"],
        config=CONFIG,
    )
    with refused("InvalidClientTokenId"):
        stranger.list_roles()
