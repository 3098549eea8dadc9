"""The orphaned resources of a cluster's controllers as one resource of the graph.

Its removal deletes them all, after the cluster and before the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, ErrorVerdict, Observed
from cloudrec.providers.base.driver import best, needed
from cloudrec.providers.base.leftovers import LEFTOVERS, SomethingLeftError, Sweeper, still_lives
from cloudrec.providers.gcp.api import gke, labels
from cloudrec.providers.gcp.api.driver import GcpDriver
from cloudrec.providers.gcp.cleanup import orphans
from cloudrec.providers.gcp.cleanup.ownership import CLUSTER_LABEL
from cloudrec.providers.gcp.network import firewall, nat, network

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout

_NETWORK = frozenset({network.NETWORK, network.SUBNET, nat.ROUTER, firewall.FIREWALL})
KINDS: Mapping[str, AbstractSet[str]] = {LEFTOVERS: _NETWORK, orphans.STRAY: _NETWORK}


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the orphaned resources: they need all networks, and the cluster needs them."""
    networks = layout.keys(network.NETWORK, network.network_suffixes(layout))
    subnets = layout.keys(network.SUBNET, network.subnet_suffixes(layout))
    return [
        layout.resource(
            LEFTOVERS,
            needs=(*networks, *subnets),
            hourly_usd=FREE,
        )
    ]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    sweeper = orphans.GcpOrphanDriver(gcp)
    return {LEFTOVERS: GcpNetworkOrphansDriver(gcp, sweeper), orphans.STRAY: sweeper}


class GcpNetworkOrphansDriver(Sweeper, GcpDriver):
    """Handles the orphaned resources in a cluster's networks. The identity is that of the nodes' network.

    While the network exists, orphaned resources are assumed to exist. The removal ends when none is left.
    """

    def __init__(self, gcp: Gcp, sweeper: orphans.GcpOrphanDriver) -> None:
        super().__init__(gcp)
        self._sweeper = sweeper
        self._networks = network.GcpNetworkDriver(gcp)
        self._swept: set[str] = set()

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return one resource for each cluster's network, and the orphaned resources of deleted clusters."""
        networks = self._networks.search(cluster)
        titles = {seen.cluster for seen in networks}
        # A cluster whose network is deleted may still have disks.
        titles |= {cluster} if cluster is not None else self._outlived()
        gone = sorted(titles - self._alive())
        places = [
            orphans.GcpOrphanScope(
                title=title, networks=frozenset(seen.identity for seen in networks if seen.cluster == title)
            )
            for title in gone
        ]
        left = self._sweeper.left(places)
        return [*_of_networks(networks), *(stray for title in gone for stray in left[title])]

    def fetch(self, resource: Resource) -> Observed | None:
        """Return the resource if the nodes' network exists, else None."""
        return best(iter(_of_networks(self._networks.search(resource.tags[TAG_CLUSTER]))))

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return GONE once this process has removed them, else the condition of the network."""
        if identity in self._swept:
            return Condition.GONE, ""
        return self._networks.look(identity)

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Return the network's identity; nothing is created."""
        del token
        identity = needed(resource, identities, network.NETWORK)
        self._swept.discard(identity)  # a network that is created again has the same path
        return identity

    def remove(self, observed: Observed) -> None:
        """Start the deletion of those that nothing else uses; the engine repeats it until none is left.

        Raises:
            CloudrecError: the cluster still exists, and its controllers would create them again.
            SomethingLeftError: some are left; the message names them.
        """
        title = observed.cluster
        if title in self._alive():
            raise still_lives(gke.cluster_name(title), "gcp", title)
        networks = frozenset(seen.identity for seen in self._networks.search(title))
        left = self._sweeper.left([orphans.GcpOrphanScope(title=title, networks=networks)])[title]
        for stray in orphans.first(left):
            self._sweep(stray)
        if left:
            raise SomethingLeftError(", ".join(stray.identity for stray in left))
        self._swept.add(observed.identity)

    def _sweep(self, stray: Observed) -> None:
        """Delete one, or follow its deletion; a refusal because another resource uses it is ignored."""
        try:
            if self._sweeper.operation(stray.identity):
                self._sweeper.condition(stray.kind, stray.identity)
            else:
                self._sweeper.delete(stray)
        except self.refusals as error:
            if self.verdict(error) is not ErrorVerdict.RETRY:
                raise

    def _outlived(self) -> set[str]:
        """Return the clusters in the labels of disks, which remain when the network is deleted."""
        found = set()
        for row in self._sweeper.disks():
            title = labels.decode(row.labels).get(TAG_CLUSTER, "")
            named = row.labels.get(CLUSTER_LABEL, "")
            if title or named.startswith(gke.PREFIX):
                found.add(title or named.removeprefix(gke.PREFIX))
        return found

    def _alive(self) -> set[str]:
        """Return the names of cloudrec's clusters that GKE lists in this region, in any state."""
        return {
            labels.decode(row.resource_labels).get(TAG_CLUSTER) or row.name.removeprefix(gke.PREFIX)
            for row in gke.listed(self.gcp)
        }


def _of_networks(networks: Sequence[Observed]) -> list[Observed]:
    """Return the resource of the orphaned resources for each network that nodes are in."""
    return [
        Observed(
            kind=LEFTOVERS,
            name=seen.cluster,
            identity=seen.identity,
            condition=Condition.READY,
            tags={**seen.tags, TAG_KEY: f"{LEFTOVERS}/{seen.cluster}"},
            location=seen.location,
            hourly_usd=FREE,
        )
        for seen in networks
        if seen.key == f"{network.NETWORK}/{seen.cluster}"
    ]
