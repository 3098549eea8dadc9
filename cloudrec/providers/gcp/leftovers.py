"""Leftovers as a resource: it goes after the cluster and before the network, and its removal is the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.cloud.driver import best, needed
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Observed, Verdict
from cloudrec.errors import CloudrecError
from cloudrec.providers.gcp import firewall, gke, labels, nat, network, strays
from cloudrec.providers.gcp.driver import GcpDriver
from cloudrec.providers.gcp.kinship import CLUSTER_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.layout import Layout

LEFTOVERS = "leftovers"
_NETWORK = frozenset({network.NETWORK, network.SUBNET, nat.ROUTER, firewall.FIREWALL})
KINDS: Mapping[str, AbstractSet[str]] = {LEFTOVERS: _NETWORK, strays.STRAY: _NETWORK}


def resources(layout: Layout) -> list[Resource]:
    """Describe the sweep: it stands on all networks, and the cluster on it."""
    suffixes = ("", *network.gpu_suffixes(layout))
    return [
        layout.resource(
            LEFTOVERS,
            needs=(*layout.keys(network.NETWORK, suffixes), *layout.keys(network.SUBNET, suffixes)),
        )
    ]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    sweeper = strays.StrayDriver(gcp)
    return {LEFTOVERS: LeftoversDriver(gcp, sweeper), strays.STRAY: sweeper}


class SomethingLeftError(Exception):
    """Something is still there; a little later it may be gone."""


class LeftoversDriver(GcpDriver):
    """Handles all that controllers leave in a cluster's networks. The identity is that of the nodes' network.

    While the network is there, leftovers are taken to be there; their removal goes on until nothing is left.
    """

    kind = LEFTOVERS
    deadline_s = 1800.0

    def __init__(self, gcp: Gcp, sweeper: strays.StrayDriver) -> None:
        super().__init__(gcp)
        self._sweeper = sweeper
        self._networks = network.NetworkDriver(gcp)
        self._swept: set[str] = set()

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find the clusters' networks, and what was left by clusters that are gone."""
        networks = self._networks.search(cluster)
        titles = {seen.cluster for seen in networks}
        titles |= {cluster} if cluster is not None else self._outlived()
        gone = sorted(titles - self._alive())
        places = [
            strays.Place(
                title=title, networks=frozenset(seen.identity for seen in networks if seen.cluster == title)
            )
            for title in gone
        ]
        left = self._sweeper.left(places)
        return [*_of_networks(networks), *(stray for title in gone for stray in left[title])]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look for the network."""
        return best(iter(_of_networks(self._networks.search(resource.tags[TAG_CLUSTER]))))

    def look(self, identity: str) -> tuple[Condition, str]:
        """They are there as long as the network is, unless they were swept."""
        if identity in self._swept:
            return Condition.GONE, ""
        return self._networks.look(identity)

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Nothing is made: what may be left is wherever the network is."""
        del token
        identity = needed(resource, identities, network.NETWORK)
        self._swept.discard(identity)  # a network that is made again has the path of the one before
        return identity

    def remove(self, observed: Observed) -> None:
        """Sweep; made again until nothing is left, since one thing keeps the next for a while.

        Raises:
            CloudrecError: the cluster is still there, and with it those who would make everything anew.
            SomethingLeftError: something is still there.
        """
        title = observed.cluster
        if title in self._alive():
            raise CloudrecError(
                f"cluster {gke.cluster_name(title)} exists: what it made is swept once it is gone",
                remedy=f"cloudrec down gcp --cluster {title}",
            )
        networks = frozenset(seen.identity for seen in self._networks.search(title))
        left = self._sweeper.left([strays.Place(title=title, networks=networks)])[title]
        for stray in strays.first(left):
            self._sweep(stray)
        if left:
            raise SomethingLeftError(", ".join(stray.identity for stray in left))
        self._swept.add(observed.identity)

    def verdict(self, error: Exception) -> Verdict:
        """What is left may be gone a little later."""
        return Verdict.RETRY if isinstance(error, SomethingLeftError) else super().verdict(error)

    def explain(self, error: Exception) -> CloudrecError:
        """Name what is left."""
        if isinstance(error, SomethingLeftError):
            return CloudrecError(f"left by the cluster, and not to be removed: {error}")
        return super().explain(error)

    def _sweep(self, stray: Observed) -> None:
        """Ask for the removal of one, or follow it where it is under way; another may keep it for a while."""
        try:
            if self._sweeper.operation(stray.identity):
                self._sweeper.condition(stray.kind, stray.identity)
            else:
                self._sweeper.delete(stray)
        except self.refusals as error:
            if self.verdict(error) is not Verdict.RETRY:
                raise

    def _outlived(self) -> set[str]:
        """The clusters of ours that disks name: these outlive the network."""
        found = set()
        for row in self._sweeper.disks():
            title = labels.decode(row.labels).get(TAG_CLUSTER, "")
            named = row.labels.get(CLUSTER_LABEL, "")
            if title or named.startswith(gke.PREFIX):
                found.add(title or named.removeprefix(gke.PREFIX))
        return found

    def _alive(self) -> set[str]:
        """The clusters of ours that GKE still has in this region, however far they have come."""
        return {
            labels.decode(row.resource_labels).get(TAG_CLUSTER) or row.name.removeprefix(gke.PREFIX)
            for row in gke.listed(self.gcp)
        }


def _of_networks(networks: Sequence[Observed]) -> list[Observed]:
    """Tell of each network that nodes are in what the engine wants to know of leftovers."""
    return [
        Observed(
            kind=LEFTOVERS,
            name=seen.cluster,
            identity=seen.identity,
            condition=Condition.READY,
            tags={**seen.tags, TAG_KEY: f"{LEFTOVERS}/{seen.cluster}"},
            location=seen.location,
        )
        for seen in networks
        if seen.key == f"{network.NETWORK}/{seen.cluster}"
    ]
