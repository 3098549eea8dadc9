"""The policies of infra/aws, and an IAM user who has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3

from tests.contract.aws.support import Site
from tests.sandbox.aws.support import CONFIG, Aws

INFRA = Path(__file__).parents[3] / "infra" / "aws"


def shipped(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((INFRA / f"{name}.json").read_text(encoding="utf-8"))
    return document


DEPLOYER = ("deployer-policy", "deployer-services-policy", "deployer-keys-policy", "deployer-lustre-policy")
OTHERS = ("cloudrec-boundary", "pusher-policy", "sweep-policy", "deployer-blocks-policy")
BLOCKS = "deployer-blocks-policy"
BOUNDARY = "cloudrec-boundary"
POLICIES = {name: shipped(name) for name in (*DEPLOYER, *OTHERS)}


def statements(*names: str) -> list[dict[str, Any]]:
    return [each for name in names for each in POLICIES[name]["Statement"]]


def allowed(*names: str) -> set[str]:
    found: set[str] = set()
    for statement in statements(*(names or DEPLOYER)):
        actions = statement["Action"]
        if statement["Effect"] == "Allow":
            found |= {actions} if isinstance(actions, str) else set(actions)
    return found


# A key policy that delegates all decisions to the account's IAM policies.
ACCOUNT_ONLY = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
                "Action": "kms:*",
                "Resource": "*",
            }
        ],
    }
)


class Deployer:
    """An IAM user with given policies, in an account that has the permissions boundary, and a cluster."""

    def __init__(self, aws: Aws, folder: Path, **cluster: Any) -> None:
        self.aws = aws
        self.iam = aws.client("iam")
        self.iam.create_user(UserName="deployer")
        self.permit(POLICIES)
        document = json.dumps(POLICIES[BOUNDARY])
        self.boundary = self.iam.create_policy(PolicyName=BOUNDARY, PolicyDocument=document)["Policy"]["Arn"]
        key = self.iam.create_access_key(UserName="deployer")["AccessKey"]
        self.site = Site(aws, folder, **cluster)
        self.root = dict(aws.env)
        self.keys = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        self.before = aws.state()
        aws.control(enforce_iam=True)

    def permit(self, policies: Mapping[str, dict[str, Any]]) -> None:
        for name in DEPLOYER:
            self.iam.put_user_policy(
                UserName="deployer", PolicyName=name, PolicyDocument=json.dumps(policies[name])
            )

    def act(self, command: str) -> None:
        """Run `up` or `down` as the deployer."""
        self.aws.env.update(self.keys)
        try:
            getattr(self.site, command)()
        finally:
            self.aws.env.update(self.root)

    def come_and_go(self) -> None:
        """`up`, then `down`."""
        self.act("up")
        self.act("down")

    def client(self, service: str) -> Any:
        """A client with the deployer's keys."""
        return client_of(self.aws, service, **self.keys)


def client_of(aws: Aws, service: str, **keys: str) -> Any:
    given = {name.lower(): value for name, value in keys.items()}
    make: Any = boto3.client  # whatever the service
    return make(service, endpoint_url=aws.endpoint, region_name="us-east-1", config=CONFIG, **given)
