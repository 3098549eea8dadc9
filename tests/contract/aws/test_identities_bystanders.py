"""No role of a cluster reads, changes or deletes what others have: another cluster, another team.

Names that a listing shows (`Describe*`, and `List*` of a whole account) are not data: infra/aws/README.md
names who sees them. `KNOWN` has what a policy of AWS allows beyond that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.contract.aws.support_identities import (
    ACCOUNT,
    IDENTITIES,
    REGION,
    THEIRS,
    AwsEstate,
    is_denied,
)
from tests.contract.aws.support_policies import ACCOUNT_ONLY
from tests.tallies import Tally

OTHER = f"cloudrec-{THEIRS}"
THEIR_BUCKET, TEAM_BUCKET = f"{OTHER}-{ACCOUNT}-{REGION}", "team-data"
ROLE = f"{OTHER}-{REGION}-node"
KEY = "data/part-0"
Call = Callable[[Any, "Others"], Any]


@dataclass(frozen=True)
class Thing:
    """One resource of others, and what a role could do to it: read its data, change it, delete it."""

    service: str
    deeds: dict[str, Call]


@dataclass
class Others:
    """The ids of what others have."""

    ids: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.ids[name]


def _machine(kind: str) -> dict[str, Call]:
    return {
        "change": lambda c, o: c.modify_instance_attribute(InstanceId=o[kind], UserData={"Value": b"x"}),
        "stop": lambda c, o: c.stop_instances(InstanceIds=[o[kind]]),
        "delete": lambda c, o: c.terminate_instances(InstanceIds=[o[kind]]),
        "read": lambda c, o: c.get_console_output(InstanceId=o[kind]),
    }


def _volume(kind: str) -> dict[str, Call]:
    return {
        "read": lambda c, o: c.create_snapshot(VolumeId=o[kind]),
        "change": lambda c, o: c.create_tags(Resources=[o[kind]], Tags=[{"Key": "a", "Value": "b"}]),
        "delete": lambda c, o: c.delete_volume(VolumeId=o[kind]),
    }


def _group(kind: str) -> dict[str, Call]:
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    return {
        "change": lambda c, o: c.authorize_security_group_ingress(GroupId=o[kind], IpPermissions=[rule]),
        "delete": lambda c, o: c.delete_security_group(GroupId=o[kind]),
    }


def _network(kind: str) -> dict[str, Call]:
    return {
        "change": lambda c, o: c.create_subnet(VpcId=o[kind], CidrBlock="10.200.0.0/24"),
        "delete": lambda c, o: c.delete_vpc(VpcId=o[kind]),
    }


def _subnet(kind: str) -> dict[str, Call]:
    return {
        "use": lambda c, o: c.create_network_interface(SubnetId=o[kind]),
        "delete": lambda c, o: c.delete_subnet(SubnetId=o[kind]),
    }


def _bucket(name: str) -> dict[str, Call]:
    return {
        "read": lambda c, _: c.list_objects_v2(Bucket=name),
        "change": lambda c, _: c.put_bucket_tagging(
            Bucket=name, Tagging={"TagSet": [{"Key": "a", "Value": "b"}]}
        ),
        "delete": lambda c, _: c.delete_bucket(Bucket=name),
    }


def _object(bucket: str) -> dict[str, Call]:
    return {
        "read": lambda c, _: c.get_object(Bucket=bucket, Key=KEY)["Body"].read(),
        "change": lambda c, _: c.put_object(Bucket=bucket, Key=KEY, Body=b"mine"),
        "delete": lambda c, _: c.delete_object(Bucket=bucket, Key=KEY),
    }


def _role(name: str) -> dict[str, Call]:
    return {
        "use": lambda c, _: c.update_assume_role_policy(RoleName=name, PolicyDocument=ACCOUNT_ONLY),
        "change": lambda c, _: c.tag_role(RoleName=name, Tags=[{"Key": "a", "Value": "b"}]),
        "delete": lambda c, _: c.delete_role(RoleName=name),
    }


def _template(kind: str) -> dict[str, Call]:
    data = {"InstanceType": "m5.large"}
    return {
        "read": lambda c, o: c.describe_launch_template_versions(LaunchTemplateId=o[kind]),
        "change": lambda c, o: c.create_launch_template_version(
            LaunchTemplateId=o[kind], LaunchTemplateData=data
        ),
        "delete": lambda c, o: c.delete_launch_template(LaunchTemplateId=o[kind]),
    }


def _log(name: str) -> dict[str, Call]:
    return {
        "read": lambda c, _: c.get_log_events(logGroupName=name, logStreamName="a"),
        "change": lambda c, _: c.put_log_events(
            logGroupName=name, logStreamName="a", logEvents=[{"timestamp": 1, "message": "x"}]
        ),
        "delete": lambda c, _: c.delete_log_group(logGroupName=name),
    }


def _files(kind: str) -> dict[str, Call]:
    return {
        "change": lambda c, o: c.update_file_system(FileSystemId=o[kind], StorageCapacity=2400),
        "delete": lambda c, o: c.delete_file_system(FileSystemId=o[kind]),
    }


def _node_group(kind: str) -> dict[str, Call]:
    where = {"clusterName": OTHER}
    return {
        "read": lambda c, o: c.describe_nodegroup(nodegroupName=o[kind], **where),
        "change": lambda c, o: c.update_nodegroup_config(
            nodegroupName=o[kind], scalingConfig={"minSize": 0, "maxSize": 9, "desiredSize": 0}, **where
        ),
        "delete": lambda c, o: c.delete_nodegroup(nodegroupName=o[kind], **where),
    }


def _schedule(kind: str) -> dict[str, Call]:
    return {
        "read": lambda c, o: c.get_schedule(GroupName=OTHER, Name=o[kind]),
        "change": lambda c, o: c.update_schedule(
            GroupName=OTHER,
            Name=o[kind],
            ScheduleExpression="at(2040-01-01T00:00:00)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                "Arn": "arn:aws:scheduler:::aws-sdk:eks:updateNodegroupConfig",
                "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/cloudrec/{OTHER}-{REGION}-end",
                "Input": "{}",
            },
        ),
        "delete": lambda c, o: c.delete_schedule(GroupName=OTHER, Name=o[kind]),
    }


_MACHINERY: dict[str, Callable[[str], dict[str, Call]]] = {
    "machine": _machine,
    "volume": _volume,
    "security group": _group,
    "network": _network,
    "subnet": _subnet,
    "launch template": _template,
}
THINGS: dict[str, Thing] = {
    **{f"another cluster's {kind}": Thing("ec2", deeds(kind)) for kind, deeds in _MACHINERY.items()},
    **{f"a team's {kind}": Thing("ec2", deeds(f"team {kind}")) for kind, deeds in _MACHINERY.items()},
    "a team's network interface": Thing(
        "ec2",
        {
            "change": lambda c, o: c.modify_network_interface_attribute(
                NetworkInterfaceId=o["team interface"], Description={"Value": "mine"}
            ),
            "use": lambda c, o: c.assign_private_ip_addresses(
                NetworkInterfaceId=o["team interface"], SecondaryPrivateIpAddressCount=1
            ),
            "delete": lambda c, o: c.delete_network_interface(NetworkInterfaceId=o["team interface"]),
        },
    ),
    "a team's address": Thing(
        "ec2", {"delete": lambda c, o: c.release_address(AllocationId=o["team address"])}
    ),
    "a team's key pair": Thing("ec2", {"delete": lambda c, _: c.delete_key_pair(KeyName="team")}),
    "a team's snapshot": Thing(
        "ec2",
        {
            "read": lambda c, o: c.modify_snapshot_attribute(
                SnapshotId=o["team snapshot"],
                Attribute="createVolumePermission",
                OperationType="add",
                UserIds=["1" * 12],
            ),
            "delete": lambda c, o: c.delete_snapshot(SnapshotId=o["team snapshot"]),
        },
    ),
    "a team's image": Thing("ec2", {"delete": lambda c, o: c.deregister_image(ImageId=o["team image"])}),
    "a team's route table": Thing(
        "ec2",
        {
            "change": lambda c, o: c.create_route(
                RouteTableId=o["team routes"], DestinationCidrBlock="10.9.0.0/16", GatewayId="igw-1"
            ),
            "delete": lambda c, o: c.delete_route_table(RouteTableId=o["team routes"]),
        },
    ),
    "a team's placement group": Thing(
        "ec2", {"delete": lambda c, _: c.delete_placement_group(GroupName="team")}
    ),
    "another cluster's bucket": Thing("s3", _bucket(THEIR_BUCKET)),
    "another cluster's object": Thing("s3", _object(THEIR_BUCKET)),
    "a team's bucket": Thing("s3", _bucket(TEAM_BUCKET)),
    "a team's object": Thing("s3", _object(TEAM_BUCKET)),
    **{
        f"another cluster's {name} role": Thing("iam", _role(f"{OTHER}-{REGION}-{name}"))
        for name in ("cluster", "node", "guard", "pod", "end")
    },
    "a team's role": Thing("iam", _role("team")),
    "a team's user": Thing(
        "iam",
        {
            "use": lambda c, _: c.create_access_key(UserName="team"),
            "change": lambda c, _: c.tag_user(UserName="team", Tags=[{"Key": "a", "Value": "b"}]),
            "delete": lambda c, _: c.delete_user(UserName="team"),
        },
    ),
    "a team's policy": Thing(
        "iam",
        {
            "change": lambda c, o: c.create_policy_version(
                PolicyArn=o["team policy"], PolicyDocument=ACCOUNT_ONLY, SetAsDefault=True
            ),
            "delete": lambda c, o: c.delete_policy(PolicyArn=o["team policy"]),
        },
    ),
    "another cluster": Thing(
        "eks",
        {
            "change": lambda c, _: c.update_cluster_config(
                name=OTHER,
                resourcesVpcConfig={"endpointPublicAccess": True, "publicAccessCidrs": ["0.0.0.0/0"]},
            ),
            "use": lambda c, _: c.create_access_entry(
                clusterName=OTHER, principalArn=f"arn:aws:iam::{ACCOUNT}:role/x"
            ),
            "delete": lambda c, _: c.delete_cluster(name=OTHER),
        },
    ),
    "another cluster's node group": Thing("eks", _node_group("node group")),
    "another cluster's GPU node group": Thing("eks", _node_group("GPU node group")),
    "another cluster's add-on": Thing(
        "eks",
        {
            "change": lambda c, _: c.update_addon(
                clusterName=OTHER, addonName="vpc-cni", resolveConflicts="OVERWRITE"
            ),
            "delete": lambda c, _: c.delete_addon(clusterName=OTHER, addonName="vpc-cni"),
        },
    ),
    "another cluster's pod identity": Thing(
        "eks",
        {
            "use": lambda c, _: c.create_pod_identity_association(
                clusterName=OTHER,
                namespace="a",
                serviceAccount="b",
                roleArn=f"arn:aws:iam::{ACCOUNT}:role/team",
            ),
            "delete": lambda c, o: c.delete_pod_identity_association(
                clusterName=OTHER, associationId=o["association"]
            ),
        },
    ),
    "another cluster's end": Thing("scheduler", _schedule("schedule")),
    "another cluster's ends": Thing(
        "scheduler", {"delete": lambda c, _: c.delete_schedule_group(Name=OTHER)}
    ),
    "another cluster's file system": Thing("fsx", _files("file system")),
    "a team's log": Thing("logs", _log("/team/app")),
    "another cluster's log": Thing("logs", _log(f"/aws/containerinsights/{OTHER}/performance")),
    "a team's repository": Thing(
        "ecr",
        {
            "read": lambda c, _: c.batch_get_image(repositoryName="team", imageIds=[{"imageTag": "1"}]),
            "change": lambda c, _: c.put_image(repositoryName="team", imageManifest="{}", imageTag="2"),
            "delete": lambda c, _: c.delete_repository(repositoryName="team", force=True),
        },
    ),
    "a team's secret": Thing(
        "secretsmanager",
        {
            "read": lambda c, _: c.get_secret_value(SecretId="team"),
            "change": lambda c, _: c.put_secret_value(SecretId="team", SecretString="mine"),
            "delete": lambda c, _: c.delete_secret(SecretId="team"),
        },
    ),
    "a team's parameter": Thing(
        "ssm",
        {
            "read": lambda c, _: c.get_parameter(Name="/team/key"),
            "change": lambda c, _: c.put_parameter(
                Name="/team/key", Value="mine", Overwrite=True, Type="String"
            ),
            "delete": lambda c, _: c.delete_parameter(Name="/team/key"),
        },
    ),
    "a team's key": Thing(
        "kms",
        {
            "read": lambda c, o: c.decrypt(CiphertextBlob=bytes.fromhex(o["team cipher"])),
            "change": lambda c, o: c.disable_key(KeyId=o["team key"]),
            "delete": lambda c, o: c.schedule_key_deletion(KeyId=o["team key"]),
        },
    ),
    "a team's table": Thing(
        "dynamodb",
        {
            "read": lambda c, _: c.scan(TableName="team"),
            "delete": lambda c, _: c.delete_table(TableName="team"),
        },
    ),
    "a team's queue": Thing(
        "sqs",
        {
            "read": lambda c, o: c.receive_message(QueueUrl=o["team queue"]),
            "delete": lambda c, o: c.delete_queue(QueueUrl=o["team queue"]),
        },
    ),
    "a team's topic": Thing(
        "sns",
        {
            "change": lambda c, o: c.publish(TopicArn=o["team topic"], Message="x"),
            "delete": lambda c, o: c.delete_topic(TopicArn=o["team topic"]),
        },
    ),
    "a team's function": Thing(
        "lambda",
        {
            "use": lambda c, _: c.invoke(FunctionName="team"),
            "change": lambda c, _: c.update_function_code(FunctionName="team", ZipFile=b"x"),
            "delete": lambda c, _: c.delete_function(FunctionName="team"),
        },
    ),
    "a team's stack": Thing("cloudformation", {"delete": lambda c, _: c.delete_stack(StackName="team")}),
    "a team's Auto Scaling group": Thing(
        "autoscaling",
        {
            "change": lambda c, _: c.update_auto_scaling_group(
                AutoScalingGroupName="team", MaxSize=0, MinSize=0
            ),
            "delete": lambda c, _: c.delete_auto_scaling_group(AutoScalingGroupName="team", ForceDelete=True),
        },
    ),
    "a team's load balancer": Thing(
        "elbv2", {"delete": lambda c, o: c.delete_load_balancer(LoadBalancerArn=o["team balancer"])}
    ),
}


@pytest.fixture(scope="module")
def others(estate: AwsEstate) -> Others:
    """Create what a team has, and find what the other cluster has."""
    return Others(ids={**_of_the_team(estate), **_of_the_cluster(estate)})


def _of_the_team(estate: AwsEstate) -> dict[str, str]:
    client = estate.aws.client
    ec2, iam, s3 = client("ec2"), client("iam"), client("s3")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    vpc = ec2.create_vpc(CidrBlock="10.200.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.200.1.0/24", AvailabilityZone=f"{REGION}a")["Subnet"][
        "SubnetId"
    ]
    machine = ec2.run_instances(
        ImageId=image, MinCount=1, MaxCount=1, InstanceType="m5.large", SubnetId=subnet
    )["Instances"][0]["InstanceId"]
    volume = ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=8)["VolumeId"]
    ec2.create_key_pair(KeyName="team")
    ec2.create_placement_group(GroupName="team", Strategy="cluster")
    s3.create_bucket(Bucket=TEAM_BUCKET)
    for bucket in (TEAM_BUCKET, THEIR_BUCKET):
        s3.put_object(Bucket=bucket, Key=KEY, Body=b"theirs")
    iam.create_role(RoleName="team", AssumeRolePolicyDocument=ACCOUNT_ONLY)
    iam.create_user(UserName="team")
    logs = client("logs")
    for name in ("/team/app", f"/aws/containerinsights/{OTHER}/performance"):
        logs.create_log_group(logGroupName=name)
        logs.create_log_stream(logGroupName=name, logStreamName="a")
    client("ecr").create_repository(repositoryName="team")
    client("secretsmanager").create_secret(Name="team", SecretString="theirs")
    client("ssm").put_parameter(Name="/team/key", Value="theirs", Type="String")
    key = client("kms").create_key()["KeyMetadata"]["KeyId"]
    template = ec2.create_launch_template(
        LaunchTemplateName="team", LaunchTemplateData={"InstanceType": "m5.large"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    policy = iam.create_policy(PolicyName="team", PolicyDocument=_NOTHING)["Policy"]["Arn"]
    return {
        "team machine": machine,
        "team volume": volume,
        "team security group": ec2.create_security_group(GroupName="team", Description="x", VpcId=vpc)[
            "GroupId"
        ],
        "team network": vpc,
        "team subnet": subnet,
        "team launch template": template,
        "team interface": ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"][
            "NetworkInterfaceId"
        ],
        "team address": ec2.allocate_address(Domain="vpc")["AllocationId"],
        "team snapshot": ec2.create_snapshot(VolumeId=volume)["SnapshotId"],
        "team image": ec2.create_image(InstanceId=machine, Name="team")["ImageId"],
        "team routes": ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"],
        "team policy": policy,
        "team key": key,
        "team cipher": client("kms").encrypt(KeyId=key, Plaintext=b"theirs")["CiphertextBlob"].hex(),
        "team queue": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/team",
        "team topic": f"arn:aws:sns:{REGION}:{ACCOUNT}:team",
        "team balancer": f"arn:aws:elasticloadbalancing:{REGION}:{ACCOUNT}:loadbalancer/net/team/0123",
    }


_NOTHING = '{"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "*", "Resource": "*"}]}'


def _of_the_cluster(estate: AwsEstate) -> dict[str, str]:
    client = estate.aws.client
    ec2, eks = client("ec2"), client("eks")
    tagged = [{"Name": "tag:cloudrec-cluster", "Values": [THEIRS]}]
    groups = eks.list_nodegroups(clusterName=OTHER)["nodegroups"]
    machines = [
        each["InstanceId"]
        for found in ec2.describe_instances()["Reservations"]
        for each in found["Instances"]
        if {"Key": "eks:cluster-name", "Value": OTHER} in each.get("Tags", [])
    ]
    network = ec2.describe_vpcs(Filters=tagged)["Vpcs"][0]["VpcId"]
    within = [{"Name": "vpc-id", "Values": [network]}]
    volume = ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=8)["VolumeId"]
    ec2.create_tags(Resources=[volume], Tags=[{"Key": "cloudrec-cluster", "Value": THEIRS}])
    files = [
        each["FileSystemId"]
        for each in client("fsx").describe_file_systems()["FileSystems"]
        if {"Key": "cloudrec-cluster", "Value": THEIRS} in each["Tags"]
    ]
    return {
        "machine": machines[0],
        "volume": volume,
        "security group": ec2.describe_security_groups(Filters=within)["SecurityGroups"][0]["GroupId"],
        "network": network,
        "subnet": ec2.describe_subnets(Filters=within)["Subnets"][0]["SubnetId"],
        "launch template": ec2.describe_launch_templates(Filters=tagged)["LaunchTemplates"][0][
            "LaunchTemplateId"
        ],
        "node group": next(each for each in groups if "gpu" not in each),
        "GPU node group": next(each for each in groups if "gpu" in each),
        "association": eks.list_pod_identity_associations(clusterName=OTHER)["associations"][0][
            "associationId"
        ],
        "schedule": client("scheduler").list_schedules(GroupName=OTHER)["Schedules"][0]["Name"],
        "file system": files[0],
    }


# AmazonEC2ContainerRegistryPullOnly has no limit: a node's kubelet pulls images of every repository.
KNOWN = {("node", "read", "a team's repository")}


@pytest.mark.slow
def test_no_role_of_a_cluster_touches_what_others_have(
    estate: AwsEstate, others: Others, tally: Tally
) -> None:
    assert len(THINGS) >= 50
    before = estate.aws.state()
    with estate.enforced():
        opened = {
            (who, deed, what)
            for who, identity in estate.identities.items()
            if who != "lustre-csi"  # it is the other cluster's
            for what, thing in THINGS.items()
            for deed, call in thing.deeds.items()
            if _is_open(identity.client(thing.service), call, others)
        }
        assert estate.aws.state() == before
    assert opened == KNOWN
    count = sum(len(thing.deeds) for thing in THINGS.values())
    tally(f"{len(THINGS)} resources of others on AWS: {len(IDENTITIES) - 1} roles tried {count} calls each")


def _is_open(client: Any, call: Call, others: Others) -> bool:
    """Whether permissions do not refuse a call; another refusal, such as of the request, counts as open."""
    try:
        call(client, others)
    except ClientError as error:
        return not is_denied(error)
    return True


def test_a_role_that_may_do_more_is_found(estate: AwsEstate, others: Others) -> None:
    read = THINGS["a team's object"].deeds["read"]
    with estate.enforced():
        estate.grant("guard", ["s3:GetObject"])
        assert _is_open(estate.identities["guard"].client("s3"), read, others)
