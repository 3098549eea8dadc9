"""What EKS's resources share: most are parts of a cluster, listed by name and described one by one."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import is_ours, name_of
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.driver import AwsDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Resource

Row = dict[str, Any]  # one thing, as EKS describes it

PREFIX = "cloudrec-"  # of every cluster's name; the title follows
STATES: Mapping[str, Condition] = {
    "CREATING": Condition.PENDING,
    "PENDING": Condition.PENDING,
    "UPDATING": Condition.PENDING,
    "ACTIVE": Condition.READY,
    "DELETING": Condition.DELETING,
    "CREATE_FAILED": Condition.FAILED,
    "UPDATE_FAILED": Condition.FAILED,
    "DELETE_FAILED": Condition.FAILED,
    "FAILED": Condition.FAILED,
    "DEGRADED": Condition.FAILED,
}


class PartDriver(AwsDriver):
    """Handles one kind of a cluster's parts. Its identity is CLUSTER/NAME, by EKS's names of both."""

    @property
    def eks(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """EKS's client."""
        return self.aws.client("eks")

    @abstractmethod
    def parts(self, cluster: str) -> Sequence[str]:
        """List the names of all parts of this kind, by EKS's name of the cluster."""

    @abstractmethod
    def described(self, cluster: str, name: str) -> Row:
        """Describe one part; EKS's own error where it is not there."""

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the parts of our clusters."""
        found = [seen for name in self.clusters(cluster) for seen in self._of(name)]
        return [seen for seen in found if is_ours(seen.tags, cluster)]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it by its identity."""
        return self.state(self.described(*split(identity)))

    def seen(self, cluster: str, name: str) -> Observed | None:
        """Observe one part by its name; None where it is not there."""
        try:
            row = self.described(cluster, name)
        except ClientError as error:
            if errors.is_absent(error):
                return None
            raise
        return self.observe(cluster, name, row)

    def observe(self, cluster: str, name: str, row: Row) -> Observed:
        """Tell of one described part what the engine wants to know."""
        condition, reason = self.state(row)
        tags = row.get("tags") or {}
        return Observed(
            kind=self.kind,
            name=name_of(tags, name),
            identity=f"{cluster}/{name}",
            condition=condition,
            properties=self.properties(row),
            tags=tags,
            hourly_usd=self.hourly_usd(row),
            reason=reason,
            location=self.aws.region,
            created=row["createdAt"].timestamp() if "createdAt" in row else None,
        )

    def state(self, row: Row) -> tuple[Condition, str]:
        """Tell how far it has come, and why it failed."""
        return STATES.get(row.get("status", "ACTIVE"), Condition.PENDING), issues(row)

    def properties(self, row: Row) -> Mapping[str, Any]:
        """Tell what drift is told from."""
        del row
        return {}

    def hourly_usd(self, row: Row) -> float:
        """Tell what it costs an hour."""
        del row
        return 0.0

    def clusters(self, cluster: str | None) -> Sequence[str]:
        """Return EKS's names of this cluster of ours, or of all."""
        if cluster is not None:
            return [f"{PREFIX}{cluster}"]
        listed = self.aws.read("eks", "list_clusters", "clusters")
        return [name for name in listed if name.startswith(PREFIX)]

    def adopted(self, resource: Resource, cluster: str, name: str) -> str:
        """Return the identity of what exists of this name already, where it is this cluster's.

        An answer that was lost may have had its effect: EKS then says that the name is in use.
        """
        seen = self.seen(cluster, name)
        ours = resource.tags[TAG_CLUSTER]
        if seen is None or seen.cluster != ours or seen.condition is Condition.DELETING:
            return ""
        return seen.identity

    def _of(self, cluster: str) -> list[Observed]:
        try:
            names = self.parts(cluster)
        except ClientError as error:
            if errors.is_absent(error):
                return []
            raise
        return [seen for name in names if (seen := self.seen(cluster, name)) is not None]


def split(identity: str) -> tuple[str, str]:
    """Return cluster and name of a part's identity."""
    cluster, _, name = identity.partition("/")
    return cluster, name


def issues(row: Mapping[str, Any]) -> str:
    """Return what EKS says is wrong with a thing, by code and in words."""
    return "; ".join(
        f"{issue.get('code', 'unknown')}: {issue.get('message', '')}"
        for issue in row.get("health", {}).get("issues") or ()
    )


def is_taken(error: ClientError) -> bool:
    """Tell whether it says that the name is in use."""
    return errors.code(error) == "ResourceInUseException"
