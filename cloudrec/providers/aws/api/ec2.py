"""The base class of drivers of EC2's resources: all are listed by tag, and tagged when they are created."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Observed, P_contra
from cloudrec.providers.aws.api.driver import AwsDriver, as_map
from cloudrec.providers.base.driver import best, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.literals import ResourceTypeType
    from types_boto3_ec2.type_defs import (
        FilterTypeDef,
        IpPermissionOutputTypeDef,
        IpPermissionTypeDef,
        TagSpecificationTypeDef,
        TagTypeDef,
    )

    from cloudrec.engine.graph import Resource

Row = TypeVar("Row")  # a resource in EC2's response


@dataclass(frozen=True, kw_only=True)
class Ec2Facts:
    """What EC2 reports about resources of every kind.

    Attributes:
        identity: EC2's ID of the resource.
        tags: its tags, as EC2 lists them.
        state: its state; a kind without states is available as soon as it exists.
        created: when it was created; None if EC2 does not report that.
    """

    identity: str
    tags: Sequence[TagTypeDef] | None
    state: str = "available"
    created: datetime | None = None


def of_cluster(cluster: str | None) -> list[FilterTypeDef]:
    """Return the filter for resources with the tag of this cluster; of any cluster if None."""
    if cluster is None:
        return [{"Name": "tag-key", "Values": [TAG_CLUSTER]}]
    return [{"Name": f"tag:{TAG_CLUSTER}", "Values": [cluster]}]


def naming(rules: Sequence[IpPermissionOutputTypeDef], group: str) -> list[IpPermissionTypeDef]:
    """Return those rules that name a security group as their peer, without their other peers."""
    found: list[IpPermissionTypeDef] = []
    for rule in rules:
        if any(pair.get("GroupId") == group for pair in rule.get("UserIdGroupPairs") or ()):
            # Other peers of the rule must keep it: a revocation removes only the peers that it names.
            only: IpPermissionTypeDef = {"UserIdGroupPairs": [{"GroupId": group}]}
            if "IpProtocol" in rule:
                only["IpProtocol"] = rule["IpProtocol"]
            if "FromPort" in rule:
                only["FromPort"] = rule["FromPort"]
            if "ToPort" in rule:
                only["ToPort"] = rule["ToPort"]
            found.append(only)
    return found


class Ec2Driver(AwsDriver[P_contra], Generic[Row, P_contra]):
    """Handles one kind of EC2's resources; a subclass lists them and reads their rows."""

    tag_type: ClassVar[ResourceTypeType]  # the kind's name in TagSpecifications
    states: ClassVar[Mapping[str, Condition]] = {}
    charge: ClassVar[float | None] = None  # USD an hour of each; None if `hourly_usd` computes it

    @property
    def ec2(self) -> EC2Client:
        """EC2's client."""
        return self.aws.ec2

    @abstractmethod
    def rows(self, *, ids: Sequence[str] = (), filters: Sequence[FilterTypeDef] = ()) -> list[Row]:
        """Return the resources with these IDs; without IDs, those that match the filters."""

    @abstractmethod
    def facts(self, row: Row) -> Ec2Facts:
        """Return the fields that every kind has."""

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the resources with the cluster's tag."""
        return self.listed(of_cluster(cluster))

    def find(self, resource: Resource[P_contra]) -> Observed | None:
        """List the resources with the tags of the cluster and of the key; return the most advanced one."""
        filters: list[FilterTypeDef] = [
            {"Name": f"tag:{tag}", "Values": [resource.tags[tag]]} for tag in (TAG_CLUSTER, TAG_KEY)
        ]
        return best(iter(self.listed(filters)))

    def listed(self, filters: Sequence[FilterTypeDef]) -> list[Observed]:
        """Return the resources that match the filters and are not gone."""
        found = [self.observe(row) for row in self.rows(filters=filters)]
        return [seen for seen in found if seen.condition is not Condition.GONE]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the state of the resource with this ID; GONE if EC2 does not list it."""
        rows = self.rows(ids=[identity])
        return self.state(rows[0]) if rows else (Condition.GONE, "")

    def observe(self, row: Row) -> Observed:
        """Return a row as an `Observed`."""
        facts = self.facts(row)
        tags = as_map(facts.tags)
        condition, reason = self.state(row)
        return Observed(
            kind=self.kind,
            name=name_of(tags, facts.identity),
            identity=facts.identity,
            condition=condition,
            properties=self.properties(row, tags),
            tags=tags,
            hourly_usd=self.hourly_usd(row),
            reason=reason,
            location=self.aws.region,
            created=facts.created.timestamp() if facts.created is not None else None,
        )

    def state(self, row: Row) -> tuple[Condition, str]:
        """Return the resource's condition, and the reason if it failed."""
        # Only states that mean something else are in `states`; any unknown state is on its way to available.
        state = self.facts(row).state.lower()
        return self.states.get(state, Condition.READY if state == "available" else Condition.PENDING), ""

    def properties(self, row: Row, tags: Mapping[str, str]) -> Mapping[str, object]:
        """Return the observed properties, by the names of the kind's requested ones."""
        del row, tags
        return {}

    def hourly_usd(self, row: Row) -> float | None:
        """Return the USD an hour; None if the price is not known."""
        del row
        return self.charge

    def born_with(self, resource: Resource[P_contra]) -> list[TagSpecificationTypeDef]:
        """Return the TagSpecifications of the call that creates the resource."""
        return [{"ResourceType": self.tag_type, "Tags": _tags(resource.tags)}]

    def tag(self, identity: str, tags: Mapping[str, str]) -> None:
        """Add tags to an existing resource."""
        self.ec2.create_tags(Resources=[identity], Tags=_tags(tags))


def _tags(tags: Mapping[str, str]) -> list[TagTypeDef]:
    return [{"Key": name, "Value": content} for name, content in tags.items()]
