"""The KMS key of the cluster's secrets, data and logs, unless the settings name one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed, Properties
from cloudrec.errors import SpecError
from cloudrec.findings import Finding
from cloudrec.providers.aws import charges, errors
from cloudrec.providers.aws.api.driver import AwsDriver, as_map
from cloudrec.providers.base.driver import best, is_ours, name_of, needed
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_kms import KMSClient
    from types_boto3_kms.type_defs import KeyMetadataTypeDef

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.layout import AwsLayout
    from cloudrec.providers.aws.settings import AwsSettings

KEY = "key"
TAG_DATA = "cloudrec-data"  # on a key that encrypts no data, with the value "none"
KINDS: Mapping[str, AbstractSet[str]] = {KEY: frozenset()}

_DAYS = 7  # between a key's deletion and its end, when it can be restored: KMS's minimum
_STATES = {
    "Enabled": Condition.READY,
    "Creating": Condition.PENDING,
    "Updating": Condition.PENDING,
    # Such a key costs nothing, and can only be restored.
    "PendingDeletion": Condition.GONE,
    "PendingReplicaDeletion": Condition.GONE,
}


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the key. It holds data: what it encrypted cannot be read without it.

    If the bucket is of another cluster, the key is for secrets and logs alone, which `down` always removes.
    """
    if layout.settings.kms_key:
        return []
    return [
        layout.resource(
            KEY,
            properties=KeyProperties(alias=layout.key_alias, rotates=True, policy=_policy(layout)),
            tags={} if layout.has_own_storage else {TAG_DATA: "none"},
            hourly_usd=layout.prices.service(charges.KMS_KEY),
            holds_data=layout.has_own_storage,
        )
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {KEY: KeyDriver(aws)}


def needs(layout: AwsLayout) -> tuple[str, ...]:
    """Return the needs of an encrypted resource: the cluster's key, or none if the settings name a key."""
    return () if layout.settings.kms_key else (layout.key(KEY),)


@dataclass(frozen=True, kw_only=True)
class EncryptedProperties(Properties):
    """The requested properties of a resource that a KMS key encrypts.

    Attributes:
        kms_key: the ARN of the user's key; None if the cluster's own key encrypts it.
    """

    kms_key: str | None = None


def named(aws: Aws, settings: AwsSettings) -> str | None:
    """Return the ARN of the key that the settings name, by its ARN or an alias; None if they name none.

    Raises:
        SpecError: the value names no key of this region.
    """
    name = settings.kms_key
    if name is None or re.fullmatch(rf"arn:aws[a-z-]*:kms:{aws.region}:\d{{12}}:key/.+", name):
        return name
    remedy = f"give the ARN of a key in {aws.region}, or alias/NAME (--set cluster.settings.kms_key=...)"
    if not re.fullmatch(rf"(arn:aws[a-z-]*:kms:{aws.region}:\d{{12}}:)?alias/.+", name):
        raise SpecError(f"cluster.settings.kms_key has {name!r}, no key of {aws.region}", remedy=remedy)
    # EKS and the key policies of roles take no alias.
    row = _described(aws, name)
    if row is None:
        raise SpecError(f"there is no KMS key {name!r} in {aws.region}", remedy=remedy)
    return row["Arn"]


def finding(aws: Aws, layout: AwsLayout) -> list[Finding]:
    """Check that the key that the settings name can be used; EKS would refuse it when the network is made."""
    name = layout.settings.kms_key
    if name is None:
        return []
    row = _described(aws, name)
    state = row["KeyState"] if row else "not found"
    return [
        Finding(
            check="KMS key",
            ok=state == "Enabled",
            found=f"{name} is {state}",
            needed="an enabled key",
            remedy="enable it, or name another one (--set cluster.settings.kms_key=...)",
        )
    ]


def _described(aws: Aws, name: str) -> KeyMetadataTypeDef | None:
    try:
        return aws.read(aws.kms.describe_key, KeyId=name)["KeyMetadata"]
    except ClientError as error:
        if errors.is_absent(error):
            return None
        raise


def key_of(resource: Resource[EncryptedProperties], identities: Mapping[str, str]) -> str:
    """Return the ARN of the key that encrypts a resource: the user's, or the cluster's, which it needs."""
    return resource.properties.kms_key or needed(resource, identities, KEY)


def _policy(layout: AwsLayout) -> Mapping[str, object]:
    """Return the key policy: IAM decides for the account; CloudWatch Logs and FSx may use the key."""
    root = f"arn:{layout.partition}:iam::{layout.account}"
    use = ["kms:Encrypt", "kms:Decrypt", "kms:ReEncryptFrom", "kms:ReEncryptTo", "kms:GenerateDataKey"]
    use += ["kms:GenerateDataKeyWithoutPlaintext", "kms:DescribeKey"]
    of_fsx = f"{root}:role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/*"
    groups = f"arn:{layout.partition}:logs:{layout.region}:{layout.account}:log-group"
    names = [layout.log_group, *([layout.metrics_group] if layout.has_managed_metrics else [])]
    statements: list[dict[str, object]] = [
        {"Sid": "Account", "Principal": {"AWS": f"{root}:root"}, "Action": "kms:*"},
        {
            "Sid": "Logs",
            "Principal": {"Service": f"logs.{layout.region}.{layout.dns_suffix}"},
            "Action": use,
            "Condition": {
                "ArnEquals": {
                    "kms:EncryptionContext:aws:logs:arn": [f"{groups}:{name}" for name in names]
                    if len(names) > 1
                    else f"{groups}:{names[0]}"
                }
            },
        },
        {
            # FSx reads and writes the bucket with a service-linked role that it creates for each file system.
            "Sid": "FileSystem",
            "Principal": {"AWS": "*"},
            "Action": use,
            "Condition": {
                "StringEquals": {
                    "kms:CallerAccount": layout.account,
                    "kms:ViaService": f"s3.{layout.region}.{layout.dns_suffix}",
                },
                "ArnLike": {"aws:PrincipalArn": of_fsx},
            },
        },
    ]
    return {
        "Version": "2012-10-17",
        "Statement": [{**statement, "Effect": "Allow", "Resource": "*"} for statement in statements],
    }


@dataclass(frozen=True, kw_only=True)
class KeyProperties(Properties):
    """The requested properties of a KMS key.

    Attributes:
        alias: the alias by which it is found.
        rotates: whether KMS renews its material every year.
        policy: its key policy.
    """

    alias: str
    rotates: bool
    policy: Mapping[str, object]


class KeyDriver(AwsDriver[KeyProperties]):
    """Handles keys. A key is found by its alias; its identity is its ARN."""

    kind = KEY
    changeable = frozenset({"alias", "rotates", "policy"})
    poll_s = 1.0

    @property
    def kms(self) -> KMSClient:
        """KMS's client."""
        return self.aws.kms

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the keys through the tagging API: KMS itself cannot list by tag."""
        found = [self._observe(arn) for arn in self.aws.tagged("kms:key", cluster)]
        return [seen for seen in found if seen is not None and is_ours(seen.tags, cluster)]

    def find(self, resource: Resource[KeyProperties]) -> Observed | None:
        """Find the key by its alias; by its tags if a crash came before the alias was created."""
        alias = resource.properties.alias
        seen = self._observe(alias) or best(
            each for each in self.search(resource.tags[TAG_CLUSTER]) if each.key == resource.key
        )
        if seen is None:
            return None
        rotation = self.aws.read(self.kms.get_key_rotation_status, KeyId=seen.identity)
        policy = self.aws.read(self.kms.get_key_policy, KeyId=seen.identity, PolicyName="default")
        return replace(
            seen,
            properties={
                "alias": alias if alias in self._aliases(seen.identity) else "",
                "rotates": rotation["KeyRotationEnabled"],
                "policy": safe_json(policy["Policy"]),
            },
        )

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the key's condition; GONE as soon as its deletion is scheduled."""
        row = self.aws.read(self.kms.describe_key, KeyId=identity)["KeyMetadata"]
        return _STATES.get(row["KeyState"], Condition.FAILED), f"the key is {row['KeyState']}"

    def make(self, resource: Resource[KeyProperties], *, token: str, identities: Mapping[str, str]) -> str:
        """Create the key. KMS has no idempotency token, and keys have no names."""
        del token, identities
        answer = self.kms.create_key(
            Description=f"cloudrec: {resource.name}",
            Policy=json.dumps(resource.properties.policy),
            Tags=[{"TagKey": name, "TagValue": value} for name, value in resource.tags.items()],
        )
        return str(answer["KeyMetadata"]["Arn"])

    def complete(
        self, resource: Resource[KeyProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Set alias, policy and rotation; an alias of an earlier key is moved to this one."""
        del identities
        wanted = resource.properties
        try:
            self.kms.create_alias(AliasName=wanted.alias, TargetKeyId=identity)
        except ClientError as error:
            if errors.code(error) != "AlreadyExistsException":
                raise
            self.kms.update_alias(AliasName=wanted.alias, TargetKeyId=identity)
        self.kms.put_key_policy(KeyId=identity, PolicyName="default", Policy=json.dumps(wanted.policy))
        self.kms.enable_key_rotation(KeyId=identity)

    def remove(self, observed: Observed) -> None:
        """Delete its aliases, and schedule its deletion."""
        for alias in self._aliases(observed.identity):
            self.kms.delete_alias(AliasName=alias)
        if self.look(observed.identity)[0] is not Condition.GONE:
            self.kms.schedule_key_deletion(KeyId=observed.identity, PendingWindowInDays=_DAYS)

    def _aliases(self, key: str) -> list[str]:
        pages = self.kms.get_paginator("list_aliases").paginate
        return [row["AliasName"] for row in self.aws.rows(pages, lambda page: page.get("Aliases"), KeyId=key)]

    def _observe(self, key: str) -> Observed | None:
        """Return a key by its ARN or alias; None if there is none, or its deletion is scheduled."""
        try:
            row = self.aws.read(self.kms.describe_key, KeyId=key)["KeyMetadata"]
        except ClientError as error:
            if errors.is_absent(error):
                return None
            raise
        condition = _STATES.get(row["KeyState"], Condition.FAILED)
        if condition is Condition.GONE:
            return None
        pages = self.kms.get_paginator("list_resource_tags").paginate
        listed = self.aws.rows(pages, lambda page: page.get("Tags"), KeyId=row["KeyId"])
        tags = as_map(listed, "TagKey", "TagValue")
        return Observed(
            kind=KEY,
            name=name_of(tags, row["KeyId"]),
            identity=row["Arn"],
            condition=condition,
            tags=tags,
            hourly_usd=self.aws.prices.service(charges.KMS_KEY),
            holds_data=TAG_DATA not in tags,
            reason="" if condition is Condition.READY else f"the key is {row['KeyState']}",
            location=self.aws.region,
            created=row["CreationDate"].timestamp(),
        )
