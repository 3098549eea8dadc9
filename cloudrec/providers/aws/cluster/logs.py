"""The log group of the control plane.

If it does not exist, EKS creates it, without a key and without a limit to the age of its events, and never
deletes it. So it is created before the cluster, and deleted after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cloudrec.engine.cost import BY_USE
from cloudrec.engine.graph import Condition, Observed
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api.driver import AwsDriver
from cloudrec.providers.aws.identity import encryption
from cloudrec.providers.aws.identity.identity import METRICS
from cloudrec.providers.base.driver import is_ours, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_logs import CloudWatchLogsClient
    from types_boto3_logs.type_defs import LogGroupTypeDef

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.layout import AwsLayout

GROUP, OF_CLUSTER = "log-group", "cluster"
KINDS: Mapping[str, AbstractSet[str]] = {GROUP: frozenset({encryption.KEY})}

_ROOT = "/aws/eks/cloudrec-"  # prefix of the names of all clusters' log groups
_INSIGHTS = "/aws/containerinsights/cloudrec-"  # those of Container Insights
_EARLIER = (
    "/cloudrec/"  # prefix of groups of earlier versions, in which nothing is written; `up` deletes them
)
_TAKEN = "ResourceAlreadyExistsException"
_MILLISECONDS = 1000


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the groups of the control plane's logs and of Container Insights, if they are kept."""
    names = {
        **({OF_CLUSTER: layout.log_group} if layout.settings.log_types else {}),
        **({METRICS: layout.metrics_group} if layout.has_managed_metrics else {}),
    }
    days, key, needs = layout.settings.log_days, layout.settings.kms_key, encryption.needs(layout)
    return [
        layout.resource(
            GROUP,
            suffix,
            needs=needs,
            properties=LogGroupProperties(group=name, days=days, kms_key=key),
            hourly_usd=BY_USE,
        )
        for suffix, name in names.items()
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {GROUP: LogGroupDriver(aws)}


@dataclass(frozen=True, kw_only=True)
class LogGroupProperties(encryption.EncryptedProperties):
    """The requested properties of a log group.

    Attributes:
        group: its name.
        days: how long log events are kept.
    """

    group: str
    days: int


class LogGroupDriver(AwsDriver[LogGroupProperties]):
    """Handles log groups. A group's identity is its name."""

    kind = GROUP
    changeable = frozenset({"days"})
    poll_s = 1.0

    @property
    def logs(self) -> CloudWatchLogsClient:
        """CloudWatch Logs' client."""
        return self.aws.logs

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the log groups by the prefix of their names, and keep those with the cluster's tag."""
        # A prefix also matches clusters whose names begin with this one's; the tags decide.
        prefixes = [f"{root}{cluster or ''}" for root in (_ROOT, _INSIGHTS, _EARLIER)]
        found = [self._observe(row) for prefix in prefixes for row in self._listed(prefix)]
        return [seen for seen in found if is_ours(seen.tags, cluster)]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if the log group exists, else GONE."""
        there = any(row["logGroupName"] == identity for row in self._listed(identity))
        return (Condition.READY if there else Condition.GONE), ""

    def make(
        self, resource: Resource[LogGroupProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the log group, or take over the one that EKS has created for a cluster of this name.

        There is no idempotency token, but a second group of the name is refused.
        """
        del token
        name, key = resource.properties.group, encryption.key_of(resource, identities)
        try:
            self.logs.create_log_group(logGroupName=name, kmsKeyId=key, tags=dict(resource.tags))
        except ClientError as error:
            rows = [row for row in self._listed(name) if row["logGroupName"] == name]
            if errors.code(error) != _TAKEN or not rows:
                raise
            self.logs.associate_kms_key(logGroupName=name, kmsKeyId=key)
            self.logs.tag_resource(resourceArn=_arn(rows[0]), tags=dict(resource.tags))
        return name

    def complete(
        self, resource: Resource[LogGroupProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Set for how many days log events are kept."""
        del identities
        self.logs.put_retention_policy(logGroupName=identity, retentionInDays=resource.properties.days)

    def remove(self, observed: Observed) -> None:
        """Delete the log group with its events."""
        self.logs.delete_log_group(logGroupName=observed.identity)

    def _listed(self, prefix: str) -> Sequence[LogGroupTypeDef]:
        pages = self.logs.get_paginator("describe_log_groups").paginate
        return self.aws.rows(pages, lambda page: page.get("logGroups"), logGroupNamePrefix=prefix)

    def _observe(self, row: LogGroupTypeDef) -> Observed:
        tags = self.aws.read(self.logs.list_tags_for_resource, resourceArn=_arn(row))["tags"]
        return Observed(
            kind=GROUP,
            name=name_of(tags, row["logGroupName"]),
            identity=row["logGroupName"],
            condition=Condition.READY,
            properties={"group": row["logGroupName"], "days": row.get("retentionInDays")},
            tags=tags,
            location=self.aws.region,
            created=row["creationTime"] / _MILLISECONDS,
            hourly_usd=BY_USE,
        )


def _arn(row: LogGroupTypeDef) -> str:
    return str(row["arn"]).removesuffix(":*")  # the suffix means the streams in it
