"""The network, roles and storage of a cluster on AWS: creation, discovery, repair and deletion."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cloudrec import app
from cloudrec.engine.graph import Graph, cost_of
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import PreflightError, UsageError
from tests.contract.aws.support import Site, fresh
from tests.sandbox.aws.support import Aws

# Every call that creates a resource, with its service.
CREATIONS = [
    ("ec2", "CreateVpc"),
    ("ec2", "CreateSubnet"),
    ("ec2", "CreateInternetGateway"),
    ("ec2", "AllocateAddress"),
    ("ec2", "CreateNatGateway"),
    ("ec2", "CreateRouteTable"),
    ("ec2", "CreateRoute"),
    ("ec2", "CreateSecurityGroup"),
    ("ec2", "CreateVpcEndpoint"),
    ("iam", "CreateRole"),
    ("kms", "CreateKey"),
    ("s3", "CreateBucket"),
    ("ecr", "CreateRepository"),
    ("logs", "CreateLogGroup"),
]
# Calls that configure existing resources.
COMPLETIONS = [
    ("ec2", "ModifyVpcAttribute"),
    ("ec2", "AttachInternetGateway"),
    ("ec2", "AssociateRouteTable"),
    ("ec2", "AuthorizeSecurityGroupIngress"),
    ("iam", "AttachRolePolicy"),
    ("kms", "CreateAlias"),
    ("s3", "PutBucketPolicy"),
    ("logs", "PutRetentionPolicy"),
]


def kinds(state: list[str]) -> Counter[str]:
    """The number of resources of each kind, without security group rules and similar parts."""
    return Counter(line.rsplit(":", 1)[0] for line in state)


def at(faults: list[tuple[str, str]], kind: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {"service": service, "action": action, "kind": kind, "times": 1, **more} for service, action in faults
    ]


def test_a_second_up_changes_nothing_and_down_leaves_nothing(site: Site) -> None:
    assert {action.step for action in site.up().actions} == {PlanStep.CREATE}
    since = len(site.aws.calls())
    assert {action.step for action in site.up().actions} == {PlanStep.KEEP}
    assert site.changes(since) == []
    assert [view.state for view in app.clusters(site.application)] == ["READY"]
    site.down()
    assert site.aws.state() == []
    assert app.leaks(site.application, "aws").leaks == ()


def test_resources_are_tagged_and_billed_resources_show_their_cost(site: Site) -> None:
    plan = site.up()
    found = site.found()
    places = Graph.of(site.provider.resources(site.cluster)).places()
    assert {places[key] for key in found} == {action.key for action in plan.actions}
    assert {seen.cluster for seen in found.values()} == {"t"}
    assert {seen.owner for seen in found.values()} == {"tester"}
    assert plan.cost.usd  # every price is known
    assert cost_of(found.values()).usd == pytest.approx(plan.cost.usd)


def test_a_lost_create_response_creates_no_duplicate(site: Site) -> None:
    site.up()
    undisturbed = kinds(site.aws.state())
    site.down()
    site.aws.control(faults=at(CREATIONS, "lost"))
    site.up()
    assert kinds(site.aws.state()) == undisturbed
    assert site.planned() == {}
    site.down()
    assert site.aws.state() == []


@pytest.mark.parametrize("kind", ["throttle", "5xx", "drop"])
def test_a_call_with_a_transient_failure_is_retried(site: Site, kind: str) -> None:
    site.aws.control(faults=at(CREATIONS + COMPLETIONS, kind))
    site.up()
    assert site.planned() == {}


def test_a_partly_denied_creation_is_reported_and_completed_later(site: Site) -> None:
    refusal = {"code": "UnauthorizedOperation", "status": 403, "message": "You may not."}
    site.aws.control(faults=at([("ec2", "AttachInternetGateway")], "error", **refusal))
    with pytest.raises(PreflightError, match="may not do ec2:AttachInternetGateway"):
        site.up()
    site.aws.control(faults=[])
    assert site.planned()["internet-gateway/t"].step is PlanStep.CHANGE
    site.up()
    assert site.planned() == {}


def test_down_works_from_another_machine_without_a_journal(site: Site, tmp_path: Path) -> None:
    site.up()
    Site(site.aws, tmp_path / "elsewhere").down()
    assert site.aws.state() == []


def test_eventually_consistent_lists_cause_no_duplicates_and_no_orphaned_resources(site: Site) -> None:
    site.aws.control(lag_s={"tags": 15, "lists": 15, "ids": 5})
    site.up()
    site.up()
    assert max(kinds(site.aws.state())[kind] for kind in ("ec2:vpc", "ec2:internet-gateway")) == 1
    site.down()
    site.aws.control(lag_s={"tags": 0, "lists": 0, "ids": 0})
    assert site.aws.state() == []


def test_manual_changes_are_detected_and_repaired(site: Site) -> None:
    site.up()
    found = {key: seen.identity for key, seen in site.found().items()}
    ec2, iam, s3 = (site.aws.client(name) for name in ("ec2", "iam", "s3"))
    ec2.modify_vpc_attribute(VpcId=found["vpc/t"], EnableDnsHostnames={"Value": False})
    ec2.delete_route(RouteTableId=found["route-table/t-private"], DestinationCidrBlock="0.0.0.0/0")
    everything = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": found["security-group/t-nodes"]}]}
    ec2.revoke_security_group_ingress(GroupId=found["security-group/t-nodes"], IpPermissions=[everything])
    table = ec2.describe_route_tables(RouteTableIds=[found["route-table/t-public"]])["RouteTables"][0]
    ec2.disassociate_route_table(AssociationId=table["Associations"][0]["RouteTableAssociationId"])
    role = found["role/t-node"].rpartition("/")[2]
    policy = "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"
    iam.detach_role_policy(RoleName=role, PolicyArn=policy)
    s3.delete_public_access_block(Bucket=found["bucket/t"])
    assert site.planned().keys() == {
        "vpc/t",
        "route/t-private",
        "security-group/t-nodes",
        "route-table/t-public",
        "role/t-node",
        "bucket/t",
    }
    site.up()
    assert site.planned() == {}


def test_keep_data_keeps_the_bucket_and_its_key_and_up_reuses_them(site: Site) -> None:
    site.up()
    bucket = site.found()["bucket/t"].identity
    site.aws.client("s3").put_object(Bucket=bucket, Key="data/part-0", Body=b"x")
    site.down(keep_data=True)
    assert site.found().keys() == {"bucket/t", "key/t"}
    site.up()
    assert site.aws.client("s3").get_object(Bucket=bucket, Key="data/part-0")["Body"].read() == b"x"
    site.down()
    assert site.aws.state() == []


def test_down_deletes_object_versions_delete_markers_and_incomplete_uploads(site: Site) -> None:
    site.up()
    bucket, s3 = site.found()["bucket/t"].identity, site.aws.client("s3")
    for body in (b"1", b"2"):
        s3.put_object(Bucket=bucket, Key="again", Body=body)
    s3.delete_object(Bucket=bucket, Key="again")
    s3.create_multipart_upload(Bucket=bucket, Key="never-finished")
    site.down()
    assert site.aws.state() == []


def test_a_bucket_name_in_use_by_another_account_is_reported(site: Site) -> None:
    name = f"cloudrec-t-{site.provider.account().account}-us-east-1"
    site.aws.control(foreign_buckets=[name])
    with pytest.raises(PreflightError, match=f"{name} belongs to another account"):
        site.up()


def test_a_security_group_referenced_by_other_groups_is_deleted(site: Site) -> None:
    ec2 = site.aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    resource = Graph.of(site.provider.resources(site.cluster)).resources["security-group/t-nodes"]
    driver = site.provider.drivers(site.cluster)["security-group"]
    group = driver.create(resource, token=str(uuid4()), identities={"vpc/t": vpc})
    other = ec2.create_security_group(GroupName="x", Description="x", VpcId=vpc)["GroupId"]
    pair = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=[pair])
    ec2.authorize_security_group_egress(GroupId=other, IpPermissions=[pair])
    driver.delete(site.found()["security-group/t-nodes"])
    assert "security-group/t-nodes" not in site.found()
    rules = ec2.describe_security_groups(GroupIds=[other])["SecurityGroups"][0]
    assert not [rule for rule in rules["IpPermissions"] if rule.get("UserIdGroupPairs")]
    assert not [rule for rule in rules["IpPermissionsEgress"] if rule.get("UserIdGroupPairs")]


def test_a_cluster_keeps_its_zones_when_aws_offers_others(aws: Aws, tmp_path: Path) -> None:
    first = Site(aws, tmp_path, instance_types=("p4d.24xlarge",))
    first.up()
    zones = first.provider.layout(first.cluster).gpu_zones
    later = Site(aws, tmp_path, instance_types=("p5.48xlarge",))
    assert later.provider.layout(later.cluster).gpu_zones == zones
    wider = Site(aws, tmp_path, zones=("us-east-1f",), instance_types=("p4d.24xlarge",))
    assert set(wider.provider.layout(wider.cluster).zones) == {*zones, "us-east-1f"}


def test_a_zone_without_eks_is_refused_before_anything_is_created(aws: Aws, tmp_path: Path) -> None:
    # In this account us-east-1e is use1-az3. The stand-in refuses a control plane there, as AWS does.
    site = Site(aws, tmp_path, zones=("us-east-1e",))
    with pytest.raises(UsageError, match="'us-east-1e', which is zone use1-az3, where EKS has no clusters"):
        site.up()
    assert aws.state() == []


def test_a_zone_of_another_region_and_an_unavailable_type_are_reported(aws: Aws, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'eu-west-1a', which is not a zone of region us-east-1"):
        Site(aws, tmp_path, zones=("eu-west-1a",)).up()
    with pytest.raises(UsageError, match=r"region us-east-1 has no instance type 'q9\.tiny'"):
        Site(aws, tmp_path, instance_types=("q9.tiny",)).up()


def test_the_file_system_is_created_before_the_bucket(aws: Aws, tmp_path: Path) -> None:
    site = Site(aws, tmp_path, zones=("us-east-1a",), settings={"lustre_gib": 1200, "prefix": "team/a"})
    site.up()
    (link,) = aws.client("fsx").describe_data_repository_associations()["Associations"]
    assert link["DataRepositoryPath"] == f"s3://{site.found()['bucket/t'].identity}/team/a"
    assert site.planned() == {}
    site.down()
    assert site.aws.state() == []


def killed_and_healed(aws: Aws, folder: Path, command: str, *, call: int, when: str) -> bool:
    """Kill a command at one call, then recover; return False if the command ended before that call."""
    site = Site(aws, folder)
    fresh(aws)
    if command == "down":
        site.up()
    code = site.killed([command, "aws", "--cluster", "t", "--yes"], call=call, when=when)
    if call % 2:
        site.up()
        assert site.planned() == {}
    site.down()
    assert aws.state() == [], f"{command} killed {when} call {call}"
    return code != 0


@pytest.mark.soak  # the conformance suite is killed at each kind of call
@pytest.mark.parametrize(
    ("command", "call", "when"),
    [
        ("up", 71, "after"),
        ("up", 120, "before"),
        ("up", 165, "after"),
        ("down", 45, "after"),
        ("down", 90, "before"),
    ],
)
def test_a_command_killed_at_a_call_is_recovered_and_leaves_nothing(
    aws: Aws, tmp_path: Path, command: str, call: int, when: str
) -> None:
    assert killed_and_healed(aws, tmp_path, command, call=call, when=when)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("command", ["up", "down"])
def test_a_command_killed_at_any_call_is_recovered_and_leaves_nothing(
    aws: Aws, tmp_path: Path, command: str, when: str
) -> None:
    call = 1
    while killed_and_healed(aws, tmp_path / str(call), command, call=call, when=when):
        call += 61
    assert call > 100
