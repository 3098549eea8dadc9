"""What is described for a cluster on AWS: names, blocks, rules, roles and what needs what."""

from __future__ import annotations

import ipaddress
import itertools
import json
from typing import Any

import pytest

from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES, TAG_KEY, TAG_OWNER, Resource
from cloudrec.errors import SpecError
from cloudrec.providers.aws import charges, endpoints, firewall, identity, nat, network, routes, storage
from cloudrec.providers.aws.layout import Layout
from cloudrec.providers.aws.provider import AwsProvider
from cloudrec.providers.aws.settings import settings_of
from cloudrec.spec.models import ClusterSpec
from tests.unit.providers_aws.support import layout

PARTS = (network, routes, nat, firewall, endpoints, identity, storage)


def described(given: Layout) -> dict[str, Resource]:
    return {resource.key: resource for part in PARTS for resource in part.resources(given)}


def test_everything_is_described_alike_each_time_and_bears_its_tags() -> None:
    given = layout()
    assert described(given) == described(given)
    for key, resource in described(given).items():
        tags = resource.tags
        assert (tags[TAG_CLUSTER], tags[TAG_OWNER], tags[TAG_KEY]) == ("t", "tester", key)
        assert TAG_EXPIRES not in tags


def test_a_cluster_that_ends_says_so_on_everything() -> None:
    cluster = ClusterSpec(name="t", provider="aws", expires="2026-12-01T00:00:00Z")
    given = Layout(
        cluster=cluster,
        settings=settings_of(cluster),
        region="us-east-1",
        account="1",
        gpu_zones=("us-east-1a",),
        zones=("us-east-1a", "us-east-1b"),
    )
    assert {resource.tags[TAG_EXPIRES] for resource in described(given).values()} == {"2026-12-01T00:00:00Z"}


def test_what_a_resource_needs_is_of_a_kind_that_its_kind_may_need() -> None:
    for resource in described(layout(lustre_gib=1200)).values():
        assert {need.partition("/")[0] for need in resource.needs} <= AwsProvider.kinds[resource.kind]


def test_subnets_do_not_overlap_and_do_not_move_when_zones_are_added() -> None:
    every = tuple(f"us-east-1{letter}" for letter in "abcdefg")
    for block in ("10.42.0.0/16", "192.168.16.0/20"):
        blocks = {
            key: ipaddress.IPv4Network(resource.properties["cidr"])
            for key, resource in described(layout(zones=every, vpc_cidr=block)).items()
            if resource.kind == network.SUBNET
        }
        assert len(blocks) == 14
        assert all(one.subnet_of(ipaddress.IPv4Network(block)) for one in blocks.values())
        assert not any(one.overlaps(other) for one, other in itertools.combinations(blocks.values(), 2))
        fewer = described(layout(zones=("us-east-1c",), vpc_cidr=block))
        for key in ("subnet/t-private-us-east-1c", "subnet/t-public-us-east-1c"):
            assert fewer[key].properties["cidr"] == str(blocks[key])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"vpc_cidr": "8.8.0.0/16"}, "no private block"),
        ({"vpc_cidr": "10.0.0.0/8"}, "/16 to /20"),
        ({"vpc_cidr": "10.0.0.1/16"}, "host bits"),
        ({"lustre_gib": 1300}, "no size of a file system"),
        ({"endpoints": ["s3", "sqs"]}, "has 'sqs'"),
        ({"nat": False, "endpoints": ["s3"]}, "without nat, nodes need every endpoint"),
        ({"public_access_cidrs": ["anyone"]}, "anyone"),
        ({"bucket": "Not_A_Bucket"}, "bucket"),
        ({"prefix": "/leading"}, "prefix"),
        ({"vpc_cidrs": "10.0.0.0/16"}, "vpc_cidr"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_setting_that_cannot_be_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        settings_of(ClusterSpec(name="t", provider="aws", settings=settings))
    assert words in f"{caught.value} {caught.value.remedy}"


def test_names_fit_where_aws_limits_them_and_stay_apart() -> None:
    longest = [layout(name=f"{'x' * 38}-{end}") for end in "ab"]
    roles = {one.role(suffix) for one in longest for suffix in ("cluster", "node", "pod", "lustre-csi")}
    assert len(roles) == 8
    assert max(map(len, roles)) <= 64
    buckets = {one.bucket for one in longest}
    assert len(buckets) == 2
    assert max(map(len, buckets)) <= 63
    assert layout().bucket == "cloudrec-t-123456789012-us-east-1"


def test_without_nat_there_is_no_way_out_and_nothing_to_pay_for_it() -> None:
    keys = described(layout(nat=False)).keys()
    assert not {"nat-gateway/t", "elastic-ip/t", "route/t-private"} & keys
    assert {"nat-gateway/t", "elastic-ip/t", "route/t-private"} <= described(layout()).keys()


def test_nothing_but_the_gateway_and_its_route_waits_for_the_nat() -> None:
    needing = [key for key, resource in described(layout()).items() if "nat-gateway/t" in resource.needs]
    assert needing == ["route/t-private"]


def test_an_endpoint_costs_in_each_zone_and_s3_costs_nothing() -> None:
    there = described(layout(zones=("us-east-1a", "us-east-1b", "us-east-1c")))
    assert there["endpoint/t-sts"].hourly_usd == pytest.approx(3 * charges.INTERFACE_ENDPOINT)
    assert there["endpoint/t-s3"].hourly_usd == 0
    assert there["endpoint/t-ecr-api"].properties["service"] == "com.amazonaws.us-east-1.ecr.api"


def test_nodes_talk_to_each_other_and_nobody_from_outside_talks_to_them() -> None:
    rules = described(layout())["security-group/t-nodes"].properties["rules"]
    both_ways = {(rule.way, rule.protocol, rule.peer) for rule in rules}
    assert both_ways == {("in", "-1", "itself"), ("out", "-1", "itself"), ("out", "-1", "0.0.0.0/0")}


def test_roles_of_runs_name_every_action_and_reach_only_the_clusters_part_of_the_bucket() -> None:
    role = described(layout(prefix="team/a"))["role/t-pod"]
    text = json.dumps(role.properties["inline"])
    actions = {one for each in role.properties["inline"]["Statement"] for one in each["Action"]}
    assert not [action for action in actions if "*" in action]
    assert "cloudrec-t-123456789012-us-east-1/team/a/*" in text
    assert "cloudrec-t-123456789012-us-east-1/*" not in text
    (statement,) = role.properties["trust"]["Statement"]
    assert statement["Condition"]["StringEquals"] == {
        "aws:RequestTag/eks-cluster-name": "cloudrec-t",
        "aws:RequestTag/kubernetes-namespace": "cloudrec",
        "aws:RequestTag/kubernetes-service-account": "cloudrec",
    }


def test_a_key_of_the_users_own_is_used_and_none_is_made() -> None:
    arn = "arn:aws:kms:us-east-1:123456789012:key/mine"
    there = described(layout(kms_key=arn))
    assert there["bucket/t"].needs == ()
    assert there["bucket/t"].properties["kms_key"] == arn
    assert arn in json.dumps(there["role/t-pod"].properties["inline"])
