"""The deployer's policies cover every call, use no wildcard action and fit IAM's size limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudrec import app
from cloudrec.providers.aws.identity.identity import AwsRoleProperties
from tests.contract.aws.support import Site
from tests.contract.aws.support_policies import DEPLOYER, POLICIES, allowed, statements
from tests.contract.aws.test_cluster_side import ADMIN, ZONES, admin, stray
from tests.sandbox.aws.support import Aws

LONGEST = 6144  # characters of a managed policy, without whitespace
FREE = {"sts:GetCallerIdentity"}  # every caller may call GetCallerIdentity


@pytest.mark.parametrize("name", POLICIES)
def test_policies_have_no_wildcard_action_and_fit_the_iam_size_limit(name: str) -> None:
    assert not [action for action in allowed(name) if "*" in action]
    assert len(json.dumps(POLICIES[name], separators=(",", ":"))) <= LONGEST


def test_roles_can_be_passed_to_named_services_only() -> None:
    passing = [each for each in statements(*DEPLOYER) if each["Action"] == "iam:PassRole"]
    services = [each["Condition"]["StringEquals"]["iam:PassedToService"] for each in passing]
    assert services == [
        ["eks.amazonaws.com", "pods.eks.amazonaws.com"],
        "ec2.amazonaws.com",
        "scheduler.amazonaws.com",
    ]
    assert all(each["Resource"].startswith("arn:aws:iam::*:role/cloudrec/") for each in passing)


def test_attachable_policies_are_those_that_cloudrec_attaches(aws: Aws, tmp_path: Path) -> None:
    (given,) = [each for each in statements(*DEPLOYER) if each["Sid"] == "NamedPolicies"]
    site = Site(aws, tmp_path, settings={"lustre_gib": 1200}, metrics="managed")
    asked = [each.properties for each in site.provider.resources(site.cluster) if each.kind == "role"]
    roles = [each for each in asked if isinstance(each, AwsRoleProperties)]
    assert len(roles) == len(asked) > 0
    attached = {policy for role in roles for policy in role.managed}
    assert set(given["Condition"]["ArnEquals"]["iam:PolicyARN"]) == attached


def test_every_call_of_a_cluster_lifecycle_is_allowed(aws: Aws, tmp_path: Path) -> None:
    admin(aws)
    since = len(aws.calls())
    common = {"zones": ZONES, "capacity": "spot-first", "ttl": "8h"}
    born = Site(
        aws,
        tmp_path,
        **common,
        kubernetes_version="1.35",
        settings={"lustre_gib": 1200, "admins": [ADMIN]},
    )
    born.up()
    app.doctor(born.application, born.cluster)
    volumes = born.provider.access(born.cluster).target.volumes
    (volume,) = [each for each in volumes if each["name"] == "lustre"]
    assert volume["handle"].startswith("fs-")
    assert volume["attributes"]["dnsname"].startswith(volume["handle"])
    assert volume["capacity"] == "1200Gi"
    born.provider.offers(born.cluster)
    called = {call["iam_action"] for call in aws.calls(since)}
    changes = {"gpu_root_gib": 300, "lustre_gib": 1200, "max_price": 99.0, "log_days": 7}
    changed = Site(aws, tmp_path, **common, nodes=2, kubernetes_version="1.36", settings=changes)
    since = len(aws.calls())
    changed.up()
    called |= {call["iam_action"] for call in aws.calls(since)}
    stray(aws, changed)
    since = len(aws.calls())
    changed.down()
    app.leaks(changed.application, "aws")
    called |= {call["iam_action"] for call in aws.calls(since)}
    assert len(called) > 100
    assert called - FREE - allowed() == set()
