"""The launch template's data for each known GPU type."""

from __future__ import annotations

import base64
import email.policy
import json
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.model import Shape
from botocore.validate import ParamValidator

from cloudrec.providers.aws.nodes import templates
from cloudrec.providers.aws.offers import KNOWN, described

GROUPS = ["sg-nodes", "sg-cluster"]
TAGS = {"cloudrec-cluster": "demo", "Name": "cloudrec-demo-gpu"}


def data_of(instance_type: str, **changes: Any) -> dict[str, Any]:
    asked = {"root_gib": 200, "capacity": "spot", "reservation": "", **changes}
    content = templates.gpu_content(KNOWN[instance_type], **asked)
    made = templates.template(content, groups=GROUPS, placement_group="cloudrec-demo-a", tags=TAGS)
    return dict(made)


@pytest.mark.parametrize(
    ("instance_type", "cards"),
    [
        ("p4d.24xlarge", 4),
        ("p4de.24xlarge", 4),
        ("p5.4xlarge", 1),
        ("p5.48xlarge", 32),
        ("p5en.48xlarge", 16),
        ("p6-b200.48xlarge", 8),
        ("g6e.48xlarge", 4),
    ],
)
def test_each_network_card_has_one_efa_interface_and_the_first_an_ip_interface_too(
    instance_type: str, cards: int
) -> None:
    data = data_of(instance_type)
    seen = [
        (each["NetworkCardIndex"], each["DeviceIndex"], each["InterfaceType"])
        for each in data["NetworkInterfaces"]
    ]
    assert seen == [
        (0, 0, "interface"),
        (0, 1, "efa-only"),
        *((card, 0, "efa-only") for card in range(1, cards)),
    ]


@pytest.mark.parametrize("instance_type", ["p4d.24xlarge", "p5.48xlarge"])
def test_security_groups_are_set_per_interface_if_there_are_interfaces(instance_type: str) -> None:
    data = data_of(instance_type)
    assert all(each["Groups"] == GROUPS for each in data["NetworkInterfaces"])
    assert "SecurityGroupIds" not in data


@pytest.mark.parametrize("instance_type", ["g5.xlarge", "g6.xlarge"])
def test_a_node_without_efa_names_no_interfaces(instance_type: str) -> None:
    data = data_of(instance_type)
    assert "NetworkInterfaces" not in data
    assert data["SecurityGroupIds"] == GROUPS


@pytest.mark.parametrize("instance_type", sorted(KNOWN))
def test_disks_are_encrypted_imds_requires_tokens_and_resources_are_tagged(
    instance_type: str,
) -> None:
    data = data_of(instance_type)
    assert [disk["Ebs"]["Encrypted"] for disk in data["BlockDeviceMappings"]] == [True]
    assert data["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
    }
    tagged = {
        each["ResourceType"]: {tag["Key"]: tag["Value"] for tag in each["Tags"]}
        for each in data["TagSpecifications"]
    }
    assert tagged == {"instance": TAGS, "volume": TAGS, "network-interface": TAGS}


@pytest.mark.parametrize("instance_type", sorted(KNOWN))
def test_the_template_has_no_field_that_eks_refuses(instance_type: str) -> None:
    data = data_of(instance_type)
    assert not {"IamInstanceProfile", "SubnetId", "KeyName"} & data.keys()
    assert not any("SubnetId" in each for each in data.get("NetworkInterfaces", []))


@pytest.fixture(scope="module")
def shape() -> Shape:
    """EC2's description of a launch template's data."""
    client = boto3.Session("x", "y", region_name="us-east-1").client("ec2")
    return client.meta.service_model.shape_for("RequestLaunchTemplateData")


@pytest.mark.parametrize("instance_type", sorted(KNOWN))
def test_every_parameter_is_valid_for_ec2(instance_type: str, shape: Shape) -> None:
    for asked in ({}, {"capacity": "capacity-block", "reservation": "cr-1"}):
        report = ParamValidator().validate(data_of(instance_type, **asked), shape)
        assert not report.has_errors(), report.generate_report()


def node_config(data: dict[str, Any]) -> dict[str, Any]:
    """The spec of nodeadm's NodeConfig in the user data."""
    text = base64.b64decode(data["UserData"]).decode()
    (part,) = email.message_from_string(text, policy=email.policy.default).iter_parts()
    assert part.get_content_type() == "application/node.eks.aws"
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    spec: dict[str, Any] = json.loads(payload)["spec"]
    return spec


def test_local_disks_are_configured_by_a_mime_part_that_eks_can_merge() -> None:
    for instance_type in ("p5.48xlarge", "g5.xlarge"):
        config = node_config(data_of(instance_type))
        assert config["instance"]["localStorage"] == {"strategy": "RAID0"}


def test_images_are_pulled_in_parallel_on_local_disks_unless_that_is_turned_off() -> None:
    for instance_type in ("p4d.24xlarge", "p6-b200.48xlarge"):
        assert node_config(data_of(instance_type))["featureGates"] == {"FastImagePull": True}
        off = data_of(instance_type, pulls_in_parallel=False)
        assert "featureGates" not in node_config(off)
    without = replace(KNOWN["p4d.24xlarge"], nvme_gb=0)
    content = templates.gpu_content(without, root_gib=200, capacity="spot", reservation="")
    made = templates.template(content, groups=GROUPS, placement_group="", tags=TAGS)
    assert "featureGates" not in node_config(dict(made))


def test_containers_of_nodes_with_efa_may_lock_as_much_memory_as_a_machine_has() -> None:
    runtime = node_config(data_of("p4d.24xlarge"))["containerd"]["baseRuntimeSpec"]
    limits = {each["type"]: (each["soft"], each["hard"]) for each in runtime["process"]["rlimits"]}
    assert limits["RLIMIT_NOFILE"] == (65536, 1048576)
    soft, hard = limits["RLIMIT_MEMLOCK"]
    assert soft == hard > 1024 * max(each.memory_gib for each in KNOWN.values()) * 2**20
    assert int(float(soft)) == soft  # a JSON parser that reads numbers as floats loses nothing
    assert "containerd" not in node_config(data_of("g5.xlarge"))


def test_a_first_card_without_efa_has_the_ip_interface_alone() -> None:
    cards = [{"NetworkCardIndex": 0, "InterfaceTypes": ["interface"]}]
    cards += [{"NetworkCardIndex": at, "InterfaceTypes": ["interface", "efa", "efa-only"]} for at in (1, 2)]
    row: Any = {
        "InstanceType": "p6-b300.48xlarge",
        "VCpuInfo": {"DefaultVCpus": 192},
        "MemoryInfo": {"SizeInMiB": 4194304},
        "NetworkInfo": {"NetworkCards": cards, "EfaInfo": {"MaximumEfaInterfaces": 2}},
    }
    for hardware, count in ((described(row), 2), (KNOWN["p6-b300.48xlarge"], 16)):
        layout = templates.interfaces(hardware.efa_cards, GROUPS)
        seen = [(each["NetworkCardIndex"], each["DeviceIndex"], each["InterfaceType"]) for each in layout]
        assert seen == [(0, 0, "interface"), *((card, 0, "efa-only") for card in range(1, count + 1))]


def test_the_template_targets_a_capacity_block() -> None:
    data = data_of("p5.48xlarge", capacity="capacity-block", reservation="cr-1")
    assert data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert data["CapacityReservationSpecification"]["CapacityReservationTarget"] == {
        "CapacityReservationId": "cr-1"
    }
    assert "InstanceMarketOptions" not in data_of("p5.48xlarge", reservation="cr-1")


def test_a_changed_template_has_another_digest() -> None:
    small, large = (
        templates.gpu_content(KNOWN["p4d.24xlarge"], root_gib=gib, capacity="spot", reservation="")
        for gib in (100, 200)
    )
    assert templates.digest(small) != templates.digest(large)
    slow = templates.gpu_content(
        KNOWN["p4d.24xlarge"], root_gib=200, capacity="spot", reservation="", pulls_in_parallel=False
    )
    assert templates.digest(slow) != templates.digest(large)


def test_digests_of_existing_templates_do_not_change() -> None:
    gpu = templates.gpu_content(KNOWN["p4d.24xlarge"], root_gib=200, capacity="spot", reservation="")
    assert templates.digest(gpu) == "fb233f3658901e3e"
    assert templates.digest(templates.TemplateContent(root_gib=50)) == "f8feb9c4d77c49ba"
