"""The identities that a cluster has on AWS, as callers of its APIs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from cloudrec_sandbox.aws.services.permissions.policies import Wish, allows
from tests.contract.aws.support import Site
from tests.contract.aws.support_policies import BOUNDARY, POLICIES, client_of
from tests.sandbox.aws.support import Aws

ACCOUNT, REGION = "123456789012", "us-east-1"
# The cluster has a budget, managed capacity and managed metrics; Lustre's driver is the other cluster's.
OURS, THEIRS = "t", "t2"
IDENTITIES = ("cluster", "cni", "end", "guard", "lustre-csi", "metrics", "node", "pod")
DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_ANYONE = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
}


@dataclass(frozen=True, kw_only=True)
class RoleIdentity:
    """A role of a cluster, with the policies and the boundary that IAM returns, and its credentials."""

    aws: Aws
    role: str
    arn: str
    documents: tuple[dict[str, Any], ...]
    boundary: tuple[dict[str, Any], ...]  # empty for none
    keys: Mapping[str, str] = field(repr=False)

    def client(self, service: str) -> Any:
        return client_of(self.aws, service, **self.keys)

    def holds(self, wish: Wish, *, bounded: bool = True) -> bool:
        """Whether IAM allows an action: a policy does, and the boundary as well."""
        return allows(self.documents, wish) and (not bounded or allows(self.boundary, wish))

    def actions(self) -> set[str]:
        """The actions that its policies name."""
        return {
            action
            for document in self.documents
            for statement in document["Statement"]
            for action in listed(statement["Action"])
        }


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def keys_of(aws: Aws, row: dict[str, Any]) -> dict[str, str]:
    """Return credentials of a role, given as IAM describes it; its trust policy is as before."""
    iam, name = aws.client("iam"), row["RoleName"]
    iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(_ANYONE))
    found = aws.client("sts").assume_role(RoleArn=row["Arn"], RoleSessionName=name)["Credentials"]
    trust = json.dumps(row["AssumeRolePolicyDocument"])
    iam.update_assume_role_policy(RoleName=name, PolicyDocument=trust)
    return {
        "AWS_ACCESS_KEY_ID": found["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"],
        "AWS_SESSION_TOKEN": found["SessionToken"],
    }


def is_denied(error: ClientError) -> bool:
    return error.response["Error"]["Code"] in DENIED


class AwsEstate:
    """A cluster, another one whose name begins with its name, and the roles of the first."""

    def __init__(self, aws: Aws, folder: Path, *, boundary: bool = True) -> None:
        self.aws = aws
        if boundary:
            document = json.dumps(POLICIES[BOUNDARY])
            aws.client("iam").create_policy(PolicyName=BOUNDARY, PolicyDocument=document)
        aws.control(quotas={"ec2/L-1216C47A": 100})  # vCPUs of the nodes of two clusters
        self.theirs = Site(aws, folder / "theirs", name=THEIRS, settings={"lustre_gib": 1200}, ttl="8h")
        self.theirs.up()
        more = {"capacity": "spot-first", "budget_usd": 1000.0, "managed": True, "metrics": "managed"}
        self.ours = Site(aws, folder / "ours", name=OURS, **more)
        self.ours.up()
        self.identities = {name: self.identity(name) for name in IDENTITIES}
        aws.ask("POST", "/save", {"name": "estate"})

    def role(self, name: str) -> str:
        cluster = THEIRS if name == "lustre-csi" else OURS
        return f"cloudrec-{cluster}-{REGION}-{name}"

    def identity(self, name: str) -> RoleIdentity:
        """Read a role's policies, and get credentials of it as the service that it trusts would."""
        iam, role = self.aws.client("iam"), self.role(name)
        row = iam.get_role(RoleName=role)["Role"]
        attached = iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
        inline = iam.list_role_policies(RoleName=role)["PolicyNames"]
        documents = [self.managed(each["PolicyArn"]) for each in attached]
        documents += [
            iam.get_role_policy(RoleName=role, PolicyName=each)["PolicyDocument"] for each in inline
        ]
        limit = row.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn")
        return RoleIdentity(
            aws=self.aws,
            role=role,
            arn=row["Arn"],
            documents=tuple(documents),
            boundary=(self.managed(limit),) if limit else (),
            keys=keys_of(self.aws, row),
        )

    def managed(self, arn: str) -> dict[str, Any]:
        iam = self.aws.client("iam")
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        answer = iam.get_policy_version(PolicyArn=arn, VersionId=version)
        document: dict[str, Any] = answer["PolicyVersion"]["Document"]
        return document

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Check permissions; afterwards the account is as it was."""
        self.aws.ask("POST", "/save", {"name": "before"})
        self.aws.control(enforce_iam=True)
        try:
            yield
        finally:
            self.aws.ask("POST", "/restore", {"name": "before"})
            self.aws.control(enforce_iam=False)

    @contextmanager
    def unenforced(self) -> Iterator[None]:
        """Permissions are not checked at first, whatever is ordered meanwhile; afterwards as before."""
        before = self.aws.ask("GET", "")["enforce_iam"]
        self.aws.control(enforce_iam=False)
        try:
            yield
        finally:
            self.aws.control(enforce_iam=before)

    def grant(self, name: str, actions: Iterable[str]) -> None:
        """Give a role actions on everything, and no boundary."""
        iam = self.aws.client("iam")
        statement = {"Effect": "Allow", "Action": sorted(actions), "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_role_policy(RoleName=self.role(name), PolicyName="more", PolicyDocument=document)
        iam.delete_role_permissions_boundary(RoleName=self.role(name))
