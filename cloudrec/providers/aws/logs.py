"""The group that the runs' logs go to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import is_ours, name_of
from cloudrec.engine.graph import Condition, Observed
from cloudrec.providers.aws import encryption
from cloudrec.providers.aws.driver import AwsDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout

GROUP = "log-group"
KINDS: Mapping[str, AbstractSet[str]] = {GROUP: frozenset({encryption.KEY})}

_ROOT = "/cloudrec/"  # what all clusters' groups begin with
_MILLISECONDS = 1000


def resources(layout: Layout) -> list[Resource]:
    """Describe the group."""
    properties = {
        "group": layout.log_group,
        "days": layout.settings.log_days,
        "kms_key": layout.settings.kms_key,
    }
    return [layout.resource(GROUP, needs=encryption.needs(layout), properties=properties)]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {GROUP: LogGroupDriver(aws)}


class LogGroupDriver(AwsDriver):
    """Handles log groups. A group's identity is its name."""

    kind = GROUP
    changeable = frozenset({"days"})
    poll_s = 1.0

    @property
    def logs(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """CloudWatch Logs' client."""
        return self.aws.client("logs")

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List ours by name, and read the tags of each."""
        prefix = _ROOT if cluster is None else f"{_ROOT}{cluster}"
        found = [self._observe(row) for row in self._listed(prefix)]
        return [seen for seen in found if is_ours(seen.tags, cluster)]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Tell whether it is there."""
        there = any(row["logGroupName"] == identity for row in self._listed(identity))
        return (Condition.READY if there else Condition.GONE), ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the group; there is no token for it, but a second one of its name is refused."""
        del token
        name = str(resource.properties["group"])
        key = encryption.key_of(resource, identities)
        self.logs.create_log_group(logGroupName=name, kmsKeyId=key, tags=dict(resource.tags))
        return name

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:
        """Say how long it keeps what is in it."""
        del identities
        self.logs.put_retention_policy(logGroupName=identity, retentionInDays=resource.properties["days"])

    def remove(self, observed: Observed) -> None:
        """Delete the group."""
        self.logs.delete_log_group(logGroupName=observed.identity)

    def _listed(self, prefix: str) -> Sequence[Mapping[str, Any]]:
        rows: Sequence[Mapping[str, Any]] = self.aws.read(
            "logs", "describe_log_groups", "logGroups", logGroupNamePrefix=prefix
        )
        return rows

    def _observe(self, row: Mapping[str, Any]) -> Observed:
        arn = str(row["arn"]).removesuffix(":*")  # with the ending it means the streams in it
        tags: dict[str, str] = self.aws.read("logs", "list_tags_for_resource", resourceArn=arn)["tags"]
        return Observed(
            kind=GROUP,
            name=name_of(tags, row["logGroupName"]),
            identity=row["logGroupName"],
            condition=Condition.READY,
            properties={"group": row["logGroupName"], "days": row.get("retentionInDays")},
            tags=tags,
            location=self.aws.region,
            created=row["creationTime"] / _MILLISECONDS,
        )
