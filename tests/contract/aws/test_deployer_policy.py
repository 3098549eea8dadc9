"""The policy that a person applies once: all that is called, nothing by a wildcard, within IAM's size."""

from __future__ import annotations

import json
from pathlib import Path

from cloudrec import app
from tests.contract.aws.support import Site
from tests.contract.aws.test_cluster_side import ADMIN, ZONES, admin, stray
from tests.contract.sandbox_aws.support import Aws

FILE = Path(__file__).parents[3] / "infra" / "aws" / "deployer-policy.json"
POLICY = json.loads(FILE.read_text(encoding="utf-8"))
LONGEST = 6144  # characters of a managed policy, blanks not counted
FREE = {"sts:GetCallerIdentity"}  # nobody can be kept from asking who he is


def allowed() -> set[str]:
    found: set[str] = set()
    for statement in POLICY["Statement"]:
        actions = statement["Action"]
        found |= {actions} if isinstance(actions, str) else set(actions)
    return found


def test_no_action_is_a_wildcard_and_iam_takes_it_as_one_policy() -> None:
    assert not [action for action in allowed() if "*" in action]
    assert len(json.dumps(POLICY, separators=(",", ":"))) <= LONGEST


def test_roles_are_passed_to_named_services_only() -> None:
    (passing,) = [each for each in POLICY["Statement"] if each["Action"] == "iam:PassRole"]
    assert passing["Resource"] == "arn:aws:iam::*:role/cloudrec/*"
    assert "pods.eks.amazonaws.com" in passing["Condition"]["StringEquals"]["iam:PassedToService"]


def test_every_call_of_a_clusters_life_is_allowed(aws: Aws, tmp_path: Path) -> None:
    admin(aws)
    since = len(aws.calls())
    common = {"zones": ZONES, "capacity": "spot-first"}
    born = Site(
        aws,
        tmp_path,
        **common,
        kubernetes_version="1.34",
        settings={"lustre_gib": 1200, "admins": [ADMIN]},
    )
    born.up()
    app.doctor(born.application, born.cluster)
    (volume,) = [
        each for each in born.provider.access(born.cluster).details["volumes"] if each["name"] == "lustre"
    ]
    assert volume["handle"].startswith("fs-")
    assert volume["attributes"]["dnsname"].startswith(volume["handle"])
    assert volume["capacity"] == "1200Gi"
    born.provider.offers(born.cluster)
    called = {call["iam_action"] for call in aws.calls(since)}
    changes = {"gpu_root_gib": 300, "lustre_gib": 1200, "max_price": 99.0, "log_days": 7}
    changed = Site(aws, tmp_path, **common, nodes=2, kubernetes_version="1.35", settings=changes)
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
