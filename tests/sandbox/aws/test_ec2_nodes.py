"""Launch templates, placement groups, reservations, spot and prices as the cloud has them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.config import Config

from tests.sandbox.aws.support import ZONES, Aws, refused
from tests.sandbox.aws.support_ec2 import make_net

MISSING = "lt-0123456789abcdef0"
P4D, P5 = "p4d.24xlarge", "p5.48xlarge"
UNCHECKED = Config(parameter_validation=False, retries={"max_attempts": 1})  # boto3 refuses nothing itself


def template(aws: Aws, name: str = "gpu", **data: Any) -> str:
    made = aws.client("ec2").create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData={"InstanceType": P4D, **data}
    )
    found: str = made["LaunchTemplate"]["LaunchTemplateId"]
    return found


def test_launch_template_name_in_use_is_refused(aws: Aws) -> None:
    template(aws)
    with refused("InvalidLaunchTemplateName.AlreadyExistsException"):
        template(aws)


def test_a_missing_launch_template_has_three_error_codes(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    for call in (ec2.describe_launch_template_versions, ec2.delete_launch_template):
        with refused("InvalidLaunchTemplateId.NotFound"):
            call(LaunchTemplateId=MISSING)
        with refused("InvalidLaunchTemplateName.NotFoundException"):
            call(LaunchTemplateName="missing")
    with refused("InvalidLaunchTemplateId.NotFound"):
        ec2.describe_launch_templates(LaunchTemplateIds=[MISSING])
    with refused("InvalidLaunchTemplateName.NotFoundException"):
        ec2.describe_launch_templates(LaunchTemplateNames=["missing"])
    with refused("InvalidLaunchTemplateId.VersionNotFound"):
        ec2.describe_launch_template_versions(LaunchTemplateId=template(aws), Versions=["7"])


def run(aws: Aws, **more: Any) -> str:
    ec2 = aws.client("ec2")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    made = ec2.run_instances(ImageId=image, InstanceType="m5.large", MinCount=1, MaxCount=1, **more)
    instance: str = made["Instances"][0]["InstanceId"]
    return instance


def test_launch_template_with_a_new_profile_starts_nothing(aws: Aws) -> None:
    aws.client("iam").create_instance_profile(InstanceProfileName="nodes")
    with refused("InvalidParameterValue", "Invalid IAM Instance Profile name"):
        run(aws, IamInstanceProfile={"Name": "nodes"})
    aws.advance(120)
    run(aws, IamInstanceProfile={"Name": "nodes"})


def test_launch_template_without_capacity_starts_nothing(aws: Aws) -> None:
    zone = ZONES[0]
    aws.control(capacity={f"m5.large/{zone}/on-demand": 0}, quotas={"ec2/L-1216C47A": 100})
    with refused("InsufficientInstanceCapacity", zone):
        run(aws, Placement={"AvailabilityZone": zone})
    run(aws, Placement={"AvailabilityZone": ZONES[1]})


def test_launch_template_beyond_the_quota_of_vcpus_starts_nothing(aws: Aws) -> None:
    aws.control(quotas={"ec2/L-1216C47A": 3})
    run(aws)
    with refused("VcpuLimitExceeded"):
        run(aws)


def test_a_fleet_without_capacity_reports_it_in_a_successful_response(aws: Aws) -> None:
    aws.control(capacity={f"{P4D}/{ZONES[0]}/on-demand": 0}, quotas={"ec2/L-417A185B": 96})
    config = {
        "LaunchTemplateSpecification": {"LaunchTemplateId": template(aws), "Version": "1"},
        "Overrides": [{"AvailabilityZone": ZONES[0]}],
    }
    made = aws.client("ec2").create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[config],
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
    )
    assert [error["ErrorCode"] for error in made["Errors"]] == ["InsufficientInstanceCapacity"]
    assert made["Instances"] == []


def group(aws: Aws, name: str = "pg") -> None:
    aws.client("ec2").create_placement_group(GroupName=name, Strategy="cluster")


def test_placement_group_name_in_use_is_refused_and_a_missing_one_is_unknown(aws: Aws) -> None:
    group(aws)
    with refused("InvalidPlacementGroup.Duplicate"):
        group(aws)
    with refused("InvalidPlacementGroup.Unknown"):
        aws.client("ec2").describe_placement_groups(GroupNames=["missing"])
    with refused("InvalidPlacementGroup.Unknown"):
        aws.client("ec2").delete_placement_group(GroupName="missing")


def test_placement_group_is_available_after_a_moment(aws: Aws) -> None:
    group(aws)

    def state() -> str:
        rows = aws.client("ec2").describe_placement_groups(GroupNames=["pg"])["PlacementGroups"]
        found: str = rows[0]["State"]
        return found

    assert state() == "pending"
    aws.advance(2)
    assert state() == "available"
    aws.client("ec2").delete_placement_group(GroupName="pg")
    assert state() == "deleting"
    aws.advance(2)
    with refused("InvalidPlacementGroup.Unknown"):
        state()


def test_placement_group_delete_with_an_instance_in_it_is_refused(aws: Aws) -> None:
    group(aws)
    instance = run(aws, Placement={"GroupName": "pg"})
    with refused("InvalidPlacementGroup.InUse"):
        aws.client("ec2").delete_placement_group(GroupName="pg")
    aws.client("ec2").terminate_instances(InstanceIds=[instance])
    aws.advance(30)
    with refused("InvalidPlacementGroup.InUse"):
        aws.client("ec2").delete_placement_group(GroupName="pg")
    aws.advance(20)
    aws.client("ec2").delete_placement_group(GroupName="pg")


def test_instances_block_their_subnet_and_group(aws: Aws) -> None:
    net = make_net(aws)
    nodes = net.group()
    instance = run(aws, SubnetId=net.subnets[0], SecurityGroupIds=[nodes])
    with refused("DependencyViolation"):
        net.ec2.delete_subnet(SubnetId=net.subnets[0])
    with refused("DependencyViolation"):
        net.ec2.delete_security_group(GroupId=nodes)
    net.ec2.terminate_instances(InstanceIds=[instance])
    with refused("DependencyViolation"):
        net.ec2.delete_subnet(SubnetId=net.subnets[0])
    net.aws.advance(30)
    net.ec2.delete_subnet(SubnetId=net.subnets[0])
    net.ec2.delete_security_group(GroupId=nodes)


def test_capacity_blocks_are_offered_bought_and_become_active(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    aws.control(capacity_blocks={f"{P5}/{ZONES[1]}": 2})
    wanted = {"InstanceType": P5, "InstanceCount": 2, "CapacityDurationHours": 48}
    offers = ec2.describe_capacity_block_offerings(**wanted)["CapacityBlockOfferings"]
    assert [offer["AvailabilityZone"] for offer in offers] == [ZONES[1]]
    assert float(offers[0]["UpfrontFee"]) > 0
    bought = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offers[0]["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )["CapacityReservation"]
    assert (bought["State"], bought["ReservationType"]) == ("payment-pending", "capacity-block")
    assert ec2.describe_capacity_block_offerings(**wanted)["CapacityBlockOfferings"] == []
    name = bought["CapacityReservationId"]

    def state() -> str:
        row = ec2.describe_capacity_reservations(CapacityReservationIds=[name])["CapacityReservations"][0]
        return str(row["State"])

    aws.advance(3600)
    assert state() == "scheduled"
    aws.advance(2 * 86400)
    assert state() == "active"
    with refused("InvalidState"):
        ec2.cancel_capacity_reservation(CapacityReservationId=name)


def test_a_block_whose_payment_fails_is_released_and_not_billed(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    aws.control(bill=True, capacity_block_payment="failed")
    offers = ec2.describe_capacity_block_offerings(
        InstanceType=P5, InstanceCount=1, CapacityDurationHours=24
    )["CapacityBlockOfferings"]
    bought = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offers[0]["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )["CapacityReservation"]
    aws.advance(13 * 3600)
    row = ec2.describe_capacity_reservations(CapacityReservationIds=[bought["CapacityReservationId"]])
    assert row["CapacityReservations"][0]["State"] == "payment-failed"
    assert aws.ask("GET", "/bill")["usd"] == 0
    aws.control(bill=False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"CapacityDurationHours": 25},
        {"CapacityDurationHours": 15 * 24},
        {"InstanceCount": 65},
        {"InstanceCount": 0},
        {"InstanceType": "p99.large"},
    ],
)
def test_a_search_for_blocks_that_are_not_sold_is_refused(aws: Aws, wrong: dict[str, Any]) -> None:
    asked = {"InstanceType": P5, "InstanceCount": 1, "CapacityDurationHours": 24, **wrong}
    with refused("InvalidParameterValue"):
        aws.client("ec2").describe_capacity_block_offerings(**asked)


def test_tags_of_a_block_are_those_of_a_reservation(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    offers = ec2.describe_capacity_block_offerings(
        InstanceType=P5, InstanceCount=1, CapacityDurationHours=24
    )["CapacityBlockOfferings"]
    with refused("InvalidParameterValue", "taggable"):
        ec2.purchase_capacity_block(
            CapacityBlockOfferingId=offers[0]["CapacityBlockOfferingId"],
            InstancePlatform="Linux/UNIX",
            TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "b"}]}],
        )


def test_capacity_blocks_are_filtered_by_dates(aws: Aws) -> None:
    soon = datetime.fromtimestamp(aws.control()["virtual_time"], UTC) + timedelta(hours=30)
    offers = aws.client("ec2").describe_capacity_block_offerings(
        InstanceType=P5, InstanceCount=1, CapacityDurationHours=24, EndDateRange=soon
    )["CapacityBlockOfferings"]
    assert offers == []


def test_capacity_reservations_are_created_and_cancelled(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    name = ec2.create_capacity_reservation(
        InstanceType=P4D, InstancePlatform="Linux/UNIX", AvailabilityZone=ZONES[0], InstanceCount=1
    )["CapacityReservation"]["CapacityReservationId"]
    assert f"ec2:capacity-reservation:{name}" in aws.state()
    ec2.cancel_capacity_reservation(CapacityReservationId=name)
    assert f"ec2:capacity-reservation:{name}" in aws.pending()
    with refused("InvalidCapacityReservationId.NotFound"):
        ec2.cancel_capacity_reservation(CapacityReservationId="cr-0123456789abcdef0")


def test_spot_prices_are_current_and_can_be_set(aws: Aws) -> None:
    aws.control(spot_price_factor={f"{P4D}/{ZONES[1]}": 0.25})
    now = datetime.fromtimestamp(aws.control()["virtual_time"], UTC)
    rows = aws.client("ec2").describe_spot_price_history(
        InstanceTypes=[P4D], ProductDescriptions=["Linux/UNIX"], StartTime=now
    )["SpotPriceHistory"]
    by_zone = {row["AvailabilityZone"]: float(row["SpotPrice"]) for row in rows}
    assert by_zone[ZONES[1]] == pytest.approx(21.96 * 0.25, rel=1e-3)
    assert all(1 < price < 21.96 for price in by_zone.values())
    assert all(0 <= (now - row["Timestamp"]).total_seconds() < 86400 for row in rows)


def test_spot_placement_scores_show_the_best_zone(aws: Aws) -> None:
    aws.control(spot_scores={f"{P4D}/{ZONES[0]}": 1, f"{P4D}/{ZONES[1]}": 9})
    ec2 = aws.client("ec2")
    ids = {z["ZoneName"]: z["ZoneId"] for z in ec2.describe_availability_zones()["AvailabilityZones"]}
    rows = ec2.get_spot_placement_scores(
        InstanceTypes=[P4D], TargetCapacity=2, SingleAvailabilityZone=True, RegionNames=["us-east-1"]
    )["SpotPlacementScores"]
    by_zone = {row["AvailabilityZoneId"]: row["Score"] for row in rows}
    assert (by_zone[ids[ZONES[0]]], rows[0]) == (
        1,
        {"Region": "us-east-1", "AvailabilityZoneId": ids[ZONES[1]], "Score": 9},
    )
    with pytest.raises(ValueError, match="from 1 to 10"):
        aws.control(spot_scores={P4D: 11})


def test_on_demand_prices_are_listed(aws: Aws) -> None:
    filters = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value}
        for field, value in (
            ("instanceType", P5),
            ("regionCode", "us-east-1"),
            ("operatingSystem", "Linux"),
            ("capacitystatus", "Used"),
        )
    ]
    listed = aws.client("pricing").get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]
    (term,) = json.loads(listed[0])["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert (len(listed), float(dimension["pricePerUnit"]["USD"])) == (1, 55.04)
    filters[0]["Value"] = "x1.none"
    assert aws.client("pricing").get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"] == []


def products(aws: Aws, service: str, *filters: tuple[str, str, str]) -> dict[tuple[str, str], float]:
    """(Family, usage type) -> price, of the products that match filters (type, field, value)."""
    rows = [{"Type": kind, "Field": field, "Value": value} for kind, field, value in filters]
    found = aws.client("pricing").get_products(ServiceCode=service, Filters=rows)["PriceList"]
    usd = {}
    for text in found:
        product = json.loads(text)
        (term,) = product["terms"]["OnDemand"].values()
        (dimension,) = term["priceDimensions"].values()
        described = product["product"]
        usage = described["attributes"]["usagetype"]
        usd[described["productFamily"], usage] = float(dimension["pricePerUnit"]["USD"])
    return usd


def test_the_price_list_filters_as_its_model_says(aws: Aws) -> None:
    here, abroad = ("TERM_MATCH", "regionCode", "us-east-1"), ("TERM_MATCH", "regionCode", "us-east-2")
    nat = ("TERM_MATCH", "productFamily", "NAT Gateway")
    assert products(aws, "AmazonEC2", here, nat)["NAT Gateway", "NatGateway-Hours"] == 0.045
    assert products(aws, "AmazonEC2", abroad, nat)["NAT Gateway", "USE2-NatGateway-Bytes"] == 0.0495
    endpoint = ("CONTAINS", "usagetype", "VpcEndpoint")
    assert len(products(aws, "AmazonVPC", here, endpoint)) == 3
    assert len(products(aws, "AmazonVPC", here, ("NONE_OF", "usagetype", "VpcEndpoint-Hours"), endpoint)) == 2
    either = ("ANY_OF", "productFamily", "Load Balancer, Load Balancer-Network")
    assert set(products(aws, "AWSELB", here, either).values()) == {0.0225, 0.025}
    assert products(aws, "AmazonEKS", here, ("TERM_MATCH", "noSuchField", "x")) == {}
    only_blocks = ("TERM_MATCH", "instanceType", "p5e.48xlarge")
    assert products(aws, "AmazonEC2", here, only_blocks) == {}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"ServiceCode": "AmazonMoon"}, "NotFoundException"),
        (
            {"ServiceCode": "AmazonEC2", "Filters": [{"Type": "LIKE", "Field": "a", "Value": "b"}]},
            "InvalidParameterException",
        ),
        ({"ServiceCode": "AmazonEC2", "MaxResults": 101}, "InvalidParameterException"),
        ({"ServiceCode": "AmazonEC2", "FormatVersion": "v2"}, "InvalidParameterException"),
        ({"ServiceCode": "AmazonEKS", "NextToken": "x"}, "InvalidNextTokenException"),
    ],
)
def test_a_request_that_the_price_list_does_not_understand_is_refused(
    aws: Aws, asked: dict[str, Any], code: str
) -> None:
    with refused(code):
        aws.client("pricing", UNCHECKED).get_products(**asked)


def test_quotas_can_be_read_and_set(aws: Aws) -> None:
    quotas = aws.client("service-quotas")
    wanted = {"ServiceCode": "ec2", "QuotaCode": "L-417A185B"}
    assert quotas.get_service_quota(**wanted)["Quota"]["Value"] == 0
    aws.control(quotas={"ec2/L-417A185B": 192})
    assert quotas.get_service_quota(**wanted)["Quota"]["Value"] == 192
    assert quotas.get_aws_default_service_quota(**wanted)["Quota"]["Value"] == 0
    pages = quotas.get_paginator("list_service_quotas").paginate(
        ServiceCode="ec2", PaginationConfig={"PageSize": 3}
    )
    codes = [row["QuotaCode"] for page in pages for row in page["Quotas"]]
    assert {"L-417A185B", "L-7212CCBC", "L-C4BD4855", "L-DB2E81BA", "L-3819A6DF", "L-0263D0A3"} <= set(codes)
    with refused("NoSuchResourceException"):
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")


def test_eks_images_are_published_as_ssm_parameters(aws: Aws) -> None:
    ssm, front = aws.client("ssm"), "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia"
    image = ssm.get_parameter(Name=f"{front}/recommended/image_id")["Parameter"]["Value"]
    assert image.startswith("ami-")
    assert ssm.get_parameter(Name=f"{front}/recommended/release_version")["Parameter"]["Value"].startswith(
        "1.35."
    )
    with refused("ParameterNotFound"):
        ssm.get_parameter(Name="/aws/service/eks/optimized-ami/1.35/windows/recommended/image_id")
