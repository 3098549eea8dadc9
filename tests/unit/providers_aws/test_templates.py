"""The launch template's data, for each GPU type that we know."""

from __future__ import annotations

import base64
import email.policy
import json
from typing import Any

import boto3
import pytest
from botocore.validate import ParamValidator

from cloudrec.providers.aws import templates
from cloudrec.providers.aws.offers import KNOWN

GROUPS = ["sg-nodes", "sg-cluster"]
TAGS = {"cloudrec-cluster": "demo", "Name": "cloudrec-demo-gpu"}


def data_of(instance_type: str, **changes: Any) -> dict[str, Any]:
    asked = {"root_gib": 200, "market": "spot", "reservation": "", **changes}
    properties = templates.gpu_properties(KNOWN[instance_type], **asked)
    return templates.template(properties, groups=GROUPS, placement_group="cloudrec-demo-a", tags=TAGS)


@pytest.mark.parametrize(
    ("instance_type", "cards"),
    [("p4d.24xlarge", 4), ("p4de.24xlarge", 4), ("p5.48xlarge", 32), ("p5en.48xlarge", 16)],
)
def test_each_network_card_carries_one_efa_interface_and_the_first_an_ip_interface_too(
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
def test_with_interfaces_security_groups_stand_in_each_of_them_and_nowhere_else(instance_type: str) -> None:
    data = data_of(instance_type)
    assert all(each["Groups"] == GROUPS for each in data["NetworkInterfaces"])
    assert "SecurityGroupIds" not in data


@pytest.mark.parametrize("instance_type", ["g5.xlarge", "g6.xlarge"])
def test_a_node_without_efa_names_no_interfaces(instance_type: str) -> None:
    data = data_of(instance_type)
    assert "NetworkInterfaces" not in data
    assert data["SecurityGroupIds"] == GROUPS


@pytest.mark.parametrize("instance_type", sorted(KNOWN))
def test_disks_are_encrypted_the_metadata_service_wants_tokens_and_everything_is_tagged(
    instance_type: str,
) -> None:
    data = data_of(instance_type)
    assert [disk["Ebs"]["Encrypted"] for disk in data["BlockDeviceMappings"]] == [True]
    assert data["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 2,
    }
    tagged = {
        each["ResourceType"]: {tag["Key"]: tag["Value"] for tag in each["Tags"]}
        for each in data["TagSpecifications"]
    }
    assert tagged == {"instance": TAGS, "volume": TAGS, "network-interface": TAGS}


@pytest.mark.parametrize("instance_type", sorted(KNOWN))
def test_what_eks_refuses_in_a_template_is_not_there(instance_type: str) -> None:
    data = data_of(instance_type)
    assert not {"IamInstanceProfile", "SubnetId", "KeyName"} & data.keys()
    assert not any("SubnetId" in each for each in data.get("NetworkInterfaces", []))


@pytest.mark.parametrize("instance_type", sorted(KNOWN))
def test_ec2_knows_every_parameter(instance_type: str) -> None:
    client = boto3.Session("x", "y", region_name="us-east-1").client("ec2")
    shape = client.meta.service_model.shape_for("RequestLaunchTemplateData")
    for asked in ({}, {"market": "capacity-block", "reservation": "cr-1"}):
        report = ParamValidator().validate(data_of(instance_type, **asked), shape)
        assert not report.has_errors(), report.generate_report()


def test_local_disks_are_joined_by_a_mime_part_that_eks_can_merge() -> None:
    text = base64.b64decode(data_of("p5.48xlarge")["UserData"]).decode()
    (part,) = email.message_from_string(text, policy=email.policy.default).iter_parts()
    assert part.get_content_type() == "application/node.eks.aws"
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    config = json.loads(payload)
    assert config["spec"]["instance"]["localStorage"] == {"strategy": "RAID0"}


def test_a_capacity_block_is_bought_from_by_the_template() -> None:
    data = data_of("p5.48xlarge", market="capacity-block", reservation="cr-1")
    assert data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert data["CapacityReservationSpecification"]["CapacityReservationTarget"] == {
        "CapacityReservationId": "cr-1"
    }
    assert "InstanceMarketOptions" not in data_of("p5.48xlarge", reservation="cr-1")


def test_a_changed_template_has_another_digest() -> None:
    small, large = (
        templates.gpu_properties(KNOWN["p4d.24xlarge"], root_gib=gib, market="spot", reservation="")
        for gib in (100, 200)
    )
    assert templates.digest(small) == templates.digest(dict(reversed(small.items())))
    assert templates.digest(small) != templates.digest(large)
