"""Orphaned resources as a resource of the graph, deleted after the cluster and before the network.

Its deletion deletes the orphaned resources: after the cluster, since its controllers would create them again,
and before the network, which they block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Observed
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.api.driver import AwsDriver, as_map
from cloudrec.providers.aws.api.ec2 import of_cluster
from cloudrec.providers.aws.cleanup import orphans
from cloudrec.providers.aws.network import network
from cloudrec.providers.base.driver import best, needed
from cloudrec.providers.base.leftovers import LEFTOVERS, SomethingLeftError, Sweeper, still_lives

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_ec2.type_defs import DescribeVpcsRequestPaginateTypeDef, VpcTypeDef

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.cleanup.orphans import AwsOrphanScope
    from cloudrec.providers.aws.layout import AwsLayout

_NETWORK = frozenset({network.VPC, network.SUBNET, network.GATEWAY, "security-group"})
KINDS: Mapping[str, AbstractSet[str]] = {
    LEFTOVERS: _NETWORK,
    orphans.LOAD_BALANCER: _NETWORK | {orphans.TARGETS, orphans.GROUP},
    orphans.TARGETS: _NETWORK,
    orphans.GUARDDUTY: _NETWORK | {orphans.GROUP},
    orphans.INTERFACE: _NETWORK | {orphans.GROUP},
    orphans.VOLUME: frozenset(),
    orphans.GROUP: frozenset({network.VPC}),
    orphans.LOGS: frozenset(),
}


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the resource: it needs the whole network, and the cluster needs it."""
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
            hourly_usd=FREE,
        )
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    sweepers = {driver.kind: driver(aws) for driver in orphans.DRIVERS}
    return {LEFTOVERS: AwsNetworkOrphansDriver(aws, list(sweepers.values())), **sweepers}


class AwsNetworkOrphansDriver(Sweeper, AwsDriver):
    """Handles all orphaned resources of a cluster. The identity is the ID of its VPC.

    While the VPC exists, orphaned resources are assumed to exist; removal continues until none is left.
    """

    def __init__(self, aws: Aws, sweepers: Sequence[orphans.AwsOrphanDriver]) -> None:
        super().__init__(aws)
        self._sweepers = sweepers
        self._interfaces = orphans.InterfaceDriver(aws)
        self._swept: set[str] = set()

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find the clusters' VPCs, and the orphaned resources of clusters that no longer exist."""
        rows = self._vpcs(cluster)
        found = [self._observe(row) for row in rows]
        titles = {as_map(row["Tags"])[TAG_CLUSTER] for row in rows}
        titles |= {cluster} if cluster is not None else self._without_network()
        # A cluster that exists still uses these resources.
        for title in sorted(titles - self._alive(titles)):
            vpcs = tuple(row["VpcId"] for row in rows if as_map(row["Tags"])[TAG_CLUSTER] == title)
            found += self._left(orphans.AwsOrphanScope(title=title, vpcs=vpcs))
        return found

    def find(self, resource: Resource) -> Observed | None:
        """Return the cluster's VPC as the resource."""
        return best(self._observe(row) for row in self._vpcs(resource.tags[TAG_CLUSTER]))

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return GONE if the VPC does not exist or `remove` has found nothing left in it, else READY."""
        if identity in self._swept:
            return Condition.GONE, ""
        rows = self._described({"VpcIds": [identity]})
        return (Condition.READY if rows else Condition.GONE), ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create nothing, and return the VPC's ID."""
        del token
        return needed(resource, identities, network.VPC)

    def remove(self, observed: Observed) -> None:
        """Delete the orphaned resources.

        Some are in use until others are gone, so that the engine repeats this call until nothing is left.

        Raises:
            CloudrecError: the cluster still exists, and its controllers would create everything again.
            SomethingLeftError: some resources still exist.
        """
        lives_in = self._network_of(f"{eks.PREFIX}{observed.cluster}")
        # A second VPC with this tag, from a call whose response was lost: no cluster was ever in it.
        if lives_in not in {None, observed.identity}:
            self._swept.add(observed.identity)
            return
        if lives_in is not None:
            raise still_lives(f"{eks.PREFIX}{observed.cluster}", "aws", observed.cluster)
        place = orphans.AwsOrphanScope(title=observed.cluster, vpcs=(observed.identity,))
        denied: ClientError | None = None
        # One that is in use does not stop the others: its user may be among them.
        for driver in self._sweepers:
            for stray in driver.left(place):
                try:
                    driver.delete(stray)
                except ClientError as error:
                    if errors.is_denied(error):
                        denied = denied or error  # raised once everything else is deleted
                    elif not orphans.is_busy(error):
                        raise
        if denied is not None:
            raise denied
        left = [f"{stray.kind} {stray.identity}" for stray in self._left(place)]
        if left := left + self._interfaces.leaving(place):
            raise SomethingLeftError(", ".join(left))
        self._swept.add(observed.identity)

    def _left(self, place: AwsOrphanScope) -> list[Observed]:
        return [stray for driver in self._sweepers for stray in driver.left(place)]

    def _vpcs(self, cluster: str | None) -> list[VpcTypeDef]:
        return self._described({"Filters": of_cluster(cluster)})

    def _described(self, asked: DescribeVpcsRequestPaginateTypeDef) -> list[VpcTypeDef]:
        pages = self.aws.ec2.get_paginator("describe_vpcs").paginate
        return self.aws.rows(pages, lambda page: page.get("Vpcs"), **asked)

    def _without_network(self) -> set[str]:
        """Return the clusters that disks or log groups name: these can exist without a network."""
        prefix = f"{orphans.OWNER_TAG}{eks.PREFIX}"
        disks = self.aws.rows(
            self.aws.ec2.get_paginator("describe_volumes").paginate,
            lambda page: page.get("Volumes"),
            Filters=[{"Name": "tag-key", "Values": [f"{prefix}*"]}],
        )
        keys = [tag["Key"] for disk in disks for tag in disk["Tags"] if tag["Key"].startswith(prefix)]
        of_logs = f"{orphans.LOG_PREFIX}{eks.PREFIX}"
        pages = self.aws.logs.get_paginator("describe_log_groups").paginate
        logs = self.aws.rows(pages, lambda page: page.get("logGroups"), logGroupNamePrefix=of_logs)
        names = [log["logGroupName"].removesuffix("/cluster") for log in logs]
        return {key.removeprefix(prefix) for key in keys} | {name.removeprefix(of_logs) for name in names}

    def _alive(self, titles: AbstractSet[str]) -> set[str]:
        """Return the clusters that exist in EKS, in any state."""
        return {title for title in titles if self._network_of(f"{eks.PREFIX}{title}") is not None}

    def _network_of(self, cluster: str) -> str | None:
        """Return the ID of the cluster's VPC; None if EKS has no such cluster."""
        try:
            row = eks.described(self.aws, cluster)
        except ClientError as error:
            if errors.is_absent(error):
                return None
            raise
        return str(row["resourcesVpcConfig"].get("vpcId", ""))

    def _observe(self, row: VpcTypeDef) -> Observed:
        tags = as_map(row["Tags"])
        title = tags[TAG_CLUSTER]
        return Observed(
            kind=LEFTOVERS,
            name=title,
            identity=str(row["VpcId"]),
            condition=Condition.READY,
            tags={**tags, TAG_KEY: f"{LEFTOVERS}/{title}"},
            location=self.aws.region,
            hourly_usd=FREE,
        )
