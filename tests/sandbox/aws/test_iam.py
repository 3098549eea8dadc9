"""Roles, profiles and policies: what IAM refuses. (How it lags is tested where other services meet it.)"""

from __future__ import annotations

import json

import pytest

from tests.sandbox.aws.support import Aws, refused, trust
from tests.sandbox.aws.support_eks import CLUSTER_POLICY, role

DOCUMENT = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}
)


def trust_in(arn: str) -> str:
    statement = {"Effect": "Allow", "Principal": {"AWS": arn}, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def test_a_role_name_is_unique(aws: Aws) -> None:
    role(aws, "one", "eks")
    with refused("EntityAlreadyExists"):
        role(aws, "one", "eks")


def test_a_trust_policy_with_a_missing_or_new_principal_is_refused(aws: Aws) -> None:
    iam = aws.client("iam")
    friend = role(aws, "friend", "eks")
    for arn in ("arn:aws:iam::123456789012:role/nobody", friend):
        with refused("MalformedPolicyDocument", "Invalid principal"):
            iam.create_role(RoleName="one", AssumeRolePolicyDocument=trust_in(arn))
    aws.advance(8)
    iam.create_role(RoleName="one", AssumeRolePolicyDocument=trust_in(friend))
    with refused("MalformedPolicyDocument", "Invalid principal"):
        iam.update_assume_role_policy(RoleName="friend", PolicyDocument=trust_in(f"{friend}s"))


@pytest.mark.parametrize("holder", ["attached policy", "inline policy", "profile"])
def test_a_role_is_deleted_only_without_dependents(aws: Aws, holder: str) -> None:
    iam = aws.client("iam")
    role(aws, "one", "ec2")
    if holder == "attached policy":
        iam.attach_role_policy(RoleName="one", PolicyArn=CLUSTER_POLICY)
    elif holder == "inline policy":
        iam.put_role_policy(RoleName="one", PolicyName="p", PolicyDocument=DOCUMENT)
    else:
        iam.create_instance_profile(InstanceProfileName="p")
        iam.add_role_to_instance_profile(InstanceProfileName="p", RoleName="one")
    with refused("DeleteConflict"):
        iam.delete_role(RoleName="one")


def test_an_instance_profile_has_one_role_and_is_deleted_only_when_empty(aws: Aws) -> None:
    iam = aws.client("iam")
    role(aws, "one", "ec2")
    role(aws, "two", "ec2")
    iam.create_instance_profile(InstanceProfileName="p")
    iam.add_role_to_instance_profile(InstanceProfileName="p", RoleName="one")
    with refused("LimitExceeded"):
        iam.add_role_to_instance_profile(InstanceProfileName="p", RoleName="two")
    with refused("DeleteConflict"):
        iam.delete_instance_profile(InstanceProfileName="p")
    iam.remove_role_from_instance_profile(InstanceProfileName="p", RoleName="one")
    iam.delete_instance_profile(InstanceProfileName="p")


def test_a_policy_is_deleted_only_when_unattached_and_with_one_version(aws: Aws) -> None:
    iam = aws.client("iam")
    role(aws, "one", "ec2")
    arn = iam.create_policy(PolicyName="p", PolicyDocument=DOCUMENT)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName="one", PolicyArn=arn)
    with refused("DeleteConflict", "attached"):
        iam.delete_policy(PolicyArn=arn)
    iam.detach_role_policy(RoleName="one", PolicyArn=arn)
    iam.create_policy_version(PolicyArn=arn, PolicyDocument=DOCUMENT)
    with refused("DeleteConflict", "version"):
        iam.delete_policy(PolicyArn=arn)
    for _ in range(3):
        iam.create_policy_version(PolicyArn=arn, PolicyDocument=DOCUMENT)
    with refused("LimitExceeded"):
        iam.create_policy_version(PolicyArn=arn, PolicyDocument=DOCUMENT)


def test_a_service_principal_is_trusted_at_once(aws: Aws) -> None:
    aws.client("iam").create_role(RoleName="one", AssumeRolePolicyDocument=trust("eks"))
