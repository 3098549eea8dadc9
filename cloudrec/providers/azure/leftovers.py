"""Leftovers as a resource: it goes after the cluster and before the network, and its removal is the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import best, is_ours, needed
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Observed, Verdict
from cloudrec.errors import CloudrecError
from cloudrec.providers.azure import aks, ids, network, strays
from cloudrec.providers.azure.driver import AzureDriver
from cloudrec.providers.azure.groups import GROUP
from cloudrec.providers.azure.rows import group_name, group_names, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.layout import Layout
    from cloudrec.providers.azure.strays import Place

LEFTOVERS = "leftovers"
_NETWORK = frozenset({GROUP, network.NETWORK, network.SUBNET, network.FIREWALL, network.ADDRESS, network.NAT})
KINDS: Mapping[str, AbstractSet[str]] = {
    LEFTOVERS: _NETWORK,
    strays.NODE_GROUP: _NETWORK,
    strays.STRAY: _NETWORK,
}


def resources(layout: Layout) -> list[Resource]:
    """Describe the sweep: it stands on the whole network, and the cluster on it."""
    return [
        layout.resource(
            LEFTOVERS,
            needs=(
                layout.key(GROUP),
                layout.key(network.NETWORK),
                layout.key(network.SUBNET, network.NODES),
            ),
        )
    ]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    sweepers = {driver.kind: driver(azure) for driver in strays.DRIVERS}
    return {LEFTOVERS: LeftoversDriver(azure, list(sweepers.values())), **sweepers}


class SomethingLeftError(Exception):
    """Something is still there; a little later it may be gone."""


class LeftoversDriver(AzureDriver):
    """Handles all that controllers leave in a cluster's groups and network. The identity is the network's.

    While the network is there, leftovers are taken to be there; their removal goes on until nothing is left.
    """

    kind = LEFTOVERS
    deadline_s = 1800.0

    def __init__(self, azure: Azure, sweepers: Sequence[strays.StrayDriver]) -> None:
        super().__init__(azure)
        self._sweepers = sweepers
        self._swept: set[str] = set()

    @property
    def networks(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The calls about virtual networks."""
        return self.azure.client("network").virtual_networks

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find the clusters' networks, and what was left by clusters that are gone."""
        rows = self._networks(cluster)
        titles = {row.tags[TAG_CLUSTER] for row in rows}
        titles |= {cluster} if cluster is not None else self._outlived()
        gone = sorted(title for title in titles if not self._is_there(title))
        found = [self._observe(row) for row in rows]
        return found + [stray for title in gone for stray in self._left(strays.Place(title=title))]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look for the network."""
        return best(self._observe(row) for row in self._networks(resource.tags[TAG_CLUSTER]))

    def look(self, identity: str) -> tuple[Condition, str]:
        """They are there as long as the network is, unless they were swept."""
        if identity in self._swept:
            return Condition.GONE, ""
        self.azure.read(self.networks.get, ids.group_of(identity), *ids.names(identity))
        return Condition.READY, ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Nothing is made: what may be left is wherever the network is."""
        del token
        return needed(resource, identities, network.NETWORK)

    def remove(self, observed: Observed) -> None:
        """Sweep; made again until nothing is left, since one thing keeps the next for a while.

        Raises:
            CloudrecError: the cluster is still there, and with it those who would make everything anew.
            SomethingLeftError: something is still there.
        """
        title = observed.cluster
        if self._is_there(title):
            raise CloudrecError(
                f"cluster {group_name(title)} exists: what it made is swept once it is gone",
                remedy=f"cloudrec down azure --cluster {title}",
            )
        where = strays.Place(title=title)
        left = self._sweep(where) or self._leaving(observed.identity)
        if left:
            raise SomethingLeftError(", ".join(left))
        self._swept.add(observed.identity)

    def verdict(self, error: Exception) -> Verdict:
        """What is left may be gone a little later."""
        return Verdict.RETRY if isinstance(error, SomethingLeftError) else super().verdict(error)

    def explain(self, error: Exception) -> CloudrecError:
        """Name what is left."""
        if isinstance(error, SomethingLeftError):
            return CloudrecError(f"left by the cluster, and not to be removed: {error}")
        return super().explain(error)

    def _sweep(self, where: Place) -> list[str]:
        """Ask for the removal of all that is left, and name it."""
        left = []
        for driver in self._sweepers:
            for stray in driver.left(where):
                left.append(f"{stray.kind} {stray.identity}")
                if stray.condition is Condition.DELETING:
                    continue
                try:
                    driver.delete(stray)
                except driver.refusals as error:
                    if driver.verdict(error) is not Verdict.RETRY:
                        raise
        return left

    def _left(self, where: Place) -> list[Observed]:
        return [stray for driver in self._sweepers for stray in driver.left(where)]

    def _leaving(self, identity: str) -> list[str]:
        """Name what has addresses in the nodes' subnet: those of the machines go some time after them."""
        group, (name, *_) = ids.group_of(identity), ids.names(identity)
        subnets = self.azure.rows(self.azure.client("network").subnets.list, group, name)
        users = [user for subnet in subnets for user in subnet.ip_configurations or ()]
        nodes = f"/resourcegroups/{group}{strays.SUFFIX}/"
        return [f"address {user.id}" for user in users if nodes in user.id.lower()]

    def _networks(self, cluster: str | None) -> list[Any]:
        return [
            row
            for group in group_names(self.azure, cluster)
            for row in self.azure.rows(self.networks.list, group)
            if is_ours(row.tags or {}, cluster)
        ]

    def _outlived(self) -> set[str]:
        """The clusters of ours whose nodes' resource groups are there."""
        rows = self.azure.rows(self.azure.client("resources").resource_groups.list)
        prefix = group_name("")
        return {
            row.name.lower().removeprefix(prefix).removesuffix(strays.SUFFIX)
            for row in rows
            if strays.is_of_aks(row) and row.name.lower().startswith(prefix)
        }

    def _is_there(self, title: str) -> bool:
        """Tell whether AKS has the cluster, however far it has come."""
        name = group_name(title)
        return self.azure.get(self.azure.client(aks.SERVICE).managed_clusters.get, name, name) is not None

    def _observe(self, row: Any) -> Observed:  # noqa: ANN401 - the SDK's model
        title = row.tags[TAG_CLUSTER]
        return Observed(
            kind=LEFTOVERS,
            name=title,
            identity=ids.resource(
                self.azure.subscription,
                ids.group_of(row.id),
                network.NetworkDriver.of_type,
                *ids.names(row.id),
            ),
            condition=Condition.READY,
            tags={**row.tags, TAG_KEY: f"{LEFTOVERS}/{title}"},
            location=place(row.location),
        )
