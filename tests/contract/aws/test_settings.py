"""Settings that AWS refuses late are refused before anything is created, and names are resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import CloudrecError
from cloudrec.providers.aws.settings import ENDPOINTS
from tests.contract.aws.support import Site
from tests.contract.aws.test_cluster_side import CLUSTER, ZONES
from tests.sandbox.aws.support import Aws, trust

ACCOUNT = "123456789012"


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({"access": "10.0.0.0/8"}, "10.0.0.0/8: the API's public endpoint admits no private addresses"),
        ({"settings": {"nat": False}}, "without NAT, nodes cannot pull the GPU plug-in from nvcr.io"),
        ({"settings": {"labels": {"kubernetes.io/x": "y"}}}, "kubernetes.io/x: EKS reserves labels"),
        ({"settings": {"admins": ["me@example.com"]}}, "'me@example.com', which is not the ARN of a role"),
        ({"settings": {"admins": [f"arn:aws:iam::{ACCOUNT}:role/absent"]}}, "role/absent: no such role"),
        ({"settings": {"admins": [f"arn:aws:sts::{ACCOUNT}:assumed-role/no/me"]}}, "has no role 'no'"),
        ({"settings": {"admins": ["arn:aws:sts::210987654321:assumed-role/r/me"]}}, "another account's role"),
        ({"settings": {"kms_key": "alias/none"}}, "no KMS key 'alias/none' in us-east-1"),
        ({"settings": {"kms_key": f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/k"}}, "no key of us-east-1"),
        ({"settings": {"kms_key": f"arn:aws:kms:us-east-1:{ACCOUNT}:key/k"}}, "key/k is not found"),
        ({"instance_types": ("p6e-gb200.36xlarge",)}, "'p6e-gb200.36xlarge' is arm64; the trainer's images"),
        ({"instance_types": ("g5g.xlarge",)}, "'g5g.xlarge' is arm64; the trainer's images are for x86_64"),
    ],
)
def test_what_aws_refuses_late_is_refused_before_anything_is_created(
    aws: Aws, tmp_path: Path, cluster: dict[str, Any], words: str
) -> None:
    with pytest.raises(CloudrecError) as caught:
        Site(aws, tmp_path, **cluster).up()
    assert words in caught.value.message
    assert aws.state() == []


def test_a_quota_that_is_not_known_is_reported_and_blocks_nothing(aws: Aws, tmp_path: Path) -> None:
    aws.control(quotas={"ec2/L-417A185B": 0})
    site = Site(aws, tmp_path, instance_types=("p6-b200.48xlarge",), capacity="spot-first")
    found = {each.check: each for each in site.provider.preflight(site.cluster) if "p6-b200" in each.check}
    spot = found["quota: spot vCPUs for 1 x p6-b200.48xlarge"]
    assert (spot.ok, spot.blocks, spot.found) == (False, False, "its quota is not known")
    assert not found["quota: on-demand vCPUs for 1 x p6-b200.48xlarge"].blocks  # spot nodes may have room


def admins_of(aws: Aws) -> set[str]:
    """The principals with a policy of cluster administrators."""
    eks, policy = aws.client("eks"), "AmazonEKSClusterAdminPolicy"
    entries = eks.list_access_entries(
        clusterName=CLUSTER, associatedPolicyArn=f"arn:aws:eks::aws:cluster-access-policy/{policy}"
    )
    return set(entries["accessEntries"])


@pytest.mark.slow
def test_the_creator_can_be_named_an_administrator_and_stays_one(aws: Aws, tmp_path: Path) -> None:
    creator = aws.client("sts").get_caller_identity()["Arn"]
    named = Site(aws, tmp_path, zones=ZONES[:1], settings={"admins": [creator]})
    named.up()
    assert (admins_of(aws), named.planned()) == ({creator}, {})
    unnamed = Site(aws, tmp_path, zones=ZONES[:1])
    unnamed.up()
    assert (admins_of(aws), unnamed.planned()) == ({creator}, {})
    assert named.planned().keys() <= {"access-entry/t"}  # no refusal, and nothing else changes
    named.up()
    named.down()
    assert aws.state() == []


@pytest.mark.slow
def test_a_session_of_a_role_and_the_alias_of_a_key_are_resolved(aws: Aws, tmp_path: Path) -> None:
    role = aws.client("iam").create_role(
        RoleName="admin", Path="/team/", AssumeRolePolicyDocument=trust("ec2")
    )["Role"]["Arn"]
    kms = aws.client("kms")
    key = kms.create_key()["KeyMetadata"]["Arn"]
    kms.create_alias(AliasName="alias/ours", TargetKeyId=key)
    aws.advance(60)
    session = f"arn:aws:sts::{ACCOUNT}:assumed-role/admin/me@example.com"
    site = Site(aws, tmp_path, zones=ZONES[:1], settings={"admins": [session], "kms_key": "alias/ours"})
    site.up()
    assert role in admins_of(aws)
    cluster = aws.client("eks").describe_cluster(name=CLUSTER)["cluster"]
    assert cluster["encryptionConfig"][0]["provider"]["keyArn"] == key
    assert site.planned() == {}


@pytest.mark.slow
def test_endpoints_are_made_in_the_zones_that_have_their_service(aws: Aws, tmp_path: Path) -> None:
    missing = {"eks-auth": [ZONES[1]], "logs": list(ZONES)}
    aws.control(endpoint_zones_missing=missing)
    site = Site(aws, tmp_path, zones=ZONES, settings={"endpoints": list(ENDPOINTS)})
    site.up()
    rows = {
        row["ServiceName"].rpartition(".")[2]: len(row["SubnetIds"])
        for row in aws.client("ec2").describe_vpc_endpoints()["VpcEndpoints"]
    }
    assert (rows["sts"], rows["eks-auth"]) == (2, 1)
    assert "logs" not in rows  # through the NAT
    assert site.planned() == {}
