"""No identity of a cluster gets more permissions: its policies or its boundary refuse known paths of IAM.

The paths are those of Rhino Security Labs ("AWS IAM Privilege Escalation - Methods and Mitigation"), and
those of EKS, S3, KMS and EventBridge Scheduler. The stand-in evaluates policy and boundary of each call
as IAM's "Policy evaluation logic" defines.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.contract.aws.support_identities import (
    ACCOUNT,
    IDENTITIES,
    OURS,
    REGION,
    THEIRS,
    AwsEstate,
    RoleIdentity,
    is_denied,
)
from tests.contract.aws.support_policies import ACCOUNT_ONLY, BOUNDARY

ADMIN, KEEPER = f"arn:aws:iam::{ACCOUNT}:role/admin", f"arn:aws:iam::{ACCOUNT}:policy/{BOUNDARY}"
EVERYTHING = "arn:aws:iam::aws:policy/AdministratorAccess"
ALL = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
)
_TRUST = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "sts:AssumeRole"}
OPEN = json.dumps({"Version": "2012-10-17", "Statement": [_TRUST]})
ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
CLUSTER, OTHER = f"cloudrec-{OURS}", f"cloudrec-{THEIRS}"
BUCKET = f"{OTHER}-{ACCOUNT}-{REGION}"
TARGET = {"Arn": "arn:aws:scheduler:::aws-sdk:iam:createAccessKey", "RoleArn": ADMIN, "Input": "{}"}
PHRASE = "Long-enough-4-IAM"
AT = {"ScheduleExpression": "at(2030-01-01T00:00:00)", "FlexibleTimeWindow": {"Mode": "OFF"}}


@dataclass(frozen=True)
class Escalation:
    """A call that leads to more permissions: its service, the actions that it needs, and the call itself."""

    service: str
    needs: tuple[str, ...]
    call: Callable[[Any, Planted], Any]


@dataclass(frozen=True, kw_only=True)
class Planted:
    """What an administrator has in the account; `role` is the role of the identity that tries."""

    role: str
    machine: str
    template: str
    image: str
    key: str


def _iam(*names: str) -> tuple[str, ...]:
    return tuple(f"iam:{name}" for name in names)


PATHS: dict[str, Escalation] = {
    "another text of the boundary": Escalation("iam", _iam("CreatePolicyVersion"),
        lambda c, _: c.create_policy_version(PolicyArn=KEEPER, PolicyDocument=ALL, SetAsDefault=True)),
    "an older text of the boundary": Escalation("iam", _iam("SetDefaultPolicyVersion"),
        lambda c, _: c.set_default_policy_version(PolicyArn=KEEPER, VersionId="v1")),
    "no boundary": Escalation("iam", _iam("DeleteRolePermissionsBoundary"),
        lambda c, it: c.delete_role_permissions_boundary(RoleName=it.role)),
    "a wider boundary": Escalation("iam", _iam("PutRolePermissionsBoundary"),
        lambda c, it: c.put_role_permissions_boundary(RoleName=it.role, PermissionsBoundary=EVERYTHING)),
    "an access key of an administrator": Escalation("iam", _iam("CreateAccessKey"),
        lambda c, _: c.create_access_key(UserName="admin")),
    "a password of an administrator": Escalation("iam", _iam("CreateLoginProfile"),
        lambda c, _: c.create_login_profile(UserName="admin", Password=PHRASE)),
    "another password of an administrator": Escalation("iam", _iam("UpdateLoginProfile"),
        lambda c, _: c.update_login_profile(UserName="admin", Password=PHRASE)),
    "a policy attached to a user": Escalation("iam", _iam("AttachUserPolicy"),
        lambda c, _: c.attach_user_policy(UserName="someone", PolicyArn=EVERYTHING)),
    "a policy attached to a group": Escalation("iam", _iam("AttachGroupPolicy"),
        lambda c, _: c.attach_group_policy(GroupName="team", PolicyArn=EVERYTHING)),
    "a policy attached to its role": Escalation("iam", _iam("AttachRolePolicy"),
        lambda c, it: c.attach_role_policy(RoleName=it.role, PolicyArn=EVERYTHING)),
    "an inline policy of a user": Escalation("iam", _iam("PutUserPolicy"),
        lambda c, _: c.put_user_policy(UserName="someone", PolicyName="all", PolicyDocument=ALL)),
    "an inline policy of a group": Escalation("iam", _iam("PutGroupPolicy"),
        lambda c, _: c.put_group_policy(GroupName="team", PolicyName="all", PolicyDocument=ALL)),
    "an inline policy of its role": Escalation("iam", _iam("PutRolePolicy"),
        lambda c, it: c.put_role_policy(RoleName=it.role, PolicyName="all", PolicyDocument=ALL)),
    "a user in the administrators' group": Escalation("iam", _iam("AddUserToGroup"),
        lambda c, _: c.add_user_to_group(UserName="someone", GroupName="team")),
    "trust of an administrator's role": Escalation("iam", _iam("UpdateAssumeRolePolicy"),
        lambda c, _: c.update_assume_role_policy(RoleName="admin", PolicyDocument=OPEN)),
    "a new role": Escalation("iam", _iam("CreateRole"),
        lambda c, _: c.create_role(RoleName="mine", AssumeRolePolicyDocument=OPEN)),
    "a role in an instance profile": Escalation("iam", _iam("AddRoleToInstanceProfile", "PassRole"),
        lambda c, _: c.add_role_to_instance_profile(InstanceProfileName="empty", RoleName="admin")),
    "an administrator's role": Escalation("sts", ("sts:AssumeRole",),
        lambda c, _: c.assume_role(RoleArn=ADMIN, RoleSessionName="admin")),
    "a machine with an administrator's role": Escalation("ec2", ("ec2:RunInstances", "iam:PassRole"),
        lambda c, it: c.run_instances(ImageId=it.image, MinCount=1, MaxCount=1, InstanceType="m5.large",
                                      IamInstanceProfile={"Name": "admin"})),
    "an administrator's role on a machine": Escalation(
        "ec2", ("ec2:AssociateIamInstanceProfile", "iam:PassRole"),
        lambda c, it: c.associate_iam_instance_profile(
            InstanceId=it.machine, IamInstanceProfile={"Name": "admin"})),
    "user data of a machine": Escalation("ec2", ("ec2:ModifyInstanceAttribute",),
        lambda c, it: c.modify_instance_attribute(InstanceId=it.machine, UserData={"Value": b"#!/bin/sh"})),
    "user data of a launch template": Escalation("ec2", ("ec2:CreateLaunchTemplateVersion",),
        lambda c, it: c.create_launch_template_version(
            LaunchTemplateId=it.template, LaunchTemplateData={"UserData": "eA=="})),
    "a function with an administrator's role": Escalation(
        "lambda", ("lambda:CreateFunction", "iam:PassRole"),
        lambda c, _: c.create_function(FunctionName="x", Role=ADMIN, Runtime="python3.12", Handler="a.b",
                                       Code={"ZipFile": b"x"})),
    "code of a function": Escalation("lambda", ("lambda:UpdateFunctionCode",),
        lambda c, _: c.update_function_code(FunctionName="theirs", ZipFile=b"x")),
    "a Glue job with an administrator's role": Escalation("glue", ("glue:CreateJob", "iam:PassRole"),
        lambda c, _: c.create_job(Name="x", Role=ADMIN, Command={"Name": "glueetl"})),
    "a stack with an administrator's role": Escalation(
        "cloudformation", ("cloudformation:CreateStack", "iam:PassRole"),
        lambda c, _: c.create_stack(StackName="x", RoleARN=ADMIN, TemplateBody='{"Resources": {}}')),
    "a build with an administrator's role": Escalation(
        "codebuild", ("codebuild:CreateProject", "iam:PassRole"),
        lambda c, _: c.create_project(name="x1", serviceRole=ADMIN, source={"type": "NO_SOURCE"},
            artifacts={"type": "NO_ARTIFACTS"}, environment={
                "type": "LINUX_CONTAINER", "image": "x", "computeType": "BUILD_GENERAL1_SMALL"})),
    "a notebook with an administrator's role": Escalation(
        "sagemaker", ("sagemaker:CreateNotebookInstance", "iam:PassRole"),
        lambda c, _: c.create_notebook_instance(
            NotebookInstanceName="x", InstanceType="ml.t2.medium", RoleArn=ADMIN)),
    "a pipeline": Escalation("datapipeline", ("datapipeline:CreatePipeline",),
        lambda c, _: c.create_pipeline(name="x", uniqueId="x")),
    "a command on a machine": Escalation("ssm", ("ssm:SendCommand",),
        lambda c, it: c.send_command(InstanceIds=[it.machine], DocumentName="AWS-RunShellScript")),
    "a secret of an administrator": Escalation("secretsmanager", ("secretsmanager:GetSecretValue",),
        lambda c, _: c.get_secret_value(SecretId="admin-key")),
    "a parameter of an administrator": Escalation("ssm", ("ssm:GetParameter",),
        lambda c, _: c.get_parameter(Name="/admin/key", WithDecryption=True)),
    "an access entry of the cluster": Escalation("eks", ("eks:CreateAccessEntry",),
        lambda c, _: c.create_access_entry(clusterName=CLUSTER, principalArn=ADMIN)),
    "an administrator of the cluster": Escalation("eks", ("eks:AssociateAccessPolicy",),
        lambda c, _: c.associate_access_policy(clusterName=CLUSTER, principalArn=ADMIN,
            policyArn=ADMIN_POLICY, accessScope={"type": "cluster"})),
    "an administrator's role for pods": Escalation(
        "eks", ("eks:CreatePodIdentityAssociation", "iam:PassRole"),
        lambda c, _: c.create_pod_identity_association(
            clusterName=CLUSTER, namespace="x", serviceAccount="x", roleArn=ADMIN)),
    "an administrator's role for nodes": Escalation("eks", ("eks:CreateNodegroup", "iam:PassRole"),
        lambda c, _: c.create_nodegroup(
            clusterName=CLUSTER, nodegroupName="x", subnets=["subnet-1"], nodeRole=ADMIN)),
    "an add-on with an administrator's role": Escalation("eks", ("eks:CreateAddon", "iam:PassRole"),
        lambda c, _: c.create_addon(clusterName=CLUSTER, addonName="adot", serviceAccountRoleArn=ADMIN)),
    "a policy of another cluster's bucket": Escalation("s3", ("s3:PutBucketPolicy",),
        lambda c, _: c.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps({"Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
                           "Resource": f"arn:aws:s3:::{BUCKET}/*"}]}))),
    "a grant on a key": Escalation("kms", ("kms:CreateGrant",),
        lambda c, it: c.create_grant(KeyId=it.key, GranteePrincipal=ADMIN, Operations=["Decrypt"])),
    "a key's policy": Escalation("kms", ("kms:PutKeyPolicy",),
        lambda c, it: c.put_key_policy(KeyId=it.key, PolicyName="default", Policy=ACCOUNT_ONLY)),
    "a schedule with an administrator's role": Escalation(
        "scheduler", ("scheduler:CreateSchedule", "iam:PassRole"),
        lambda c, _: c.create_schedule(GroupName=CLUSTER, Name="x", Target=TARGET, **AT)),
    "the end's schedule with an administrator's role": Escalation(
        "scheduler", ("scheduler:UpdateSchedule", "iam:PassRole"),
        lambda c, _: c.update_schedule(
            GroupName=CLUSTER, Name="gpu-p4d-24xlarge-a-spot", Target=TARGET, **AT)),
}  # fmt: skip


@pytest.fixture(scope="module")
def planted(estate: AwsEstate) -> Planted:
    client = estate.aws.client
    iam, ec2 = client("iam"), client("ec2")
    iam.create_role(RoleName="admin", AssumeRolePolicyDocument=OPEN)
    iam.attach_role_policy(RoleName="admin", PolicyArn=EVERYTHING)
    for name in ("admin", "empty"):
        iam.create_instance_profile(InstanceProfileName=name)
    iam.add_role_to_instance_profile(InstanceProfileName="admin", RoleName="admin")
    for name in ("admin", "someone"):
        iam.create_user(UserName=name)
    iam.create_group(GroupName="team")
    client("secretsmanager").create_secret(Name="admin-key", SecretString="x")
    client("ssm").put_parameter(Name="/admin/key", Value="x", Type="SecureString")
    images = ec2.describe_images(Owners=["amazon"])["Images"]
    machine = ec2.run_instances(
        ImageId=images[0]["ImageId"], MinCount=1, MaxCount=1, InstanceType="m5.large"
    )["Instances"][0]["InstanceId"]
    template = ec2.create_launch_template(
        LaunchTemplateName="theirs", LaunchTemplateData={"InstanceType": "m5.large"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    return Planted(
        role="",
        machine=machine,
        template=template,
        image=images[0]["ImageId"],
        key=client("kms").create_key()["KeyMetadata"]["KeyId"],
    )


def is_open(path: Escalation, who: RoleIdentity, planted: Planted) -> bool:
    """Whether permissions do not refuse a path; another refusal, such as of the request, counts as open."""
    of_its = Planted(**{**planted.__dict__, "role": who.role})
    try:
        path.call(who.client(path.service), of_its)
    except ClientError as error:
        return not is_denied(error)
    return True


def test_no_identity_gets_more_permissions(estate: AwsEstate, planted: Planted) -> None:
    before = estate.aws.state()
    with estate.enforced():
        opened = [
            (who, what)
            for who, identity in estate.identities.items()
            for what, path in PATHS.items()
            if is_open(path, identity, planted)
        ]
        assert estate.aws.state() == before
    assert opened == []
    print(f"0 of {len(PATHS)} paths are open to {len(IDENTITIES)} identities")


def test_no_policy_of_an_identity_alone_opens_a_path(estate: AwsEstate, planted: Planted) -> None:
    """Without the boundary, as in an account whose administrator runs `up`."""
    with estate.enforced():
        for name in IDENTITIES:
            estate.aws.client("iam").delete_role_permissions_boundary(RoleName=estate.role(name))
        opened = {
            (who, what)
            for who, identity in estate.identities.items()
            for what, path in PATHS.items()
            if is_open(path, identity, planted)
        }
    # AmazonEKSClusterPolicy, which EKS alone uses: README.md of infra/aws recommends the boundary.
    assert opened == {("cluster", "user data of a machine")}


@pytest.mark.slow
def test_each_path_opens_with_the_actions_that_it_needs(estate: AwsEstate, planted: Planted) -> None:
    who = estate.identities["end"]
    closed, early = [], []
    for what, path in PATHS.items():
        with estate.enforced():
            for lacking in path.needs if len(path.needs) > 1 else ():
                estate.grant("end", {*path.needs} - {lacking})
                if is_open(path, who, planted):
                    early.append((what, lacking))
            estate.grant("end", path.needs)
            if not is_open(path, who, planted):
                closed.append(what)
    assert closed == []
    assert early == []
