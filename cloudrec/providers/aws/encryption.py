"""The key that encrypts the cluster's secrets, data and logs, unless the user has one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import best, is_ours, name_of
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.aws import charges, errors
from cloudrec.providers.aws.driver import AwsDriver, as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout

KEY = "key"
KINDS: Mapping[str, AbstractSet[str]] = {KEY: frozenset()}

_DAYS = 7  # in which a key that was deleted can still be saved: the fewest that KMS allows
_STATES = {
    "Enabled": Condition.READY,
    "Creating": Condition.PENDING,
    "Updating": Condition.PENDING,
    # It costs nothing any more, and nothing can be done with it but to save it.
    "PendingDeletion": Condition.GONE,
    "PendingReplicaDeletion": Condition.GONE,
}


def resources(layout: Layout) -> list[Resource]:
    """Describe the key; it holds data, since without it nobody reads what it encrypted."""
    if layout.settings.kms_key:
        return []
    return [
        layout.resource(
            KEY,
            properties={"alias": layout.key_alias, "rotates": True, "policy": _policy(layout)},
            hourly_usd=charges.KMS_KEY,
            holds_data=True,
        )
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {KEY: KeyDriver(aws)}


def needs(layout: Layout) -> tuple[str, ...]:
    """Return what a resource that is encrypted needs: the key, where it is ours to make."""
    return () if layout.settings.kms_key else (layout.key(KEY),)


def key_of(resource: Resource, identities: Mapping[str, str]) -> str:
    """Return the ARN of the key that encrypts a resource: the user's, or ours that it needs."""
    given = resource.properties.get("kms_key")
    return (
        str(given) if given else next(identities[key] for key in resource.needs if key.startswith(f"{KEY}/"))
    )


def _policy(layout: Layout) -> Mapping[str, Any]:
    """Let IAM decide about the account's own people, and the two services that come by themselves in."""
    root = f"arn:{layout.partition}:iam::{layout.account}"
    use = ["kms:Encrypt", "kms:Decrypt", "kms:ReEncryptFrom", "kms:ReEncryptTo", "kms:GenerateDataKey"]
    use += ["kms:GenerateDataKeyWithoutPlaintext", "kms:DescribeKey"]
    of_fsx = f"{root}:role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/*"
    groups = f"arn:{layout.partition}:logs:{layout.region}:{layout.account}:log-group"
    statements: list[dict[str, Any]] = [
        {"Sid": "Account", "Principal": {"AWS": f"{root}:root"}, "Action": "kms:*"},
        {
            "Sid": "Logs",
            "Principal": {"Service": f"logs.{layout.region}.amazonaws.com"},
            "Action": use,
            "Condition": {
                "ArnEquals": {"kms:EncryptionContext:aws:logs:arn": f"{groups}:{layout.log_group}"}
            },
        },
        {
            # FSx reads and writes the bucket in a role that it makes for each file system.
            "Sid": "FileSystem",
            "Principal": {"AWS": "*"},
            "Action": use,
            "Condition": {
                "StringEquals": {
                    "kms:CallerAccount": layout.account,
                    "kms:ViaService": f"s3.{layout.region}.amazonaws.com",
                },
                "ArnLike": {"aws:PrincipalArn": of_fsx},
            },
        },
    ]
    return {
        "Version": "2012-10-17",
        "Statement": [{**statement, "Effect": "Allow", "Resource": "*"} for statement in statements],
    }


class KeyDriver(AwsDriver):
    """Handles keys, each with an alias by which it is found. A key's identity is its ARN."""

    kind = KEY
    changeable = frozenset({"alias", "rotates", "policy"})
    poll_s = 1.0

    @property
    def kms(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """KMS's client."""
        return self.aws.client("kms")

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find by tag, where KMS itself lists only all keys of the account."""
        found = [self._observe(arn) for arn in self.aws.tagged("kms:key", cluster)]
        return [seen for seen in found if seen is not None and is_ours(seen.tags, cluster)]

    def find(self, resource: Resource) -> Observed | None:
        """Look it up by its alias, or where a crash kept that from being made by its tags."""
        alias = resource.properties["alias"]
        seen = self._observe(alias) or best(
            each for each in self.search(resource.tags[TAG_CLUSTER]) if each.key == resource.key
        )
        if seen is None:
            return None
        aliases = self.aws.read("kms", "list_aliases", "Aliases", KeyId=seen.identity)
        rotation = self.aws.read("kms", "get_key_rotation_status", KeyId=seen.identity)
        policy = self.aws.read("kms", "get_key_policy", KeyId=seen.identity, PolicyName="default")
        return replace(
            seen,
            properties={
                "alias": next((each["AliasName"] for each in aliases if each["AliasName"] == alias), ""),
                "rotates": rotation["KeyRotationEnabled"],
                "policy": json.loads(policy["Policy"]),
            },
        )

    def look(self, identity: str) -> tuple[Condition, str]:
        """Tell its state."""
        row = self.aws.read("kms", "describe_key", KeyId=identity)["KeyMetadata"]
        return _STATES.get(row["KeyState"], Condition.FAILED), f"the key is {row['KeyState']}"

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the key; KMS has neither token nor name for it."""
        del token, identities
        answer = self.kms.create_key(
            Description=f"cloudrec: {resource.name}",
            Policy=json.dumps(resource.properties["policy"]),
            Tags=as_list(resource.tags, "TagKey", "TagValue"),
        )
        return str(answer["KeyMetadata"]["Arn"])

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:
        """Give it its alias, which may still be of a key that is going, its policy and its rotation."""
        del identities
        wanted = resource.properties
        try:
            self.kms.create_alias(AliasName=wanted["alias"], TargetKeyId=identity)
        except ClientError as error:
            if errors.code(error) != "AlreadyExistsException":
                raise
            self.kms.update_alias(AliasName=wanted["alias"], TargetKeyId=identity)
        self.kms.put_key_policy(KeyId=identity, PolicyName="default", Policy=json.dumps(wanted["policy"]))
        self.kms.enable_key_rotation(KeyId=identity)

    def remove(self, observed: Observed) -> None:
        """Take its names, and have it deleted at the end of the time in which it can be saved."""
        for alias in self.aws.read("kms", "list_aliases", "Aliases", KeyId=observed.identity):
            self.kms.delete_alias(AliasName=alias["AliasName"])
        if self.look(observed.identity)[0] is not Condition.GONE:
            self.kms.schedule_key_deletion(KeyId=observed.identity, PendingWindowInDays=_DAYS)

    def _observe(self, key: str) -> Observed | None:
        """Describe a key by its ARN or alias; None where there is none, or it is going."""
        try:
            row = self.aws.read("kms", "describe_key", KeyId=key)["KeyMetadata"]
        except ClientError as error:
            if errors.is_absent(error):
                return None
            raise
        condition = _STATES.get(row["KeyState"], Condition.FAILED)
        if condition is Condition.GONE:
            return None
        tags = as_map(
            self.aws.read("kms", "list_resource_tags", "Tags", KeyId=row["KeyId"]), "TagKey", "TagValue"
        )
        return Observed(
            kind=KEY,
            name=name_of(tags, row["KeyId"]),
            identity=row["Arn"],
            condition=condition,
            tags=tags,
            hourly_usd=charges.KMS_KEY,
            holds_data=True,
            reason="" if condition is Condition.READY else f"the key is {row['KeyState']}",
            location=self.aws.region,
            created=row["CreationDate"].timestamp(),
        )
