"""Enforced permissions: a caller other than root has only the rights of its policies."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from cloudrec_sandbox.aws.services.permissions.policies import Wish, allows
from tests.sandbox.aws.support import CONFIG, Aws, refused, trust


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
        make: Any = boto3.client  # whatever the service
        return make(
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


def test_a_denied_call_has_the_error_of_the_service(aws: Aws, deployer: Any) -> None:
    ec2 = deployer("ec2", allow("ec2:Describe*"))
    ec2.describe_vpcs()
    with refused("UnauthorizedOperation", "ec2:CreateVpc"):
        ec2.create_vpc(CidrBlock="10.0.0.0/16")
    aws.client("ec2").create_vpc(CidrBlock="10.0.0.0/16")


def test_what_each_identity_uses_and_is_refused_is_recorded(aws: Aws, deployer: Any) -> None:
    ec2 = deployer("ec2", allow("ec2:DescribeVpcs"))
    aws.control(decisions={})
    ec2.describe_vpcs()
    with refused("UnauthorizedOperation"):
        ec2.create_vpc(CidrBlock="10.0.0.0/16")
    aws.client("ec2").describe_subnets()  # root's calls are not judged
    noted = {"used": ["ec2:DescribeVpcs"], "refused": ["ec2:CreateVpc"]}
    assert aws.ask("GET", "")["decisions"] == {"arn:aws:iam::123456789012:user/deployer": noted}
    aws.control(decisions={})
    assert aws.ask("GET", "")["decisions"] == {}


def test_a_list_below_a_prefix_has_its_condition_and_one_of_uploads_has_none(aws: Aws, deployer: Any) -> None:
    aws.client("s3").create_bucket(Bucket="bucket")
    below = {"Condition": {"StringLike": {"s3:prefix": "mine/*"}}}
    s3 = deployer("s3", allow("s3:ListBucket", "s3:ListBucketMultipartUploads", **below))
    s3.list_objects_v2(Bucket="bucket", Prefix="mine/a")
    for prefix in ({"Prefix": "theirs/"}, {}):
        with refused("AccessDenied", "s3:ListBucket"):
            s3.list_objects_v2(Bucket="bucket", **prefix)
    with refused("AccessDenied", "s3:ListBucketMultipartUploads"):
        s3.list_multipart_uploads(Bucket="bucket", Prefix="mine/a")


def test_tags_at_creation_need_a_separate_permission(deployer: Any) -> None:
    ec2 = deployer("ec2", allow("ec2:CreateVpc"))
    ec2.create_vpc(CidrBlock="10.0.0.0/16")
    spec = [{"ResourceType": "vpc", "Tags": [{"Key": "a", "Value": "b"}]}]
    with refused("UnauthorizedOperation", "ec2:CreateTags"):
        ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=spec)


def test_resources_and_conditions_of_policies_are_evaluated(deployer: Any) -> None:
    mine = allow("iam:CreateRole", "iam:TagRole", Resource="arn:aws:iam::123456789012:role/mine-*")
    tagged = {"StringEquals": {"aws:RequestTag/run": "1"}}
    iam = deployer("iam", mine | {"Condition": tagged})
    tags = [{"Key": "run", "Value": "1"}]
    iam.create_role(RoleName="mine-a", AssumeRolePolicyDocument=trust("eks"), Tags=tags)
    with refused("AccessDenied", "role/other"):
        iam.create_role(RoleName="other", AssumeRolePolicyDocument=trust("eks"), Tags=tags)
    with refused("AccessDenied", "role/mine-b"):
        iam.create_role(RoleName="mine-b", AssumeRolePolicyDocument=trust("eks"))


def test_passing_a_role_needs_the_permission_pass_role(deployer: Any) -> None:
    eks = deployer("eks", allow("eks:*"))
    with refused("AccessDeniedException", "iam:PassRole"):
        eks.create_cluster(
            name="one",
            roleArn="arn:aws:iam::123456789012:role/r",
            resourcesVpcConfig={"subnetIds": ["subnet-1"]},
        )


def test_attached_policies_are_evaluated_like_inline_ones(aws: Aws, deployer: Any) -> None:
    ec2 = deployer("ec2", allow("s3:*"))
    with refused("UnauthorizedOperation"):
        ec2.describe_vpcs()
    policy = "arn:aws:iam::aws:policy/AmazonEC2ReadOnlyAccess"
    aws.client("iam").attach_user_policy(UserName="deployer", PolicyArn=policy)
    ec2.describe_vpcs()


def test_a_deny_overrides_every_allow(deployer: Any) -> None:
    s3 = deployer("s3", allow("*"), {"Effect": "Deny", "Action": "s3:CreateBucket", "Resource": "*"})
    s3.list_buckets()
    with refused("AccessDenied", "s3:CreateBucket"):
        s3.create_bucket(Bucket="bucket")


def test_an_unknown_access_key_is_refused(aws: Aws) -> None:
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


def test_creating_a_bucket_needs_a_permission_for_each_setting(deployer: Any) -> None:
    # "Permissions" of CreateBucket in S3's API reference.
    s3 = deployer("s3", allow("s3:CreateBucket"))
    s3.create_bucket(Bucket="plain")
    with refused("AccessDenied", "s3:PutBucketOwnershipControls"):
        s3.create_bucket(Bucket="owned", ObjectOwnership="BucketOwnerEnforced")
    with refused("AccessDenied", "s3:TagResource"):
        s3.create_bucket(
            Bucket="tagged", CreateBucketConfiguration={"Tags": [{"Key": "cloudrec-cluster", "Value": "t"}]}
        )


def test_a_kms_key_can_be_deleted_by_a_permission_on_its_tags(aws: Aws, deployer: Any) -> None:
    tagged = {"StringLike": {"aws:ResourceTag/run": "*"}}
    kms = deployer("kms", allow("kms:ScheduleKeyDeletion") | {"Condition": tagged})
    admin = aws.client("kms")
    ours = admin.create_key(Tags=[{"TagKey": "run", "TagValue": "1"}])["KeyMetadata"]["KeyId"]
    theirs = admin.create_key()["KeyMetadata"]["KeyId"]
    kms.schedule_key_deletion(KeyId=ours)
    with refused("AccessDeniedException", theirs):
        kms.schedule_key_deletion(KeyId=theirs)


def test_every_resource_of_a_call_must_be_allowed(aws: Aws, deployer: Any) -> None:
    only = {"StringEquals": {"aws:ResourceTag/run": "1"}, "Null": {"aws:ResourceTag/run": "false"}}
    ec2 = deployer("ec2", allow("ec2:AttachInternetGateway") | {"Condition": only})
    admin = aws.client("ec2")
    vpc = admin.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    gateway = admin.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    admin.create_tags(Resources=[gateway], Tags=[{"Key": "run", "Value": "1"}])
    with refused("UnauthorizedOperation", vpc):
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    admin.create_tags(Resources=[vpc], Tags=[{"Key": "run", "Value": "1"}])
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)


def test_a_permissions_boundary_limits_the_rights_of_a_role(aws: Aws) -> None:
    iam = aws.client("iam")
    document = json.dumps({"Version": "2012-10-17", "Statement": [allow("ec2:DescribeVpcs")]})
    boundary = iam.create_policy(PolicyName="limit", PolicyDocument=document)["Policy"]["Arn"]
    role = iam.create_role(
        RoleName="wide", AssumeRolePolicyDocument=trust("ec2"), PermissionsBoundary=boundary
    )["Role"]["Arn"]
    iam.put_role_policy(
        RoleName="wide",
        PolicyName="all",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [allow("*")]}),
    )
    keys = aws.client("sts").assume_role(RoleArn=role, RoleSessionName="session")["Credentials"]
    aws.control(enforce_iam=True)
    ec2 = boto3.client(
        "ec2",
        endpoint_url=aws.endpoint,
        region_name="us-east-1",
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        config=CONFIG,
    )
    ec2.describe_vpcs()
    with refused("UnauthorizedOperation", "ec2:CreateVpc"):
        ec2.create_vpc(CidrBlock="10.0.0.0/16")


# IAM's user guide: "Condition operators", and "Multivalued context keys" for missing keys.
@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({"StringEquals": {"k": "a"}}, {"a": True, "b": False, None: False}),
        ({"StringNotEquals": {"k": "a"}}, {"a": False, "b": True, None: True}),
        ({"StringLike": {"k": "a*"}}, {"ab": True, "b": False, None: False}),
        ({"StringEqualsIfExists": {"k": "a"}}, {"a": True, "b": False, None: True}),
        ({"ForAllValues:StringEquals": {"k": ["a", "b"]}}, {"a": True, "c": False, None: True}),
        ({"ForAnyValue:StringLike": {"k": "a*"}}, {"ab": True, "c": False, None: False}),
        ({"Null": {"k": "true"}}, {"a": False, None: True}),
        ({"Bool": {"k": "true"}}, {"true": True, "True": True, "false": False, None: False}),
        (
            {"ArnLike": {"k": "arn:aws:iam::*:policy/b"}},
            {"arn:aws:iam::1:policy/b": True, "arn:aws:iam::1:policy/x:policy/b": False, None: False},
        ),
        ({"DateGreaterThan": {"k": "2020-01-01"}}, {"2021-01-01": False}),
    ],
)
def test_conditions_are_evaluated_as_in_the_iam_user_guide(
    condition: dict[str, Any], holds: dict[str | None, bool]
) -> None:
    document = {"Statement": [allow("s3:GetObject") | {"Condition": condition}]}
    for value, expected in holds.items():
        facts = {} if value is None else {"k": [value]}
        assert allows([document], Wish(action="s3:GetObject", facts=facts)) is expected, (condition, value)
