"""The resources of a cluster on AWS: names, address blocks, rules, roles and dependencies."""

from __future__ import annotations

import ipaddress
import itertools
import json
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES, TAG_KEY, TAG_OWNER, Properties, Resource
from cloudrec.errors import SpecError
from cloudrec.providers.aws.identity import identity
from cloudrec.providers.aws.layout import AwsLayout
from cloudrec.providers.aws.network import endpoints, firewall, nat, network, routes
from cloudrec.providers.aws.provider import AwsProvider
from cloudrec.providers.aws.settings import ENDPOINTS, settings_of
from cloudrec.providers.aws.storage import storage
from cloudrec.spec.models import ClusterSpec
from tests.unit.providers_aws.support import layout

P = TypeVar("P", bound=Properties)
PARTS = (network, routes, nat, firewall, endpoints, identity, storage)


def described(given: AwsLayout) -> dict[str, Resource]:
    return {resource.key: resource for part in PARTS for resource in part.resources(given)}


def properties(resource: Resource, kind: type[P]) -> P:
    """The resource's properties, checked to be of this class."""
    assert isinstance(resource.properties, kind)
    return resource.properties


def test_resources_are_deterministic_and_tagged() -> None:
    given = layout()
    assert described(given) == described(given)
    for key, resource in described(given).items():
        tags = resource.tags
        assert (tags[TAG_CLUSTER], tags[TAG_OWNER], tags[TAG_KEY]) == ("t", "tester", key)
        assert TAG_EXPIRES not in tags


def test_the_expiry_is_a_tag_of_every_resource() -> None:
    cluster = ClusterSpec(name="t", provider="aws", expires="2026-12-01T00:00:00Z")
    given = AwsLayout(
        cluster=cluster,
        settings=settings_of(cluster),
        region="us-east-1",
        account="1",
        gpu_zones=("us-east-1a",),
        zones=("us-east-1a", "us-east-1b"),
    )
    assert {resource.tags[TAG_EXPIRES] for resource in described(given).values()} == {"2026-12-01T00:00:00Z"}


def test_needs_of_a_resource_follow_the_order_of_kinds() -> None:
    for resource in described(layout(lustre_gib=1200)).values():
        assert {need.partition("/")[0] for need in resource.needs} <= AwsProvider.kinds[resource.kind]


def test_subnets_do_not_overlap_and_do_not_move_when_zones_are_added() -> None:
    every = tuple(f"us-east-1{letter}" for letter in "abcdefg")
    for block in ("10.42.0.0/16", "192.168.16.0/20"):
        blocks = {
            key: ipaddress.IPv4Network(properties(resource, network.AwsSubnetProperties).cidr)
            for key, resource in described(layout(zones=every, vpc_cidr=block)).items()
            if resource.kind == network.SUBNET
        }
        assert len(blocks) == 14
        assert all(one.subnet_of(ipaddress.IPv4Network(block)) for one in blocks.values())
        assert not any(one.overlaps(other) for one, other in itertools.combinations(blocks.values(), 2))
        fewer = described(layout(zones=("us-east-1c",), vpc_cidr=block))
        for key in ("subnet/t-private-us-east-1c", "subnet/t-public-us-east-1c"):
            assert properties(fewer[key], network.AwsSubnetProperties).cidr == str(blocks[key])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"vpc_cidr": "8.8.0.0/16"}, "not a private block"),
        ({"vpc_cidr": "10.0.0.0/8"}, "/16 to /20"),
        ({"vpc_cidr": "10.0.0.1/16"}, "host bits"),
        ({"lustre_gib": 1300}, "not a size of FSx"),
        ({"endpoints": ["s3", "sqs"]}, "has 'sqs'"),
        ({"bucket": "Not_A_Bucket"}, "bucket"),
        ({"prefix": "/leading"}, "prefix"),
        ({"vpc_cidrs": "10.0.0.0/16"}, "vpc_cidr"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_invalid_setting_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        settings_of(ClusterSpec(name="t", provider="aws", settings=settings))
    assert words in f"{caught.value} {caught.value.remedy}"


def test_names_fit_the_aws_limits_and_are_unique() -> None:
    longest = [layout(name=f"{'x' * 38}-{end}") for end in "ab"]
    roles = {one.role(suffix) for one in longest for suffix in ("cluster", "node", "pod", "lustre-csi")}
    assert len(roles) == 8
    assert max(map(len, roles)) <= 64
    # infra/aws/deployer-services-policy.json allows to pass role/cloudrec/*-node and *-end.
    distant = replace(layout(name=f"{'x' * 39}y"), region="ap-southeast-1")
    for suffix in ("node", "end"):
        assert distant.role(suffix).endswith(f"-{suffix}")
        assert len(distant.role(suffix)) <= 64
    buckets = {one.bucket for one in longest}
    assert len(buckets) == 2
    assert max(map(len, buckets)) <= 63
    assert layout().bucket == "cloudrec-t-123456789012-us-east-1"


def test_without_nat_there_is_no_egress_and_no_cost() -> None:
    keys = described(layout(nat=False)).keys()
    assert not {"nat-gateway/t", "elastic-ip/t", "route/t-private"} & keys
    assert {"nat-gateway/t", "elastic-ip/t", "route/t-private"} <= described(layout()).keys()


def test_only_the_gateway_and_its_route_wait_for_the_nat() -> None:
    needing = [key for key, resource in described(layout()).items() if "nat-gateway/t" in resource.needs]
    assert needing == ["route/t-private"]


def test_an_endpoint_costs_in_each_zone_and_s3_costs_nothing() -> None:
    there = described(layout(zones=("us-east-1a", "us-east-1b", "us-east-1c"), endpoints=list(ENDPOINTS)))
    assert there["endpoint/t-sts"].hourly_usd == pytest.approx(3 * 0.01)
    assert there["endpoint/t-s3"].hourly_usd == 0
    ecr = properties(there["endpoint/t-ecr-api"], endpoints.EndpointProperties)
    assert ecr.service == "com.amazonaws.us-east-1.ecr.api"


def test_nodes_accept_connections_only_from_each_other() -> None:
    rules = properties(described(layout())["security-group/t-nodes"], firewall.SecurityGroupProperties).rules
    both_ways = {(rule.way, rule.protocol, rule.peer) for rule in rules}
    assert both_ways == {("in", "-1", "itself"), ("out", "-1", "itself"), ("out", "-1", "0.0.0.0/0")}


def test_roles_of_runs_list_every_action_and_are_limited_to_the_cluster_prefix() -> None:
    role = properties(described(layout(prefix="team/a"))["role/t-pod"], identity.AwsRoleProperties)
    inline: Any = role.inline
    trust: Any = role.trust
    text = json.dumps(inline)
    actions = {one for each in inline["Statement"] for one in each["Action"]}
    assert not [action for action in actions if "*" in action]
    assert "cloudrec-t-123456789012-us-east-1/team/a/*" in text
    assert "cloudrec-t-123456789012-us-east-1/*" not in text
    (statement,) = trust["Statement"]
    assert statement["Condition"]["StringEquals"] == {
        "aws:RequestTag/eks-cluster-name": "cloudrec-t",
        "aws:RequestTag/kubernetes-namespace": "cloudrec",
        "aws:RequestTag/kubernetes-service-account": "cloudrec",
    }


def test_a_customer_key_is_used_and_none_is_created() -> None:
    arn = "arn:aws:kms:us-east-1:123456789012:key/mine"
    there = described(layout(kms_key=arn))
    assert there["bucket/t"].needs == ()
    assert properties(there["bucket/t"], storage.AwsBucketProperties).kms_key == arn
    assert arn in json.dumps(properties(there["role/t-pod"], identity.AwsRoleProperties).inline)
