"""The deployer's policies deny privilege escalation and access to resources of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.contract.aws.support_policies import ACCOUNT_ONLY, BOUNDARY, POLICIES, Deployer, client_of
from tests.sandbox.aws.support import Aws, refused, trust

ACCOUNT = "123456789012"
DEPLOYER_ARN = f"arn:aws:iam::{ACCOUNT}:user/deployer"
ADMINISTRATOR = "arn:aws:iam::aws:policy/AdministratorAccess"
EVERYTHING = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
)
TRUST_IN_DEPLOYER = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"AWS": DEPLOYER_ARN}, "Action": "sts:AssumeRole"}],
    }
)
CLAIM = [{"Key": "cloudrec-cluster", "Value": "x"}]
DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """Resources of others in the account: identities by service."""

    key: str
    repository: str
    volume: str
    interface: str
    group: str
    balancer: str
    targets: str
    files: str
    template: str
    role: str  # in cloudrec's path and without a boundary, as an administrator would create it
    vpc: str
    address: str


@pytest.fixture
def deployer(aws: Aws, tmp_path: Path) -> Deployer:
    return Deployer(aws, tmp_path)


@pytest.fixture
def foreign(deployer: Deployer) -> Foreign:
    client = deployer.aws.client
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{number}.0/24", AvailabilityZone=f"us-east-1{zone}")[
            "Subnet"
        ]["SubnetId"]
        for number, zone in enumerate("ab")
    ]
    group = ec2.create_security_group(GroupName="theirs", Description="theirs", VpcId=vpc)["GroupId"]
    data = {"InstanceType": "m5.large"}
    role = "theirs-in-our-path"
    client("iam").create_role(RoleName=role, Path="/cloudrec/x/", AssumeRolePolicyDocument=trust("eks"))
    client("ecr").create_repository(repositoryName="theirs")
    balancing = client("elbv2")
    volume = ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    return Foreign(
        key=client("kms").create_key()["KeyMetadata"]["KeyId"],
        repository="theirs",
        volume=volume,
        interface=ec2.create_network_interface(SubnetId=subnets[0])["NetworkInterface"]["NetworkInterfaceId"],
        group=group,
        balancer=balancing.create_load_balancer(Name="theirs", Subnets=subnets, Type="network")[
            "LoadBalancers"
        ][0]["LoadBalancerArn"],
        targets=balancing.create_target_group(Name="theirs", Protocol="TCP", Port=80, VpcId=vpc)[
            "TargetGroups"
        ][0]["TargetGroupArn"],
        files="fs-0123456789abcdef0",
        template=ec2.create_launch_template(LaunchTemplateName="theirs", LaunchTemplateData=data)[
            "LaunchTemplate"
        ]["LaunchTemplateId"],
        role=role,
        vpc=vpc,
        address=ec2.allocate_address(Domain="vpc")["AllocationId"],
    )


# Each entry: a description, the service, and the call.
ATTEMPTS: dict[str, tuple[str, Callable[[Any, Foreign], Any]]] = {
    "a role without the boundary": (
        "iam",
        lambda iam, _: iam.create_role(
            RoleName="x", Path="/cloudrec/x/", AssumeRolePolicyDocument=TRUST_IN_DEPLOYER
        ),
    ),
    "a role with a boundary of another name": (
        "iam",
        lambda iam, _: iam.create_role(
            RoleName="x",
            Path="/cloudrec/x/",
            AssumeRolePolicyDocument=TRUST_IN_DEPLOYER,
            PermissionsBoundary=ADMINISTRATOR,
        ),
    ),
    "an inline policy for a role without the boundary": (
        "iam",
        lambda iam, it: iam.put_role_policy(RoleName=it.role, PolicyName="all", PolicyDocument=EVERYTHING),
    ),
    "an administrator's policy for a role without the boundary": (
        "iam",
        lambda iam, it: iam.attach_role_policy(RoleName=it.role, PolicyArn=ADMINISTRATOR),
    ),
    "trust in the deployer for a role without the boundary": (
        "iam",
        lambda iam, it: iam.update_assume_role_policy(RoleName=it.role, PolicyDocument=TRUST_IN_DEPLOYER),
    ),
    "another boundary for a role": (
        "iam",
        lambda iam, it: iam.put_role_permissions_boundary(
            RoleName=it.role, PermissionsBoundary=ADMINISTRATOR
        ),
    ),
    "no boundary for a role": (
        "iam",
        lambda iam, it: iam.delete_role_permissions_boundary(RoleName=it.role),
    ),
    "another text of the boundary": (
        "iam",
        lambda iam, _: iam.create_policy_version(
            PolicyArn=f"arn:aws:iam::{ACCOUNT}:policy/{BOUNDARY}",
            PolicyDocument=EVERYTHING,
            SetAsDefault=True,
        ),
    ),
    "a policy for the deployer": (
        "iam",
        lambda iam, _: iam.put_user_policy(UserName="deployer", PolicyName="all", PolicyDocument=EVERYTHING),
    ),
    "an access key of another user": ("iam", lambda iam, _: iam.create_access_key(UserName="root")),
    "an instance profile with a role": (
        "iam",
        lambda iam, it: iam.add_role_to_instance_profile(InstanceProfileName="eks-x", RoleName=it.role),
    ),
    "a foreign role for a cluster": (
        "eks",
        lambda eks, _: eks.create_cluster(
            name="cloudrec-x",
            roleArn=f"arn:aws:iam::{ACCOUNT}:role/admin",
            resourcesVpcConfig={"subnetIds": ["subnet-1", "subnet-2"]},
            tags={"cloudrec-cluster": "x"},
        ),
    ),
    "a cluster of cloudrec's names without the tag": (
        "eks",
        lambda eks, _: eks.create_cluster(
            name="cloudrec-x",
            roleArn=f"arn:aws:iam::{ACCOUNT}:role/cloudrec/x/cloudrec-x-cluster",
            resourcesVpcConfig={"subnetIds": ["subnet-1", "subnet-2"]},
        ),
    ),
    "a pod's role for machines": (
        "eks",
        lambda eks, _: eks.create_nodegroup(
            clusterName="cloudrec-x",
            nodegroupName="n",
            subnets=["subnet-1"],
            nodeRole=f"arn:aws:iam::{ACCOUNT}:role/cloudrec/x/cloudrec-x-us-east-1-pod",
        ),
    ),
    "a foreign key's end": (
        "kms",
        lambda kms, it: kms.schedule_key_deletion(KeyId=it.key, PendingWindowInDays=7),
    ),
    "a foreign key's policy": (
        "kms",
        lambda kms, it: kms.put_key_policy(KeyId=it.key, PolicyName="default", Policy=ACCOUNT_ONLY),
    ),
    "a name for a foreign key": (
        "kms",
        lambda kms, it: kms.create_alias(AliasName="alias/cloudrec-x", TargetKeyId=it.key),
    ),
    "a grant on a foreign key": (
        "kms",
        lambda kms, it: kms.create_grant(KeyId=it.key, GranteePrincipal=DEPLOYER_ARN, Operations=["Decrypt"]),
    ),
    "a foreign repository": (
        "ecr",
        lambda ecr, it: ecr.delete_repository(repositoryName=it.repository, force=True),
    ),
    "a foreign disk": ("ec2", lambda ec2, it: ec2.delete_volume(VolumeId=it.volume)),
    "a foreign interface": (
        "ec2",
        lambda ec2, it: ec2.delete_network_interface(NetworkInterfaceId=it.interface),
    ),
    "a foreign security group": ("ec2", lambda ec2, it: ec2.delete_security_group(GroupId=it.group)),
    "a foreign security group's rules": (
        "ec2",
        lambda ec2, it: ec2.authorize_security_group_ingress(
            GroupId=it.group, IpProtocol="-1", CidrIp="0.0.0.0/0"
        ),
    ),
    "a foreign network": ("ec2", lambda ec2, it: ec2.delete_vpc(VpcId=it.vpc)),
    "a foreign address": ("ec2", lambda ec2, it: ec2.release_address(AllocationId=it.address)),
    "a subnet in a foreign network": (
        "ec2",
        lambda ec2, it: ec2.create_subnet(
            VpcId=it.vpc,
            CidrBlock="10.9.9.0/24",
            TagSpecifications=[{"ResourceType": "subnet", "Tags": CLAIM}],
        ),
    ),
    "a network without the cluster's tag": ("ec2", lambda ec2, _: ec2.create_vpc(CidrBlock="10.0.0.0/16")),
    "cloudrec's tag on what is foreign": (
        "ec2",
        lambda ec2, it: ec2.create_tags(Resources=[it.volume], Tags=CLAIM),
    ),
    "another version of a foreign launch template": (
        "ec2",
        lambda ec2, it: ec2.create_launch_template_version(
            LaunchTemplateId=it.template, LaunchTemplateData={"InstanceType": "m5.large"}
        ),
    ),
    "a foreign launch template's default": (
        "ec2",
        lambda ec2, it: ec2.modify_launch_template(LaunchTemplateId=it.template, DefaultVersion="1"),
    ),
    "a foreign load balancer": (
        "elbv2",
        lambda elb, it: elb.delete_load_balancer(LoadBalancerArn=it.balancer),
    ),
    "a foreign target group": (
        "elbv2",
        lambda elb, it: elb.delete_target_group(TargetGroupArn=it.targets),
    ),
    "a foreign file system": ("fsx", lambda fsx, it: fsx.delete_file_system(FileSystemId=it.files)),
    "a link of a foreign file system": (
        "fsx",
        lambda fsx, it: fsx.create_data_repository_association(
            FileSystemId=it.files,
            FileSystemPath="/",
            DataRepositoryPath="s3://cloudrec-x",
            Tags=CLAIM,
        ),
    ),
    "a bucket by another name": ("s3", lambda s3, _: s3.create_bucket(Bucket="theirs")),
}


@pytest.mark.parametrize("what", ATTEMPTS)
def test_the_deployer_is_denied_privileged_calls(deployer: Deployer, foreign: Foreign, what: str) -> None:
    service, attempt = ATTEMPTS[what]
    before = deployer.aws.state()
    with pytest.raises(ClientError) as caught:
        attempt(deployer.client(service), foreign)
    assert caught.value.response["Error"]["Code"] in DENIED
    assert deployer.aws.state() == before


def test_a_role_created_by_the_deployer_never_has_administrator_rights(deployer: Deployer) -> None:
    iam = deployer.client("iam")
    role = iam.create_role(
        RoleName="x",
        Path="/cloudrec/x/",
        AssumeRolePolicyDocument=TRUST_IN_DEPLOYER,
        PermissionsBoundary=deployer.boundary,
    )["Role"]["Arn"]
    with refused("AccessDenied", "iam:AttachRolePolicy"):
        iam.attach_role_policy(RoleName="x", PolicyArn=ADMINISTRATOR)
    iam.put_role_policy(RoleName="x", PolicyName="all", PolicyDocument=EVERYTHING)
    with refused("AccessDenied", "sts:AssumeRole"):
        deployer.client("sts").assume_role(RoleArn=role, RoleSessionName="session")
    given = deployer.aws.client("sts").assume_role(RoleArn=role, RoleSessionName="session")["Credentials"]
    keys = {
        "AWS_ACCESS_KEY_ID": given["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": given["SecretAccessKey"],
        "AWS_SESSION_TOKEN": given["SessionToken"],
    }
    with refused("AccessDenied", "iam:CreateUser"):
        client_of(deployer.aws, "iam", **keys).create_user(UserName="y")
    with refused("UnauthorizedOperation", "ec2:DeleteVolume"):
        client_of(deployer.aws, "ec2", **keys).delete_volume(VolumeId="vol-1")
    client_of(deployer.aws, "ec2", **keys).describe_vpcs()


def test_the_policies_allow_no_action_that_grants_administrator_rights() -> None:
    actions = {
        action
        for document in POLICIES.values()
        for statement in document["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    never = ("DeleteRolePermissionsBoundary", "CreatePolicyVersion", "SetDefaultPolicyVersion", "CreateUser")
    assert not actions & {f"iam:{name}" for name in never}
