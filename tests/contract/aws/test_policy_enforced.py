"""The deployer's policy at work: with it alone a cluster comes and goes; without one of its actions, not."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import CloudrecError
from tests.contract.aws.support import Site
from tests.contract.aws.test_deployer_policy import POLICY
from tests.contract.sandbox_aws.support import Aws

# Some of each service, made or removed; `make soak` goes through all that a cluster's life calls.
SOME = ("ec2:CreateVpc", "eks:CreateNodegroup", "s3:PutEncryptionConfiguration", "eks:DeleteCluster")


class Deployer:
    """An IAM user with a policy of our choice, and a cluster that he deploys."""

    def __init__(self, aws: Aws, folder: Path) -> None:
        self.aws = aws
        self._iam = aws.client("iam")
        self._iam.create_user(UserName="deployer")
        self.permit(POLICY)
        key = self._iam.create_access_key(UserName="deployer")["AccessKey"]
        self.site = Site(aws, folder)
        self.root = dict(aws.env)
        self.keys = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        self.before = aws.state()
        aws.control(enforce_iam=True)

    def permit(self, policy: dict[str, Any]) -> None:
        self._iam.put_user_policy(
            UserName="deployer", PolicyName="deployer", PolicyDocument=json.dumps(policy)
        )

    def act(self, command: str) -> None:
        """Do `up` or `down` as the deployer."""
        self.aws.env.update(self.keys)
        try:
            getattr(self.site, command)()
        finally:
            self.aws.env.update(self.root)

    def come_and_go(self) -> None:
        """`up`, then `down`."""
        self.act("up")
        self.act("down")


@pytest.fixture
def deployer(aws: Aws, tmp_path: Path) -> Deployer:
    return Deployer(aws, tmp_path)


def without(action: str) -> dict[str, Any]:
    policy: dict[str, Any] = deepcopy(POLICY)
    for statement in policy["Statement"]:
        actions = statement["Action"]
        if isinstance(actions, list) and action in actions:
            statement["Action"] = [other for other in actions if other != action]
    assert policy != POLICY, f"the policy does not name {action}"
    return policy


def lacks(deployer: Deployer, action: str) -> None:
    """Without the action either `up` or `down` fails and names it; with it again, all goes."""
    deployer.permit(without(action))
    with pytest.raises(CloudrecError, match=re.escape(action)):
        deployer.come_and_go()
    deployer.permit(POLICY)
    deployer.act("down")
    assert deployer.aws.state() == deployer.before


def test_with_the_policy_alone_a_cluster_comes_and_goes(deployer: Deployer) -> None:
    deployer.act("up")
    assert len(deployer.aws.state()) > len(deployer.before) + 40
    deployer.act("down")
    assert deployer.aws.state() == deployer.before


@pytest.mark.soak
def test_without_an_action_something_fails_and_names_it(deployer: Deployer) -> None:
    for action in SOME:
        lacks(deployer, action)


@pytest.mark.soak
def test_without_any_one_action_something_fails_and_names_it(deployer: Deployer) -> None:
    since = len(deployer.aws.calls())
    deployer.act("up")
    deployer.act("down")
    called = {call["iam_action"] for call in deployer.aws.calls(since)} - {"sts:GetCallerIdentity"}
    for action in sorted(called):
        lacks(deployer, action)
    print(f"each of {len(called)} actions is needed")
