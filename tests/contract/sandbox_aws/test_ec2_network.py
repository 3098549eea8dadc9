"""EC2's networks refuse, delay and leave behind as the cloud does; names begin with the kind of thing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.sandbox_aws.support import ZONES, Aws, refused
from tests.contract.sandbox_aws.support_ec2 import Net, make_net

NAT_CREATE_S, NAT_DELETE_S, RELEASE_S, DETACH_S = 120, 60, 20, 30
S3 = "com.amazonaws.us-east-1.s3"
STS = "com.amazonaws.us-east-1.sts"


@pytest.fixture
def net(aws: Aws) -> Net:
    return make_net(aws)


def test_any_create_a_second_call_makes_a_second_object(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    made = [ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"] for _ in range(2)]
    assert made[0] != made[1]


def test_any_token_with_the_same_parameters_makes_one_object(net: Net) -> None:
    made = [
        net.ec2.create_route_table(VpcId=net.vpc, ClientToken="once")["RouteTable"]["RouteTableId"]
        for _ in range(2)
    ]
    assert made[0] == made[1]


def test_any_token_with_other_parameters_is_refused(net: Net) -> None:
    net.ec2.create_nat_gateway(SubnetId=net.subnets[0], AllocationId=net.address, ClientToken="once")
    with refused("IdempotentParameterMismatch"):
        net.ec2.create_nat_gateway(SubnetId=net.subnets[1], AllocationId=net.address, ClientToken="once")


@pytest.mark.parametrize("name", ["x" * 256, "sg-mine", "smörgås"])
def test_any_name_that_does_not_fit_is_refused(net: Net, name: str) -> None:
    with refused("InvalidParameterValue"):
        net.ec2.create_security_group(GroupName=name, Description="d", VpcId=net.vpc)


@pytest.mark.parametrize(
    "tags",
    [
        [{"Key": "aws:mine", "Value": ""}],
        [{"Key": "k" * 129, "Value": ""}],
        [{"Key": "k", "Value": "v" * 257}],
    ],
    ids=["reserved", "long key", "long value"],
)
def test_any_tag_that_does_not_fit_is_refused(aws: Aws, tags: list[dict[str, str]]) -> None:
    with refused("InvalidParameterValue"):
        aws.client("ec2").create_vpc(
            CidrBlock="10.0.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": tags}]
        )


def test_any_tag_for_another_kind_of_thing_is_refused(aws: Aws) -> None:
    with refused("InvalidParameterValue", "'subnet' is not a valid taggable resource type"):
        aws.client("ec2").create_vpc(
            CidrBlock="10.0.0.0/16",
            TagSpecifications=[{"ResourceType": "subnet", "Tags": [{"Key": "a", "Value": "1"}]}],
        )


def test_any_dry_run_makes_nothing(aws: Aws) -> None:
    before = aws.state()
    with refused("DryRunOperation"):
        aws.client("ec2").create_vpc(CidrBlock="10.0.0.0/16", DryRun=True)
    assert aws.state() == before


def test_any_quota_of_vpcs_counts_the_default_one(aws: Aws) -> None:
    aws.control(quotas={"vpc/L-F678F1CE": 2})
    aws.client("ec2").create_vpc(CidrBlock="10.0.0.0/16")
    with refused("VpcLimitExceeded"):
        aws.client("ec2").create_vpc(CidrBlock="10.1.0.0/16")


def test_any_quota_of_addresses(aws: Aws) -> None:
    aws.control(quotas={"ec2/L-0263D0A3": 1})
    aws.client("ec2").allocate_address(Domain="vpc")
    with refused("AddressLimitExceeded"):
        aws.client("ec2").allocate_address(Domain="vpc")


def test_any_quota_of_rules(net: Net) -> None:
    net.aws.control(quotas={"vpc/L-0EA8095F": 1})
    group = net.group()
    net.let_in(group, protocol="tcp", port=80)
    with refused("RulesPerSecurityGroupLimitExceeded"):
        net.let_in(group, protocol="tcp", port=81)


def _bare_vpc(aws: Aws) -> str:
    vpc: str = aws.client("ec2").create_vpc(CidrBlock="10.2.0.0/16")["Vpc"]["VpcId"]
    return vpc


def _put_igw(ec2: Any, vpc: str) -> None:
    igw = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=igw, VpcId=vpc)


@pytest.mark.parametrize(
    "put",
    [
        pytest.param(_put_igw, id="internet gateway"),
        pytest.param(lambda ec2, vpc: ec2.create_subnet(VpcId=vpc, CidrBlock="10.2.0.0/24"), id="subnet"),
        pytest.param(lambda ec2, vpc: ec2.create_route_table(VpcId=vpc), id="route table"),
        pytest.param(lambda ec2, vpc: ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=S3), id="endpoint"),
        pytest.param(
            lambda ec2, vpc: ec2.create_security_group(GroupName="g", Description="g", VpcId=vpc),
            id="security group",
        ),
    ],
)
def test_vpc_delete_with_anything_left_is_refused(aws: Aws, put: Any) -> None:
    ec2, vpc = aws.client("ec2"), _bare_vpc(aws)
    put(ec2, vpc)
    with refused("DependencyViolation"):
        ec2.delete_vpc(VpcId=vpc)


def test_vpc_delete_of_an_empty_one(aws: Aws) -> None:
    before = aws.state()
    aws.client("ec2").delete_vpc(VpcId=_bare_vpc(aws))
    assert aws.state() == before


@pytest.mark.parametrize("block", ["10.0.0.0/15", "10.0.0.0/29"])
def test_vpc_create_with_a_block_of_a_wrong_size_is_refused(aws: Aws, block: str) -> None:
    with refused("InvalidVpc.Range"):
        aws.client("ec2").create_vpc(CidrBlock=block)


def test_vpc_create_clears_host_bits(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="100.68.0.18/18")["Vpc"]
    assert vpc["CidrBlock"] == "100.68.0.0/18"
    assert ec2.describe_vpcs(VpcIds=[vpc["VpcId"]])["Vpcs"][0]["CidrBlock"] == "100.68.0.0/18"


def test_subnet_delete_with_an_interface_inside_is_refused(net: Net) -> None:
    net.nat()
    with refused("DependencyViolation"):
        net.ec2.delete_subnet(SubnetId=net.subnets[0])


def test_subnet_delete_takes_its_association_with_it(net: Net) -> None:
    table = net.table()
    net.ec2.associate_route_table(RouteTableId=table, SubnetId=net.subnets[0])
    net.ec2.delete_subnet(SubnetId=net.subnets[0])
    net.ec2.delete_route_table(RouteTableId=table)


def test_subnet_create_that_overlaps_is_refused(net: Net) -> None:
    with refused("InvalidSubnet.Conflict"):
        net.ec2.create_subnet(VpcId=net.vpc, CidrBlock="10.0.0.128/25")


def test_subnet_create_in_a_zone_of_another_region_is_refused(net: Net) -> None:
    with refused("InvalidParameterValue", "us-east-1a"):
        net.ec2.create_subnet(VpcId=net.vpc, CidrBlock="10.0.9.0/24", AvailabilityZone="eu-west-1a")


def test_internet_gateway_detach_while_an_address_is_mapped_is_refused_and_for_a_while_longer(
    net: Net,
) -> None:
    nat = net.nat()
    with refused("DependencyViolation", "mapped public address"):
        net.ec2.detach_internet_gateway(InternetGatewayId=net.igw, VpcId=net.vpc)
    net.ec2.delete_nat_gateway(NatGatewayId=nat)
    net.aws.advance(NAT_DELETE_S)
    with refused("DependencyViolation", "mapped public address"):
        net.ec2.detach_internet_gateway(InternetGatewayId=net.igw, VpcId=net.vpc)
    net.aws.advance(DETACH_S)
    net.ec2.detach_internet_gateway(InternetGatewayId=net.igw, VpcId=net.vpc)


def test_internet_gateway_attach_twice_is_refused(net: Net) -> None:
    with refused("Resource.AlreadyAssociated"):
        net.ec2.attach_internet_gateway(InternetGatewayId=net.igw, VpcId=net.vpc)
    other = net.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    with refused("Resource.AlreadyAssociated"):
        net.ec2.attach_internet_gateway(InternetGatewayId=other, VpcId=net.vpc)


def test_internet_gateway_delete_while_attached_is_refused(net: Net) -> None:
    with refused("DependencyViolation"):
        net.ec2.delete_internet_gateway(InternetGatewayId=net.igw)


def test_nat_gateway_without_an_internet_gateway_fails_later(net: Net) -> None:
    net.ec2.detach_internet_gateway(InternetGatewayId=net.igw, VpcId=net.vpc)
    _fails_later(net, net.nat(), "Gateway.NotAttached")


def test_nat_gateway_with_an_address_that_is_not_there_fails_later(net: Net) -> None:
    _fails_later(net, net.nat(AllocationId="eipalloc-0123456789abcdef0"), "InvalidAllocationID.NotFound")


def test_nat_gateway_with_an_address_in_use_fails_later(net: Net) -> None:
    net.nat()
    _fails_later(net, net.nat(SubnetId=net.subnets[1]), "Resource.AlreadyAssociated")


def test_nat_gateway_in_a_full_subnet_fails_later(net: Net) -> None:
    small = net.ec2.create_subnet(VpcId=net.vpc, CidrBlock="10.0.8.0/28")["Subnet"]["SubnetId"]
    for _ in range(11):
        net.ec2.create_network_interface(SubnetId=small)
    _fails_later(net, net.nat(SubnetId=small), "InsufficientFreeAddressesInSubnet")


def _fails_later(net: Net, nat: str, code: str) -> None:
    assert net.nat_row(nat)["State"] == "pending"
    net.aws.advance(NAT_CREATE_S)
    row = net.nat_row(nat)
    assert (row["State"], row["FailureCode"]) == ("failed", code)


def test_nat_gateway_lifecycle_and_rows_of_the_dead(net: Net) -> None:
    nat = net.nat(TagSpecifications=[{"ResourceType": "natgateway", "Tags": [{"Key": "run", "Value": "a"}]}])
    assert net.nat_row(nat)["State"] == "pending"
    net.aws.advance(NAT_CREATE_S)
    assert net.nat_row(nat)["State"] == "available"
    net.ec2.delete_nat_gateway(NatGatewayId=nat)
    assert net.nat_row(nat)["State"] == "deleting"
    net.aws.advance(NAT_DELETE_S)
    filters = [{"Name": "tag:run", "Values": ["a"]}]
    rows = net.ec2.describe_nat_gateways(Filters=filters)["NatGateways"]
    assert [(row["NatGatewayId"], row["State"]) for row in rows] == [(nat, "deleted")]
    filters.append({"Name": "state", "Values": ["pending", "available"]})
    assert net.ec2.describe_nat_gateways(Filters=filters)["NatGateways"] == []
    net.aws.advance(3600)
    with refused("NatGatewayNotFound"):
        net.nat_row(nat)


def test_nat_gateway_with_no_duration_is_available_at_once(net: Net) -> None:
    net.aws.control(durations={"nat": 0})
    nat = net.nat()
    assert net.nat_row(nat)["State"] == "available"
    net.ec2.delete_nat_gateway(NatGatewayId=nat)
    assert net.nat_row(nat)["State"] == "deleted"


def test_nat_gateway_delete_keeps_the_address_and_blackens_routes(net: Net) -> None:
    nat, table = net.nat(), net.table()
    net.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)
    net.ec2.delete_nat_gateway(NatGatewayId=nat)
    assert "AssociationId" in _address(net)
    net.aws.advance(NAT_DELETE_S)
    assert "AssociationId" not in _address(net)
    routes = net.ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"]
    assert {route["DestinationCidrBlock"]: route["State"] for route in routes} == {
        "10.0.0.0/16": "active",
        "0.0.0.0/0": "blackhole",
    }


def _address(net: Net) -> dict[str, Any]:
    row: dict[str, Any] = net.ec2.describe_addresses(AllocationIds=[net.address])["Addresses"][0]
    return row


def test_nat_gateway_that_is_missing_has_two_codes(net: Net) -> None:
    missing = "nat-0123456789abcdef0"
    with refused("NatGatewayNotFound"):
        net.nat_row(missing)
    with refused("InvalidNatGatewayID.NotFound"):
        net.ec2.create_route(RouteTableId=net.table(), DestinationCidrBlock="0.0.0.0/0", NatGatewayId=missing)


def test_elastic_ip_release_after_its_nat_gateway_is_refused_as_if_it_were_iam(net: Net) -> None:
    nat = net.nat()
    net.aws.advance(NAT_CREATE_S)
    net.ec2.delete_nat_gateway(NatGatewayId=nat)
    for seconds in (NAT_DELETE_S, RELEASE_S):
        with refused("AuthFailure", "permission"):
            net.ec2.release_address(AllocationId=net.address)
        net.aws.advance(seconds)
    net.ec2.release_address(AllocationId=net.address)


def test_elastic_ip_release_in_use_and_twice_is_refused(net: Net) -> None:
    eni = net.ec2.create_network_interface(SubnetId=net.subnets[0])["NetworkInterface"]["NetworkInterfaceId"]
    link = net.ec2.associate_address(AllocationId=net.address, NetworkInterfaceId=eni)["AssociationId"]
    with refused("InvalidIPAddress.InUse"):
        net.ec2.release_address(AllocationId=net.address)
    net.ec2.disassociate_address(AssociationId=link)
    net.ec2.release_address(AllocationId=net.address)
    with refused("InvalidAllocationID.NotFound"):
        net.ec2.release_address(AllocationId=net.address)


def test_route_table_delete_with_a_subnet_or_of_the_main_one_is_refused(net: Net) -> None:
    table = net.table()
    net.ec2.associate_route_table(RouteTableId=table, SubnetId=net.subnets[0])
    main = net.ec2.describe_route_tables(
        Filters=[{"Name": "vpc-id", "Values": [net.vpc]}, {"Name": "association.main", "Values": ["true"]}]
    )["RouteTables"][0]["RouteTableId"]
    for name in (table, main):
        with refused("DependencyViolation"):
            net.ec2.delete_route_table(RouteTableId=name)


def test_route_table_route_that_exists_is_refused(net: Net) -> None:
    table = net.table()
    route = {"RouteTableId": table, "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": net.igw}
    net.ec2.create_route(**route)
    with refused("RouteAlreadyExists"):
        net.ec2.create_route(**route)


def test_route_table_second_association_of_a_subnet_is_refused(net: Net) -> None:
    net.ec2.associate_route_table(RouteTableId=net.table(), SubnetId=net.subnets[0])
    with refused("Resource.AlreadyAssociated"):
        net.ec2.associate_route_table(RouteTableId=net.table(), SubnetId=net.subnets[0])


def _interface_endpoint(net: Net, **more: Any) -> str:
    net.ec2.modify_vpc_attribute(VpcId=net.vpc, EnableDnsHostnames={"Value": True})
    wanted = {
        "VpcId": net.vpc,
        "ServiceName": STS,
        "VpcEndpointType": "Interface",
        "SubnetIds": net.subnets,
        "PrivateDnsEnabled": True,
        **more,
    }
    name: str = net.ec2.create_vpc_endpoint(**wanted)["VpcEndpoint"]["VpcEndpointId"]
    return name


def test_vpc_endpoint_delete_tells_of_a_bad_id_in_a_reply_of_success(net: Net) -> None:
    good = net.ec2.create_vpc_endpoint(VpcId=net.vpc, ServiceName=S3)["VpcEndpoint"]["VpcEndpointId"]
    bad = "vpce-0123456789abcdef0"
    failed = net.ec2.delete_vpc_endpoints(VpcEndpointIds=[bad, good])["Unsuccessful"]
    assert [(row["ResourceId"], row["Error"]["Code"]) for row in failed] == [
        (bad, "InvalidVpcEndpoint.NotFound")
    ]
    with refused("InvalidVpcEndpointId.NotFound"):
        net.ec2.describe_vpc_endpoints(VpcEndpointIds=[good])


@pytest.mark.parametrize("table_goes_first", [True, False])
def test_vpc_endpoint_gateway_goes_with_its_routes(net: Net, *, table_goes_first: bool) -> None:
    table = net.table()
    made = net.ec2.create_vpc_endpoint(VpcId=net.vpc, ServiceName=S3, RouteTableIds=[table])["VpcEndpoint"]
    if table_goes_first:
        net.ec2.delete_route_table(RouteTableId=table)
    assert net.ec2.delete_vpc_endpoints(VpcEndpointIds=[made["VpcEndpointId"]])["Unsuccessful"] == []
    if not table_goes_first:
        routes = net.ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"]
        assert [route["GatewayId"] for route in routes] == ["local"]


def test_vpc_endpoint_second_with_private_dns_is_refused(net: Net) -> None:
    _interface_endpoint(net)
    with refused("InvalidParameter", "conflicting DNS domain"):
        _interface_endpoint(net)


def test_vpc_endpoint_with_private_dns_needs_host_names(net: Net) -> None:
    with refused("InvalidParameter", "enableDnsHostnames"):
        net.ec2.create_vpc_endpoint(
            VpcId=net.vpc, ServiceName=STS, VpcEndpointType="Interface", PrivateDnsEnabled=True
        )


def test_vpc_endpoint_with_two_subnets_in_a_zone_is_refused(net: Net) -> None:
    more = net.ec2.create_subnet(VpcId=net.vpc, CidrBlock="10.0.7.0/24", AvailabilityZone=ZONES[0])["Subnet"]
    with refused("DuplicateSubnetsInSameZone"):
        _interface_endpoint(net, SubnetIds=[net.subnets[0], more["SubnetId"]])


def test_vpc_endpoint_gateway_in_a_table_that_has_it_is_refused(net: Net) -> None:
    wanted = {"VpcId": net.vpc, "ServiceName": S3, "RouteTableIds": [net.table()]}
    net.ec2.create_vpc_endpoint(**wanted)
    with refused("RouteAlreadyExists"):
        net.ec2.create_vpc_endpoint(**wanted)


def test_vpc_endpoint_of_interfaces_comes_and_goes_slowly_and_holds_group_and_subnet(net: Net) -> None:
    group = net.group()
    name = _interface_endpoint(net, SecurityGroupIds=[group])

    def state() -> str:
        found: str = net.ec2.describe_vpc_endpoints(VpcEndpointIds=[name])["VpcEndpoints"][0]["State"]
        return found

    assert state() == "pending"
    net.aws.advance(60)
    assert state() == "available"
    net.ec2.delete_vpc_endpoints(VpcEndpointIds=[name])
    assert state() == "deleting"
    with refused("DependencyViolation"):
        net.ec2.delete_security_group(GroupId=group)
    with refused("DependencyViolation"):
        net.ec2.delete_subnet(SubnetId=net.subnets[0])
    net.aws.advance(60)
    with refused("InvalidVpcEndpointId.NotFound"):
        state()
    net.ec2.delete_security_group(GroupId=group)
    net.ec2.delete_subnet(SubnetId=net.subnets[0])


def test_security_group_delete_while_an_interface_uses_it_is_refused(net: Net) -> None:
    group = net.group()
    net.ec2.create_network_interface(SubnetId=net.subnets[0], Groups=[group])
    with refused("DependencyViolation"):
        net.ec2.delete_security_group(GroupId=group)


def test_security_group_delete_while_another_names_it_is_refused(net: Net) -> None:
    one, other = net.group("one"), net.group("other")
    net.let_in(one, other)
    net.let_in(other, one)
    net.let_in(one)
    for group in (one, other):
        with refused("DependencyViolation"):
            net.ec2.delete_security_group(GroupId=group)
    permission = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": one}]}
    net.ec2.revoke_security_group_ingress(GroupId=other, IpPermissions=[permission])
    net.ec2.delete_security_group(GroupId=one)
    net.ec2.delete_security_group(GroupId=other)


def test_security_group_rule_that_exists_is_refused_and_the_whole_call_with_it(net: Net) -> None:
    group = net.group()
    everything = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    new = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "10.0.0.0/16"}]}
    with refused("InvalidPermission.Duplicate"):
        net.ec2.authorize_security_group_egress(GroupId=group, IpPermissions=[new, everything])
    rules = net.ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissionsEgress"]
    assert [rule["IpProtocol"] for rule in rules] == ["-1"]


def test_security_group_create_with_a_name_that_is_taken_is_refused_in_any_letters(net: Net) -> None:
    net.group("nodes")
    with refused("InvalidGroup.Duplicate"):
        net.group("Nodes")


def test_security_group_rule_that_names_a_missing_group_is_refused(net: Net) -> None:
    with refused("InvalidGroup.NotFound"):
        net.let_in(net.group(), "sg-0123456789abcdef0")


def test_network_interface_delete_while_in_use_is_refused(net: Net) -> None:
    _interface_endpoint(net)
    eni = net.ec2.describe_network_interfaces()["NetworkInterfaces"][0]["NetworkInterfaceId"]
    with refused("InvalidParameterValue", "currently in use"):
        net.ec2.delete_network_interface(NetworkInterfaceId=eni)


def test_network_interface_that_is_available_blocks_subnet_and_group_until_deleted(net: Net) -> None:
    group = net.group()
    made = net.ec2.create_network_interface(SubnetId=net.subnets[0], Groups=[group])["NetworkInterface"]
    with refused("DependencyViolation"):
        net.ec2.delete_subnet(SubnetId=net.subnets[0])
    net.ec2.delete_network_interface(NetworkInterfaceId=made["NetworkInterfaceId"])
    net.ec2.delete_subnet(SubnetId=net.subnets[0])
    net.ec2.delete_security_group(GroupId=group)


def test_tags_are_told_by_kind_key_and_value(net: Net) -> None:
    net.ec2.create_tags(Resources=[net.address, net.vpc], Tags=[{"Key": "run", "Value": "a"}])
    filters = [{"Name": "tag:run", "Values": ["a"]}, {"Name": "resource-type", "Values": ["elastic-ip"]}]
    assert net.ec2.describe_tags(Filters=filters)["Tags"] == [
        {"Key": "run", "Value": "a", "ResourceId": net.address, "ResourceType": "elastic-ip"}
    ]


def test_everything_has_its_tags_in_the_tagging_api(net: Net) -> None:
    tags = [{"Key": "cloudrec:cluster", "Value": "a"}]

    def tagged(kind: str) -> dict[str, Any]:
        return {"TagSpecifications": [{"ResourceType": kind, "Tags": tags}]}

    net.ec2.create_launch_template(
        LaunchTemplateName="gpu",
        LaunchTemplateData={"InstanceType": "g5.xlarge"},
        **tagged("launch-template"),
    )
    net.ec2.create_vpc_endpoint(VpcId=net.vpc, ServiceName=S3, **tagged("vpc-endpoint"))
    net.ec2.allocate_address(Domain="vpc", **tagged("elastic-ip"))
    net.ec2.create_placement_group(GroupName="pg", Strategy="cluster", **tagged("placement-group"))
    net.nat(**tagged("natgateway"))
    net.aws.client("ecr").create_repository(repositoryName="train", tags=tags)
    net.aws.client("logs").create_log_group(logGroupName="/train", tags={"cloudrec:cluster": "a"})
    net.aws.client("kms").create_key(Tags=[{"TagKey": "cloudrec:cluster", "TagValue": "a"}])
    s3 = net.aws.client("s3")
    s3.create_bucket(Bucket="tagged-bucket")
    s3.put_bucket_tagging(Bucket="tagged-bucket", Tagging={"TagSet": tags})
    pages = net.aws.client("resourcegroupstaggingapi").get_paginator("get_resources")
    arns = [
        thing["ResourceARN"]
        for page in pages.paginate(
            TagFilters=[{"Key": "cloudrec:cluster", "Values": ["a"]}], PaginationConfig={"PageSize": 2}
        )
        for thing in page["ResourceTagMappingList"]
    ]
    kinds = {
        arn.split(":", 2)[2].split(":")[0] + ":" + arn.split(":", 5)[5].replace("/", ":").split(":")[0]
        for arn in arns
    }
    assert kinds == {
        "ec2:launch-template",
        "ec2:vpc-endpoint",
        "ec2:elastic-ip",
        "ec2:placement-group",
        "ec2:natgateway",
        "ecr:repository",
        "logs:log-group",
        "kms:key",
        "s3:tagged-bucket",
    }, json.dumps(arns)
