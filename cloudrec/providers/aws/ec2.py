"""What EC2's resources share: they are described alike, filtered by tag, and born with tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.cloud.driver import best, name_of
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Observed
from cloudrec.providers.aws.driver import AwsDriver, as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Resource

Row = dict[str, Any]  # one thing, as EC2 describes it


def of_cluster(cluster: str | None) -> list[dict[str, Any]]:
    """Return the filter for what is tagged as one cluster's, or as any cluster's of ours."""
    if cluster is None:
        return [{"Name": "tag-key", "Values": [TAG_CLUSTER]}]
    return [{"Name": f"tag:{TAG_CLUSTER}", "Values": [cluster]}]


class Ec2Driver(AwsDriver):
    """Handles one kind of EC2's resources, given EC2's words for it.

    Where EC2 tells no state, existing is being ready.
    """

    operation: ClassVar[str]  # describe_vpcs
    rows: ClassVar[str]  # Vpcs
    id_field: ClassVar[str]  # VpcId
    ids: ClassVar[str]  # VpcIds, the parameter
    filters: ClassVar[str] = "Filters"
    tag_type: ClassVar[str]  # vpc, in TagSpecifications
    states: ClassVar[Mapping[str, Condition]] = {}

    @property
    def ec2(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """EC2's client."""
        return self.aws.client("ec2")

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List by the cluster's tag."""
        return self.listed(of_cluster(cluster))

    def find(self, resource: Resource) -> Observed | None:
        """List by the cluster's tag and its own key."""
        tags = (TAG_CLUSTER, TAG_KEY)
        return best(
            iter(self.listed([{"Name": f"tag:{tag}", "Values": [resource.tags[tag]]} for tag in tags]))
        )

    def listed(self, filters: Sequence[Mapping[str, Any]]) -> list[Observed]:
        """Observe what passes the filters and is not gone."""
        found = [self.observe(row) for row in self.read(**{self.filters: list(filters)})]
        return [seen for seen in found if seen.condition is not Condition.GONE]

    def read(self, **parameters: object) -> list[Row]:
        """Describe."""
        rows: list[Row] = self.aws.read("ec2", self.operation, self.rows, **parameters)
        return rows

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it by its identity."""
        rows = self.read(**{self.ids: [identity]})
        return self.state(rows[0]) if rows else (Condition.GONE, "")

    def observe(self, row: Row) -> Observed:
        """Tell of one described thing what the engine wants to know."""
        tags = as_map(row.get("Tags"))
        condition, reason = self.state(row)
        created = row.get("CreateTime") or row.get("CreationTimestamp")
        return Observed(
            kind=self.kind,
            name=name_of(tags, row[self.id_field]),
            identity=row[self.id_field],
            condition=condition,
            properties=self.properties(row, tags),
            tags=tags,
            hourly_usd=self.hourly_usd(row),
            reason=reason,
            location=self.aws.region,
            created=created.timestamp() if created is not None else None,
        )

    def state(self, row: Row) -> tuple[Condition, str]:
        """Tell how far it has come, and why it failed."""
        state = str(row.get("State", "available")).lower()
        return self.states.get(state, Condition.READY if state == "available" else Condition.PENDING), ""

    def properties(self, row: Row, tags: Mapping[str, str]) -> Mapping[str, Any]:
        """Tell what drift is told from."""
        del row, tags
        return {}

    def hourly_usd(self, row: Row) -> float:
        """Tell what it costs an hour."""
        del row
        return 0.0

    def born_with(self, resource: Resource) -> list[dict[str, Any]]:
        """Return the TagSpecifications of its creation."""
        return [{"ResourceType": self.tag_type, "Tags": as_list(resource.tags)}]

    def tag(self, identity: str, tags: Mapping[str, str]) -> None:
        """Set tags on what exists."""
        self.ec2.create_tags(Resources=[identity], Tags=as_list(tags))
