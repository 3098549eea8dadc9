"""The base class of drivers of a cluster's parts, which EKS lists by name and describes one by one."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from botocore.exceptions import ClientError

from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed, P_contra
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api.driver import AwsDriver
from cloudrec.providers.base.driver import is_ours, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from types_boto3_eks import EKSClient
    from types_boto3_eks.type_defs import ClusterTypeDef

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws

Row = TypeVar("Row")  # a part in EKS's response

PREFIX = "cloudrec-"  # of a cluster's name in EKS; the title follows
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


@dataclass(frozen=True, kw_only=True)
class EksFacts:
    """What EKS reports about parts of every kind.

    Attributes:
        status: its status; a kind without statuses is active as soon as it exists.
        issues: its health issues, as CODE: MESSAGE; empty for none.
        tags: its tags.
        created: when it was created; None if EKS does not report that.
    """

    status: str = "ACTIVE"
    issues: str = ""
    tags: Mapping[str, str] | None
    created: datetime | None


class PartDriver(AwsDriver[P_contra], Generic[Row, P_contra]):
    """Handles one kind of a cluster's parts. The identity is CLUSTER/NAME, the names of both in EKS."""

    charge: ClassVar[float | None] = None  # USD an hour of each; None if `hourly_usd` computes it

    @property
    def eks(self) -> EKSClient:
        """EKS's client."""
        return self.aws.eks

    @abstractmethod
    def parts(self, cluster: str) -> Sequence[str]:
        """Return the names of all parts of this kind; `cluster` is the cluster's name in EKS."""

    @abstractmethod
    def described(self, cluster: str, name: str) -> Row:
        """Return one part; EKS's error if it does not exist."""

    @abstractmethod
    def facts(self, row: Row) -> EksFacts:
        """Return the fields that every kind has."""

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return the parts with the cluster's tag; of any cluster if None."""
        found = [seen for name in self.clusters(cluster) for seen in self._of(name)]
        return [seen for seen in found if is_ours(seen.tags, cluster)]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the condition of the part with this identity; EKS's error if it does not exist."""
        return self.state(self.described(*split(identity)))

    def seen(self, cluster: str, name: str) -> Observed | None:
        """Return one part as an `Observed`; None if it does not exist."""
        try:
            row = self.described(cluster, name)
        except ClientError as error:
            # The part may have been deleted since it was listed.
            if errors.is_absent(error):
                return None
            raise
        return self.observe(cluster, name, row)

    def observe(self, cluster: str, name: str, row: Row) -> Observed:
        """Return a row as an `Observed`."""
        facts = self.facts(row)
        condition, reason = self.state(row)
        tags = facts.tags or {}
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
            created=facts.created.timestamp() if facts.created is not None else None,
        )

    def state(self, row: Row) -> tuple[Condition, str]:
        """Return the part's condition, and the reason if it failed."""
        facts = self.facts(row)
        return STATES.get(facts.status, Condition.PENDING), facts.issues

    def properties(self, row: Row) -> Mapping[str, object]:
        """Return the observed properties, by the names of the kind's requested ones."""
        del row
        return {}

    def hourly_usd(self, row: Row) -> float | None:
        """Return the USD an hour; None if the price is not known."""
        del row
        return self.charge

    def clusters(self, cluster: str | None) -> Sequence[str]:
        """Return the name in EKS of this cluster; of every cluster of cloudrec if None."""
        if cluster is not None:
            return [f"{PREFIX}{cluster}"]
        return names(self.aws)

    def adopted(self, resource: Resource[P_contra], cluster: str, name: str) -> str:
        """Return the identity of an existing part of this name if cloudrec created it, else an empty text.

        A creation whose response was lost may have had its effect. EKS then refuses the next one, because the
        name is in use.
        """
        seen = self.seen(cluster, name)
        ours = resource.tags[TAG_CLUSTER]
        # One that is being deleted is of no use: its name is free once it is gone.
        if seen is None or seen.cluster != ours or seen.condition is Condition.DELETING:
            return ""
        return seen.identity

    def _of(self, cluster: str) -> list[Observed]:
        try:
            names = self.parts(cluster)
        except ClientError as error:
            # Without the cluster there are no parts.
            if errors.is_absent(error):
                return []
            raise
        return [seen for name in names if (seen := self.seen(cluster, name)) is not None]


def split(identity: str) -> tuple[str, str]:
    """Return the cluster and the name in a part's identity."""
    cluster, _, name = identity.partition("/")
    return cluster, name


def names(aws: Aws) -> list[str]:
    """Return the names in EKS of all clusters of cloudrec."""
    listed = aws.rows(aws.eks.get_paginator("list_clusters").paginate, lambda page: page.get("clusters"))
    return [name for name in listed if name.startswith(PREFIX)]


def described(aws: Aws, name: str) -> ClusterTypeDef:
    """Return the cluster of this name in EKS; EKS's error if it does not exist."""
    return aws.read(aws.eks.describe_cluster, name=name)["cluster"]


def issues(found: Iterable[Mapping[str, object]] | None) -> str:
    """Return health issues as CODE: MESSAGE; empty for none."""
    return "; ".join(f"{issue.get('code', 'unknown')}: {issue.get('message', '')}" for issue in found or ())


def is_taken(error: ClientError) -> bool:
    """Return whether the error means that the name is in use."""
    return errors.code(error) == "ResourceInUseException"
