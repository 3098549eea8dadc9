"""Leftovers as a resource: it goes after the cluster and before the network, and its removal is the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import best, needed
from cloudrec.cloud.leftovers import LEFTOVERS, SomethingLeftError, Sweeper, still_lives
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Observed
from cloudrec.providers.aws import eks, errors, network, strays
from cloudrec.providers.aws.driver import AwsDriver, as_map

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout
    from cloudrec.providers.aws.strays import Place

_NETWORK = frozenset({network.VPC, network.SUBNET, network.GATEWAY, "security-group"})
KINDS: Mapping[str, AbstractSet[str]] = {
    LEFTOVERS: _NETWORK,
    strays.LOAD_BALANCER: _NETWORK | {strays.TARGETS, strays.GROUP},
    strays.TARGETS: _NETWORK,
    strays.INTERFACE: _NETWORK | {strays.GROUP},
    strays.VOLUME: frozenset(),
    strays.GROUP: frozenset({network.VPC}),
    strays.LOGS: frozenset(),
}


def resources(layout: Layout) -> list[Resource]:
    """Describe the sweep: it stands on the whole network, and the cluster on it."""
    return [
        layout.resource(
            LEFTOVERS,
            needs=(
                layout.key(network.VPC),
                layout.key(network.GATEWAY),
                *network.private(layout),
                *network.public(layout),
                layout.key("security-group", "nodes"),
            ),
        )
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    sweepers = {driver.kind: driver(aws) for driver in strays.DRIVERS}
    return {LEFTOVERS: LeftoversDriver(aws, list(sweepers.values())), **sweepers}


class LeftoversDriver(Sweeper, AwsDriver):
    """Handles all that controllers leave in a cluster's VPC. The identity is the VPC's.

    While the VPC is there, leftovers are taken to be there; their removal goes on until nothing is left.
    """

    def __init__(self, aws: Aws, sweepers: Sequence[strays.StrayDriver]) -> None:
        super().__init__(aws)
        self._sweepers = sweepers
        self._interfaces = strays.InterfaceDriver(aws)
        self._swept: set[str] = set()

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find the clusters' VPCs, and what was left by clusters that are gone."""
        rows = self._vpcs(cluster)
        found = [self._observe(row) for row in rows]
        titles = {as_map(row["Tags"])[TAG_CLUSTER] for row in rows}
        titles |= {cluster} if cluster is not None else self._without_network()
        for title in sorted(titles - self._alive(titles)):
            vpcs = tuple(row["VpcId"] for row in rows if as_map(row["Tags"])[TAG_CLUSTER] == title)
            found += self._left(strays.Place(title=title, vpcs=vpcs))
        return found

    def find(self, resource: Resource) -> Observed | None:
        """Look for the VPC."""
        return best(self._observe(row) for row in self._vpcs(resource.tags[TAG_CLUSTER]))

    def look(self, identity: str) -> tuple[Condition, str]:
        """They are there as long as the VPC is, unless they were swept."""
        if identity in self._swept:
            return Condition.GONE, ""
        rows = self.aws.read("ec2", "describe_vpcs", "Vpcs", VpcIds=[identity])
        return (Condition.READY if rows else Condition.GONE), ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Nothing is made: what may be left is wherever the VPC is."""
        del token
        return needed(resource, identities, network.VPC)

    def remove(self, observed: Observed) -> None:
        """Sweep; made again until nothing is left, since one thing keeps the next for a while.

        Raises:
            CloudrecError: the cluster is still there, and with it those who would make everything anew.
            SomethingLeftError: something is still there.
        """
        lives_in = self._network_of(f"{eks.PREFIX}{observed.cluster}")
        if lives_in not in {None, observed.identity}:  # a second VPC of this name: nobody has worked in it
            self._swept.add(observed.identity)
            return
        if lives_in is not None:
            raise still_lives(f"{eks.PREFIX}{observed.cluster}", "aws", observed.cluster)
        place = strays.Place(title=observed.cluster, vpcs=(observed.identity,))
        for driver in self._sweepers:
            for stray in driver.left(place):
                try:
                    driver.delete(stray)
                except ClientError as error:
                    if not strays.is_busy(error):
                        raise
        left = [f"{stray.kind} {stray.identity}" for stray in self._left(place)]
        if left := left + self._interfaces.leaving(place):
            raise SomethingLeftError(", ".join(left))
        self._swept.add(observed.identity)

    def _left(self, place: Place) -> list[Observed]:
        return [stray for driver in self._sweepers for stray in driver.left(place)]

    def _vpcs(self, cluster: str | None) -> list[dict[str, Any]]:
        wanted = {"Name": f"tag:{TAG_CLUSTER}", "Values": [cluster]}
        if cluster is None:
            wanted = {"Name": "tag-key", "Values": [TAG_CLUSTER]}
        rows: list[dict[str, Any]] = self.aws.read("ec2", "describe_vpcs", "Vpcs", Filters=[wanted])
        return rows

    def _without_network(self) -> set[str]:
        """The clusters of ours that disks or logs name: these outlive the network."""
        prefix = f"{strays.OWNER_TAG}{eks.PREFIX}"
        disks = self.aws.read(
            "ec2", "describe_volumes", "Volumes", Filters=[{"Name": "tag-key", "Values": [f"{prefix}*"]}]
        )
        keys = [tag["Key"] for disk in disks for tag in disk["Tags"] if tag["Key"].startswith(prefix)]
        of_logs = f"{strays.LOG_PREFIX}{eks.PREFIX}"
        logs = self.aws.read("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=of_logs)
        names = [log["logGroupName"].removesuffix("/cluster") for log in logs]
        return {key.removeprefix(prefix) for key in keys} | {name.removeprefix(of_logs) for name in names}

    def _alive(self, titles: AbstractSet[str]) -> set[str]:
        """The clusters that EKS still has, however far they have come."""
        return {title for title in titles if self._network_of(f"{eks.PREFIX}{title}") is not None}

    def _network_of(self, cluster: str) -> str | None:
        """The VPC that EKS's cluster is in; None where there is no such cluster."""
        try:
            answer = self.aws.read("eks", "describe_cluster", name=cluster)
        except ClientError as error:
            if errors.is_absent(error):
                return None
            raise
        return str(answer["cluster"]["resourcesVpcConfig"].get("vpcId", ""))

    def _observe(self, row: Mapping[str, Any]) -> Observed:
        tags = as_map(row["Tags"])
        title = tags[TAG_CLUSTER]
        return Observed(
            kind=LEFTOVERS,
            name=title,
            identity=str(row["VpcId"]),
            condition=Condition.READY,
            tags={**tags, TAG_KEY: f"{LEFTOVERS}/{title}"},
            location=self.aws.region,
        )
