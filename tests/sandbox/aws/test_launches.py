"""What EC2 and EKS refuse in templates of GPU nodes: interfaces, images, groups, disks, user data, labels."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from cloudrec_sandbox.aws.services.ec2.launches import interface_faults
from tests.sandbox.aws.support import Aws, refused
from tests.sandbox.aws.support_eks import Ground, active_cluster, create_nodegroup, ground, nodegroup

P4D, P5, B300 = "p4d.24xlarge", "p5.48xlarge", "p6-b300.48xlarge"
PRIMARY = (0, 0, "interface")


def faults(kind: str, *layout: tuple[int, int, str]) -> list[str]:
    interfaces = [
        {"NetworkCardIndex": card, "DeviceIndex": device, "InterfaceType": what}
        for card, device, what in layout
    ]
    return [fault.code for fault in interface_faults(kind, interfaces)]


@pytest.mark.parametrize(
    ("kind", "layout", "code"),
    [
        (P4D, [(0, 0, "efa-only")], "InvalidParameterCombination"),
        (P4D, [(1, 0, "interface")], "InvalidParameterCombination"),
        (P4D, [PRIMARY, (7, 0, "efa-only")], "InvalidParameterValue"),
        (P4D, [PRIMARY, (1, 15, "efa-only")], "InvalidParameterValue"),
        (P4D, [PRIMARY, (1, 0, "efa-only"), (1, 0, "interface")], "InvalidParameterValue"),
        (P5, [PRIMARY, (0, 1, "efa-only"), (0, 2, "interface")], "InvalidParameterValue"),
        (P5, [PRIMARY, (0, 1, "efa-only"), (0, 1, "interface")], "AttachmentLimitExceeded"),
        ("g5.12xlarge", [(0, 0, "efa"), (0, 1, "efa-only")], "AttachmentLimitExceeded"),
        ("g5.xlarge", [(0, 0, "efa")], "InvalidParameterCombination"),
        ("g5.xlarge", [PRIMARY, *((0, at, "interface") for at in range(1, 5))], "AttachmentLimitExceeded"),
        (B300, [PRIMARY, (0, 1, "efa-only")], "InvalidParameterCombination"),
    ],
)
def test_ec2_refuses_interfaces_that_the_type_does_not_have(
    kind: str, layout: list[tuple[int, int, str]], code: str
) -> None:
    assert code in faults(kind, *layout)


@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        (P4D, [PRIMARY, (0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 4))]),
        (P5, [PRIMARY, (0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 32))]),
        (B300, [PRIMARY, *((card, 0, "efa-only") for card in range(1, 17))]),
        ("g5.12xlarge", [(0, 0, "efa")]),
        ("g5.xlarge", []),
    ],
)
def test_ec2_accepts_the_documented_layouts(kind: str, layout: list[tuple[int, int, str]]) -> None:
    assert faults(kind, *layout) == []


def interface(card: int, device: int, what: str) -> dict[str, Any]:
    return {"NetworkCardIndex": card, "DeviceIndex": device, "InterfaceType": what}


def test_an_instance_with_an_impossible_template_is_not_run(aws: Aws) -> None:
    ec2 = aws.client("ec2")

    def run(kind: str, **more: Any) -> None:
        ec2.run_instances(ImageId="ami-12c6146b", InstanceType=kind, MinCount=1, MaxCount=1, **more)

    aws.control(quotas={"ec2/L-417A185B": 1000, "ec2/L-DB2E81BA": 1000})
    with refused("InvalidParameterCombination", "primary"):
        run(P4D, NetworkInterfaces=[interface(0, 0, "efa-only")])
    with refused("InvalidGroup.NotFound", "sg-0123456789abcdef0"):
        run(P4D, SecurityGroupIds=["sg-0123456789abcdef0"])
    with refused("InvalidPlacementGroup.Unknown"):
        run(P4D, Placement={"GroupName": "missing"})
    with refused("InvalidParameterValue", "'arm64'", "'x86_64'"):
        run("g5g.xlarge")
    assert ec2.describe_instances()["Reservations"] == []


@pytest.fixture
def base(aws: Aws) -> Ground:
    base = ground(aws)
    active_cluster(aws, base)
    aws.control(quotas={"ec2/L-417A185B": 1000, "ec2/L-DB2E81BA": 1000})
    return base


def template(aws: Aws, **data: Any) -> dict[str, str]:
    made = aws.client("ec2").create_launch_template(LaunchTemplateName="one", LaunchTemplateData=data)
    return {"id": made["LaunchTemplate"]["LaunchTemplateId"]}


def root(gib: int) -> list[dict[str, Any]]:
    return [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": gib}}]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        ({"NetworkInterfaces": [interface(0, 0, "efa-only")]}, "InvalidRequestException", "primary"),
        ({"NetworkInterfaces": [interface(7, 0, "interface")]}, "InvalidRequestException", "card"),
        ({"Placement": {"GroupName": "missing"}}, "InvalidRequestException", "'missing' is unknown"),
        ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidRequestException", "does not exist"),
        ({"BlockDeviceMappings": root(8)}, "InvalidRequestException", "expect size >= 20GB"),
        ({"InstanceType": "m5.large"}, "InvalidParameterException", "[m5.large] is not a valid instanceType"),
        ({"InstanceType": "g5g.xlarge"}, "InvalidParameterException", "[g5g.xlarge] is not a valid"),
    ],
)
def test_eks_refuses_a_template_that_launches_nothing(
    aws: Aws, base: Ground, data: dict[str, Any], code: str, words: str
) -> None:
    chosen = template(aws, **{"InstanceType": P4D, **data})
    with refused(code, words):
        create_nodegroup(aws, base, launchTemplate=chosen, amiType="AL2023_x86_64_NVIDIA")
    assert aws.client("eks").list_nodegroups(clusterName="one")["nodegroups"] == []


def test_eks_refuses_a_new_version_of_a_template_that_launches_nothing(aws: Aws, base: Ground) -> None:
    chosen = template(aws, InstanceType="m5.large", BlockDeviceMappings=root(20))
    create_nodegroup(aws, base, launchTemplate=chosen, amiType="AL2023_x86_64_STANDARD")
    aws.advance(180)
    aws.client("ec2").create_launch_template_version(
        LaunchTemplateId=chosen["id"],
        LaunchTemplateData={"InstanceType": "m5.large", "BlockDeviceMappings": root(8)},
    )
    with refused("InvalidRequestException", "expect size >= 20GB"):
        aws.client("eks").update_nodegroup_version(
            clusterName="one", nodegroupName="cpu", launchTemplate={"id": chosen["id"], "version": "2"}
        )


@pytest.mark.parametrize("key", ["kubernetes.io/role", "node.k8s.io/x", "eks.amazonaws.com/x"])
def test_eks_refuses_labels_with_reserved_prefixes(aws: Aws, base: Ground, key: str) -> None:
    with refused("InvalidParameterException", "reserved prefixes"):
        create_nodegroup(aws, base, labels={key: "x"})
    create_nodegroup(aws, base, labels={"team": "x"})
    aws.advance(180)
    with refused("InvalidParameterException", "reserved prefixes"):
        aws.client("eks").update_nodegroup_config(
            clusterName="one", nodegroupName="cpu", labels={"addOrUpdateLabels": {key: "x"}}
        )


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("#!/bin/sh\ntrue\n", "CREATE_FAILED"),
        ('MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="x"\n\n--x\n\ntrue\n--x--\n', "ACTIVE"),
    ],
)
def test_user_data_of_managed_nodes_must_be_mime(aws: Aws, base: Ground, text: str, status: str) -> None:
    data = base64.b64encode(text.encode()).decode()
    chosen = template(aws, InstanceType="m5.large", UserData=data)
    create_nodegroup(aws, base, launchTemplate=chosen, amiType="AL2023_x86_64_STANDARD")
    aws.advance(180)
    found = nodegroup(aws)
    assert found["status"] == status
    codes = [issue["code"] for issue in found["health"]["issues"]]
    assert codes == ([] if status == "ACTIVE" else ["Ec2LaunchTemplateInvalidConfiguration"])
