"""Node groups: immediate refusals, late failures, and resources that instances leave."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.aws.support import ZONES, Aws, refused
from tests.sandbox.aws.support_eks import (
    Ground,
    active_cluster,
    create_nodegroup,
    ground,
    nodegroup,
    role,
)


@pytest.fixture
def base(aws: Aws) -> Ground:
    base = ground(aws)
    active_cluster(aws, base)
    return base


def template(aws: Aws, **data: Any) -> dict[str, str]:
    made = aws.client("ec2").create_launch_template(LaunchTemplateName="one", LaunchTemplateData=data)
    return {"id": made["LaunchTemplate"]["LaunchTemplateId"]}


def machines(aws: Aws, *states: str) -> list[dict[str, Any]]:
    filters = [{"Name": "instance-state-name", "Values": list(states or ("running",))}]
    reservations = aws.client("ec2").describe_instances(Filters=filters)["Reservations"]
    return [instance for reservation in reservations for instance in reservation["Instances"]]


def scaling_group(aws: Aws, name: str = "cpu") -> dict[str, Any]:
    wanted = nodegroup(aws, name)["resources"]["autoScalingGroups"][0]["name"]
    found: dict[str, Any] = aws.client("autoscaling").describe_auto_scaling_groups(
        AutoScalingGroupNames=[wanted]
    )["AutoScalingGroups"][0]
    return found


def test_a_node_group_has_instances_minutes_before_it_is_active(aws: Aws, base: Ground) -> None:
    assert create_nodegroup(aws, base)["status"] == "CREATING"
    aws.advance(36)
    assert (nodegroup(aws)["status"], len(machines(aws))) == ("CREATING", 2)
    aws.advance(144)
    group = scaling_group(aws)
    assert nodegroup(aws)["status"] == "ACTIVE"
    assert (group["DesiredCapacity"], len(group["Instances"])) == (2, 2)
    tags = {tag["Key"]: tag["Value"] for tag in machines(aws)[0]["Tags"]}
    assert tags["eks:nodegroup-name"] == "cpu"
    assert tags["kubernetes.io/cluster/one"] == "owned"
    entry = aws.client("eks").describe_access_entry(clusterName="one", principalArn=base.node_role)
    assert entry["accessEntry"]["type"] == "EC2_LINUX"


def test_a_gpu_node_group_takes_longer(aws: Aws, base: Ground) -> None:
    aws.control(quotas={"ec2/L-DB2E81BA": 8})
    create_nodegroup(aws, base, instanceTypes=["g5.xlarge"])
    aws.advance(400)
    assert nodegroup(aws)["status"] == "CREATING"
    aws.advance(20)
    assert nodegroup(aws)["status"] == "ACTIVE"


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"scalingConfig": {"minSize": 3, "maxSize": 2, "desiredSize": 3}}, "greater than maximum"),
        ({"scalingConfig": {"minSize": 0, "maxSize": 2, "desiredSize": 3}}, "greater than max size"),
        ({"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}, "'NoSchedule' is none of"),
        ({"amiType": "AL2023_GPU"}, "'AL2023_GPU' is none of"),
        ({"subnets": ["subnet-1"]}, "'subnet-1' does not exist"),
        ({"nodeRole": "arn:aws:iam::123456789012:role/nobody"}, "does not exist"),
        ({"nodeRole": "arn:aws:iam::123456789012:role/cluster"}, "trusted entity is not correct"),
        ({"instanceTypes": ["p99.large"]}, "do not exist: [p99.large]"),
        ({"capacityType": "CAPACITY_BLOCK"}, "need each other"),
        ({"updateConfig": {"updateStrategy": "MINIMAL"}}, "maxUnavailablePercentage is required"),
        ({"updateConfig": {"maxUnavailable": 1, "maxUnavailablePercentage": 10}}, "not both"),
        ({"updateConfig": {"maxUnavailable": 101}}, "at most 100"),
        ({"updateConfig": {"maxUnavailable": 1, "updateStrategy": "SURGE"}}, "'SURGE' is none of"),
        (
            {
                "nodeRepairConfig": {
                    "maxParallelNodesRepairedCount": 1,
                    "maxParallelNodesRepairedPercentage": 5,
                }
            },
            "cannot both be set",
        ),
        (
            {"nodeRepairConfig": {"nodeRepairConfigOverrides": [{"repairAction": "Replace"}]}},
            "lacks minRepairWaitTimeMins, nodeMonitoringCondition, nodeUnhealthyReason",
        ),
        ({"launchTemplate": {"id": "lt-1"}}, "could not be found"),
        ({"launchTemplate": {"id": "lt-1", "name": "lt"}}, "either the launch template ID"),
    ],
)
def test_invalid_parameters_are_refused_at_once(
    aws: Aws, base: Ground, wish: dict[str, Any], message: str
) -> None:
    with refused("InvalidParameterException", message):
        create_nodegroup(aws, base, **wish)
    assert aws.client("eks").list_nodegroups(clusterName="one")["nodegroups"] == []


@pytest.mark.parametrize(
    ("data", "wish", "message"),
    [
        ({"InstanceType": "m5.large"}, {"diskSize": 50}, "Disk size"),
        ({"InstanceType": "m5.large"}, {"remoteAccess": {"ec2SshKey": "k"}}, "Remote access"),
        ({"InstanceType": "m5.large"}, {"instanceTypes": ["m5.large"]}, "both"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": "subnet-1"}]}, {}, "subnet"),
        ({"IamInstanceProfile": {"Name": "p"}}, {}, "instance profile"),
        ({"InstanceMarketOptions": {"MarketType": "spot"}}, {}, "spot"),
        ({"ImageId": "ami-12c6146b"}, {"amiType": "AL2023_x86_64_NVIDIA"}, "amiType"),
    ],
)
def test_a_template_for_eks_must_not_set_certain_fields(
    aws: Aws, base: Ground, data: dict[str, Any], wish: dict[str, Any], message: str
) -> None:
    with refused("InvalidParameterException", message):
        create_nodegroup(aws, base, launchTemplate=template(aws, **data), **wish)


def test_a_name_is_in_use_from_the_request(aws: Aws, base: Ground) -> None:
    create_nodegroup(aws, base)
    with refused("ResourceInUseException", "already exists with name cpu"):
        create_nodegroup(aws, base)


def test_missing_capacity_is_reported_by_the_scaling_group_long_before_eks(aws: Aws, base: Ground) -> None:
    aws.control(capacity={"m5.large/us-east-1a/on-demand": 1})
    create_nodegroup(aws, base)
    aws.advance(60)
    name = scaling_group(aws)["AutoScalingGroupName"]
    activities = aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=name)[
        "Activities"
    ]
    assert activities[0]["StatusCode"] == "Failed"
    assert "InsufficientInstanceCapacity" in activities[0]["StatusMessage"]
    assert nodegroup(aws)["status"] == "CREATING"
    aws.advance(1200)
    failed = nodegroup(aws)
    assert (failed["status"], failed["health"]["issues"][0]["code"]) == (
        "CREATE_FAILED",
        "AsgInstanceLaunchFailures",
    )
    assert len(machines(aws)) == 1


def test_late_capacity_makes_the_node_group_active(aws: Aws, base: Ground) -> None:
    aws.control(capacity={"m5.large/us-east-1a/spot": 0})
    create_nodegroup(aws, base, capacityType="SPOT")
    aws.advance(300)
    assert nodegroup(aws)["status"] == "CREATING"
    aws.control(capacity={"m5.large/us-east-1a/spot": 2})
    aws.advance(120)
    assert nodegroup(aws)["status"] == "ACTIVE"
    assert {machine["InstanceLifecycle"] for machine in machines(aws)} == {"spot"}


@pytest.mark.parametrize(
    ("wish", "control", "word"),
    [
        ({"instanceTypes": ["p4d.24xlarge"]}, {}, "VcpuLimitExceeded"),
        ({"instanceTypes": ["p4d.24xlarge"], "capacityType": "SPOT"}, {}, "MaxSpotInstanceCountExceeded"),
        ({}, {"types_offered": {"us-east-1a": ["c5.large"]}}, "Unsupported"),
    ],
)
def test_quota_and_zone_errors_are_reported_as_late_as_capacity_errors(
    aws: Aws, base: Ground, wish: dict[str, Any], control: dict[str, Any], word: str
) -> None:
    aws.control(**control)
    create_nodegroup(aws, base, **wish)
    aws.advance(1200)
    issue = nodegroup(aws)["health"]["issues"][0]
    assert issue["code"] == "AsgInstanceLaunchFailures"
    assert word in issue["message"]


@pytest.mark.parametrize("fault", ["no route", "no policy"])
def test_nodes_without_a_route_to_their_cluster_never_join(aws: Aws, base: Ground, fault: str) -> None:
    wish = {}
    if fault == "no route":
        aws.client("ec2").delete_route(RouteTableId=base.route_table, DestinationCidrBlock="0.0.0.0/0")
    else:
        wish["nodeRole"] = role(aws, "bare", "ec2")
        aws.advance(10)
    create_nodegroup(aws, base, **wish)
    aws.advance(1200)
    failed = nodegroup(aws)
    assert (failed["status"], failed["health"]["issues"][0]["code"]) == (
        "CREATE_FAILED",
        "NodeCreationFailure",
    )


def test_a_node_group_is_deleted_after_its_instances_and_before_their_interfaces(
    aws: Aws, base: Ground
) -> None:
    before = aws.state()
    create_nodegroup(aws, base)
    aws.advance(180)
    assert any(entry.startswith("ec2:volume:") for entry in aws.state())
    aws.client("eks").delete_nodegroup(clusterName="one", nodegroupName="cpu")
    aws.advance(239)
    filters = [{"Name": "status", "Values": ["available"]}]
    left = aws.client("ec2").describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
    assert (nodegroup(aws)["status"], len(machines(aws)), len(left)) == ("DELETING", 0, 2)
    with refused("DeleteConflict"):
        aws.client("iam").delete_role(RoleName="node")
    aws.advance(1)
    with refused("ResourceNotFoundException", "No node group found for name: cpu"):
        nodegroup(aws)
    aws.advance(120)
    assert aws.state() == before


def test_efa_interfaces_and_tags_of_a_template_are_applied_to_instances(aws: Aws, base: Ground) -> None:
    aws.control(quotas={"ec2/L-417A185B": 96})
    group = aws.client("ec2").create_security_group(GroupName="efa", Description="d", VpcId=base.vpc)[
        "GroupId"
    ]
    aws.client("ec2").create_placement_group(GroupName="pg", Strategy="cluster")
    nics = [
        {"NetworkCardIndex": card, "DeviceIndex": 0, "InterfaceType": kind, "Groups": [group]}
        for card, kind in enumerate(["interface", "efa-only", "efa-only", "efa-only"])
    ]
    tags = [{"ResourceType": kind, "Tags": [{"Key": "run", "Value": "1"}]} for kind in ("instance", "volume")]
    disk = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 100, "VolumeType": "gp3"}}
    chosen = template(
        aws,
        InstanceType="p4d.24xlarge",
        NetworkInterfaces=nics,
        TagSpecifications=tags,
        BlockDeviceMappings=[disk],
        Placement={"GroupName": "pg"},
    )
    create_nodegroup(
        aws, base, launchTemplate=chosen, scalingConfig={"minSize": 0, "maxSize": 1, "desiredSize": 1}
    )
    aws.advance(420)
    ec2 = aws.client("ec2")
    machine = machines(aws)[0]
    filters = [{"Name": "attachment.instance-id", "Values": [machine["InstanceId"]]}]
    interfaces = ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
    assert len(interfaces) == 5
    assert all(entry["Groups"][0]["GroupId"] == group for entry in interfaces)
    assert machine["Placement"]["GroupName"] == "pg"
    assert {"Key": "run", "Value": "1"} in machine["Tags"]
    volume = ec2.describe_volumes()["Volumes"][0]
    assert (volume["Size"], volume["Tags"]) == (100, [{"Key": "run", "Value": "1"}])


def test_a_deleted_template_is_a_health_issue_of_the_node_group(aws: Aws, base: Ground) -> None:
    chosen = template(aws, InstanceType="m5.large")
    create_nodegroup(aws, base, launchTemplate=chosen)
    aws.advance(180)
    aws.client("ec2").delete_launch_template(LaunchTemplateId=chosen["id"])
    group = nodegroup(aws)
    assert (group["status"], group["health"]["issues"][0]["code"]) == (
        "DEGRADED",
        "Ec2LaunchTemplateNotFound",
    )


def test_the_size_of_a_node_group_is_changed_by_one_update_at_a_time(aws: Aws, base: Ground) -> None:
    eks = aws.client("eks")
    create_nodegroup(aws, base)
    aws.advance(180)
    names = {"clusterName": "one", "nodegroupName": "cpu"}
    update = eks.update_nodegroup_config(
        **names, scalingConfig={"minSize": 0, "maxSize": 4, "desiredSize": 3}
    )
    assert nodegroup(aws)["status"] == "UPDATING"
    assert len(machines(aws)) == 3
    with refused("ResourceInUseException", "update in progress"):
        eks.update_nodegroup_config(**names, labels={"addOrUpdateLabels": {"a": "b"}})
    with refused("ResourceInUseException", "being updated"):
        eks.delete_nodegroup(**names)
    aws.advance(60)
    done = eks.describe_update(name="one", nodegroupName="cpu", updateId=update["update"]["id"])["update"]
    assert (done["status"], nodegroup(aws)["status"]) == ("Successful", "ACTIVE")
    eks.update_nodegroup_config(**names, scalingConfig={"desiredSize": 0})
    aws.advance(60)
    assert (len(machines(aws)), scaling_group(aws)["DesiredCapacity"]) == (0, 0)


def test_a_version_update_respects_its_template_and_disruption_budgets(aws: Aws, base: Ground) -> None:
    eks = aws.client("eks")
    chosen = template(aws, InstanceType="m5.large")
    create_nodegroup(aws, base, launchTemplate=chosen)
    aws.advance(180)
    other = aws.client("ec2").create_launch_template(
        LaunchTemplateName="other", LaunchTemplateData={"InstanceType": "m5.large"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    names = {"clusterName": "one", "nodegroupName": "cpu"}
    with refused("InvalidParameterException", "only its version"):
        eks.update_nodegroup_version(**names, launchTemplate={"id": other})
    aws.client("ec2").create_launch_template_version(
        LaunchTemplateId=chosen["id"], LaunchTemplateData={"InstanceType": "m5.xlarge"}
    )
    aws.control(eviction_blocked=True)
    update = eks.update_nodegroup_version(**names, launchTemplate={"id": chosen["id"], "version": "2"})[
        "update"
    ]
    aws.advance(60)
    done = eks.describe_update(name="one", nodegroupName="cpu", updateId=update["id"])["update"]
    assert (done["status"], done["errors"][0]["errorCode"]) == ("Failed", "PodEvictionFailure")


@pytest.mark.parametrize(
    ("strategy", "status", "code"),
    [("DEFAULT", "Failed", "NodeCreationFailure"), ("MINIMAL", "Successful", None)],
)
def test_an_update_needs_capacity_for_one_more_node_unless_its_strategy_is_minimal(
    aws: Aws, base: Ground, strategy: str, status: str, code: str | None
) -> None:
    eks = aws.client("eks")
    create_nodegroup(aws, base, updateConfig={"maxUnavailable": 1, "updateStrategy": strategy})
    aws.advance(180)
    (kind,) = nodegroup(aws)["instanceTypes"]
    aws.control(capacity={f"{kind}/{zone}/on-demand": 0 for zone in ZONES})
    names = {"clusterName": "one", "nodegroupName": "cpu"}
    update = eks.update_nodegroup_version(**names, releaseVersion="1.35.2-20261118")["update"]
    aws.advance(60)
    done = eks.describe_update(name="one", nodegroupName="cpu", updateId=update["id"])["update"]
    assert (done["status"], [each["errorCode"] for each in done["errors"]]) == (
        status,
        [code] if code else [],
    )
