"""Orphaned resources: those that a deleted cluster's controllers created and did not delete.

They are not in cloudrec's graph, but they cost money and block the deletion of the network. They are searched
for only after the cluster is deleted, in its resource group and in the one that AKS created for the nodes.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.azure.api import aks, ids
from cloudrec.providers.azure.api.anything import Anything, type_of
from cloudrec.providers.azure.api.driver import AzureDriver
from cloudrec.providers.azure.api.rows import group_name, place, state_of
from cloudrec.providers.azure.cleanup import tariffs
from cloudrec.providers.base.leftovers import Leftover

if TYPE_CHECKING:
    from collections.abc import Sequence

    from azure.mgmt.resource.resources.operations import ResourceGroupsOperations

    from cloudrec.providers.azure.api import models
    from cloudrec.providers.azure.api.client import Azure

NODE_GROUP, STRAY = "node-resource-group", "stray"
SUFFIX = "-nodes"  # of AKS's resource group for the nodes, after the name of the cluster's group
# The types that controllers create, in the order of deletion: Azure refuses to delete one that an earlier one
# uses.
_TYPES: tuple[str, ...] = (
    "microsoft.network/loadbalancers",
    "microsoft.network/privateendpoints",
    "microsoft.network/networkinterfaces",
    "microsoft.network/publicipaddresses",
    "microsoft.network/privatednszones/virtualnetworklinks",
    "microsoft.network/privatednszones",
    "microsoft.compute/disks",
    "microsoft.compute/snapshots",
    "microsoft.operationsmanagement/solutions",
    "microsoft.operationalinsights/workspaces",
)
_ORDER = {of_type: index for index, of_type in enumerate(_TYPES)}


@dataclass(frozen=True, kw_only=True)
class AzureOrphanScope:
    """The resource groups that may have a cluster's orphaned resources.

    Attributes:
        title: the cluster's name in cloudrec.
    """

    title: str

    @property
    def group(self) -> str:
        """The name of the cluster's resource group."""
        return group_name(self.title)

    @property
    def node_group(self) -> str:
        """The name of the resource group that AKS creates for the nodes, and deletes with the cluster."""
        return f"{self.group}{SUFFIX}"


class AzureOrphanDriver(Leftover, AzureDriver):
    """Handles one kind of orphaned resource; cloudrec never creates one."""

    deadline_s = 1800.0

    @abstractmethod
    def left(self, where: AzureOrphanScope) -> Sequence[Observed]:
        """Return the orphaned resources of a deleted cluster."""

    def observe(
        self,
        where: AzureOrphanScope,
        row: models.resources.ResourceGroup | models.resources.GenericResource,
        identity: str,
        state: Condition,
        hourly_usd: float | None,
    ) -> Observed:
        """Return an orphaned resource in the form that the engine uses."""
        return Observed(
            kind=self.kind,
            name=f"{where.title}/{row.name}",
            identity=identity,
            condition=state,
            tags={TAG_CLUSTER: where.title},
            hourly_usd=hourly_usd,
            location=place(row.location),
        )


class NodeGroupDriver(AzureOrphanDriver):
    """Handles AKS's resource groups for nodes that exist without their cluster."""

    kind = NODE_GROUP

    @property
    def groups(self) -> ResourceGroupsOperations:
        """The SDK's methods for resource groups."""
        return self.azure.resources.resource_groups

    def left(self, where: AzureOrphanScope) -> Sequence[Observed]:
        """Return the group, if it exists."""
        row = self.azure.get(self.groups.get, where.node_group)
        # A group of this name that AKS does not manage was created by a user.
        if row is None or not is_of_aks(row):
            return []
        identity = ids.group(self.azure.subscription, where.node_group)
        return [self.observe(where, row, identity, state_of(row.properties)[0], None)]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the condition of a group, and why it failed."""
        return state_of(self.azure.read(self.groups.get, identity.rpartition("/")[2]).properties)

    def remove(self, observed: Observed) -> None:
        """Delete the group with all its resources."""
        name = observed.identity.rpartition("/")[2]
        self.start(observed.identity, self.groups.begin_delete, name, is_removal=True)


class StrayResourceDriver(AzureOrphanDriver):
    """Handles resources of any type that controllers created in the cluster's resource group."""

    kind = STRAY

    def __init__(self, azure: Azure) -> None:
        super().__init__(azure)
        self._anything = Anything(azure)

    def left(self, where: AzureOrphanScope) -> Sequence[Observed]:
        """Return the resources of these types that do not have cloudrec's tag.

        Azure's list may still have deleted resources, so that each one is read.
        """
        rows = [
            row
            for row in self.azure.rows(self._anything.calls.list_by_resource_group, where.group)
            if _type(row) in _ORDER and TAG_CLUSTER not in (row.tags or {})
        ]
        rows.sort(key=lambda row: _ORDER[_type(row)])
        found = [row for each in rows if (row := self._anything.read(ids.known(each.id))) is not None]
        return [
            self.observe(where, row, ids.known(row.id), _state(row), self._hourly_usd(row)) for row in found
        ]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return whether the resource exists."""
        return (Condition.GONE if self._anything.read(identity) is None else Condition.READY), ""

    def remove(self, observed: Observed) -> None:
        """Delete the resource; Azure refuses while another one uses it."""
        version = self._anything.version(observed.identity)
        delete = partial(self._anything.calls.begin_delete_by_id, api_version=version)
        self.start(observed.identity, delete, observed.identity, is_removal=True)

    def _hourly_usd(self, row: models.resources.GenericResource) -> float | None:
        return tariffs.hourly_usd(row, self.azure.prices_at(row.location))


def _type(row: models.resources.GenericResource) -> str:
    return (row.type or "").lower()


def _state(row: models.resources.GenericResource) -> Condition:
    is_going = (row.properties or {}).get("provisioningState") == "Deleting"
    return Condition.DELETING if is_going else Condition.READY


# In the order of deletion.
DRIVERS: tuple[type[AzureOrphanDriver], ...] = (NodeGroupDriver, StrayResourceDriver)


def is_of_aks(row: models.resources.ResourceGroup) -> bool:
    """Return whether AKS created a resource group for a cluster's nodes."""
    return type_of(row.managed_by or "") == aks.CLUSTER_TYPE.lower()
