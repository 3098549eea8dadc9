"""Orphaned resources as one resource of the graph, whose removal deletes them all.

It is removed after the cluster, which would create them again, and before the network, which they block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, ErrorVerdict, Observed
from cloudrec.providers.azure.api import ids
from cloudrec.providers.azure.api.driver import AzureDriver
from cloudrec.providers.azure.api.rows import group_name, place
from cloudrec.providers.azure.api.tracked import group_names
from cloudrec.providers.azure.cleanup import orphans
from cloudrec.providers.azure.groups import GROUP
from cloudrec.providers.azure.network import network
from cloudrec.providers.base.driver import best, is_ours, needed
from cloudrec.providers.base.leftovers import LEFTOVERS, SomethingLeftError, Sweeper, still_lives

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from azure.mgmt.network.operations import VirtualNetworksOperations

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api import models
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.cleanup.orphans import AzureOrphanScope
    from cloudrec.providers.azure.layout import AzureLayout

_NETWORK = frozenset({GROUP, network.NETWORK, network.SUBNET, network.FIREWALL, network.ADDRESS, network.NAT})
KINDS: Mapping[str, AbstractSet[str]] = {
    LEFTOVERS: _NETWORK,
    orphans.NODE_GROUP: _NETWORK,
    orphans.STRAY: _NETWORK,
}


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the resource, which needs the network and which the cluster needs."""
    return [
        layout.resource(
            LEFTOVERS,
            needs=(
                layout.key(GROUP),
                layout.key(network.NETWORK),
                layout.key(network.SUBNET, network.NODES),
            ),
            hourly_usd=FREE,
        )
    ]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    sweepers = {driver.kind: driver(azure) for driver in orphans.DRIVERS}
    return {LEFTOVERS: AzureNetworkOrphansDriver(azure, list(sweepers.values())), **sweepers}


class AzureNetworkOrphansDriver(Sweeper, AzureDriver):
    """Handles the orphaned resources in a cluster's groups and network. The identity is the network's.

    While the network exists, orphaned resources are assumed to exist; removal continues until none is left.
    """

    def __init__(self, azure: Azure, sweepers: Sequence[orphans.AzureOrphanDriver]) -> None:
        super().__init__(azure)
        self._sweepers = sweepers
        self._swept: set[str] = set()

    @property
    def networks(self) -> VirtualNetworksOperations:
        """The SDK's methods for virtual networks."""
        return self.azure.network.virtual_networks

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return one resource for each network, and the orphaned resources of deleted clusters."""
        rows = self._networks(cluster)
        titles = {(row.tags or {})[TAG_CLUSTER] for row in rows}
        # AKS's resource group for the nodes may exist longer than the network.
        titles |= {cluster} if cluster is not None else self._outlived()
        # While a cluster exists, what its controllers created belongs to its users.
        gone = sorted(title for title in titles if not self._is_there(title))
        found = [self._observe(row) for row in rows]
        return found + [
            stray for title in gone for stray in self._left(orphans.AzureOrphanScope(title=title))
        ]

    def fetch(self, resource: Resource) -> Observed | None:
        """Return the resource of the cluster's network; None if there is no network."""
        return best(self._observe(row) for row in self._networks(resource.tags[TAG_CLUSTER]))

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if the network exists, and GONE if this process has deleted all orphaned resources."""
        if identity in self._swept:
            return Condition.GONE, ""
        self.azure.read(self.networks.get, ids.group_of(identity), ids.names(identity)[0])
        return Condition.READY, ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create nothing, and return the network's identity."""
        del token
        return needed(resource, identities, network.NETWORK)

    def remove(self, observed: Observed) -> None:
        """Delete the orphaned resources. The engine repeats this until none is left.

        Azure refuses to delete a resource while another one uses it, which lasts for a while after that one
        is deleted.

        Raises:
            CloudrecError: the cluster exists, and its controllers would create the resources again.
            SomethingLeftError: orphaned resources still exist.
        """
        title = observed.cluster
        if self._is_there(title):
            raise still_lives(group_name(title), "azure", title)
        where = orphans.AzureOrphanScope(title=title)
        left = self._sweep(where) or self._leaving(observed.identity)
        if left:
            raise SomethingLeftError(", ".join(left))
        self._swept.add(observed.identity)

    def _sweep(self, where: AzureOrphanScope) -> list[str]:
        """Begin to delete all orphaned resources, and return their names."""
        left = []
        for driver in self._sweepers:
            for stray in driver.left(where):
                left.append(f"{stray.kind} {stray.identity}")
                if stray.condition is Condition.DELETING:
                    continue
                try:
                    driver.delete(stray)
                except driver.refusals as error:
                    # Another resource still uses this one; a later call deletes it.
                    if driver.verdict(error) is not ErrorVerdict.RETRY:
                        raise
        return left

    def _left(self, where: AzureOrphanScope) -> list[Observed]:
        return [stray for driver in self._sweepers for stray in driver.left(where)]

    def _leaving(self, identity: str) -> list[str]:
        """Return the nodes' addresses in the subnet, which Azure releases some time after the machines."""
        group, (name, *_) = ids.group_of(identity), ids.names(identity)
        subnets = self.azure.rows(self.azure.network.subnets.list, group, name)
        users = [user for subnet in subnets for user in subnet.ip_configurations or ()]
        nodes = f"/resourcegroups/{group}{orphans.SUFFIX}/"
        return [f"address {user.id}" for user in users if nodes in (user.id or "").lower()]

    def _networks(self, cluster: str | None) -> list[models.network.VirtualNetwork]:
        return [
            row
            for group in group_names(self.azure, cluster)
            for row in self.azure.rows(self.networks.list, group)
            if is_ours(row.tags or {}, cluster)
        ]

    def _outlived(self) -> set[str]:
        """Return the names of cloudrec's clusters whose resource group for the nodes exists."""
        rows = self.azure.rows(self.azure.resources.resource_groups.list)
        prefix = group_name("")
        names = [(row.name or "").lower() for row in rows if orphans.is_of_aks(row)]
        return {
            name.removeprefix(prefix).removesuffix(orphans.SUFFIX)
            for name in names
            if name.startswith(prefix)
        }

    def _is_there(self, title: str) -> bool:
        """Return whether AKS has the cluster, in any state."""
        name = group_name(title)
        return self.azure.get(self.azure.containerservice.managed_clusters.get, name, name) is not None

    def _observe(self, row: models.network.VirtualNetwork) -> Observed:
        tags = row.tags or {}
        title = tags[TAG_CLUSTER]
        return Observed(
            kind=LEFTOVERS,
            name=title,
            identity=ids.resource(
                self.azure.subscription,
                ids.group_of(row.id),
                network.AzureNetworkDriver.of_type,
                *ids.names(row.id),
            ),
            condition=Condition.READY,
            tags={**tags, TAG_KEY: f"{LEFTOVERS}/{title}"},
            location=place(row.location),
            hourly_usd=FREE,
        )
