"""The audit of a subscription: resources with cloudrec's tags or names, or in its networks, without a driver.

The sources are Azure's list of resources by tag, without a filter of types; the lists of cloudrec's resource
groups and of those that AKS makes for the nodes; and the users of the clusters' subnets, with the machines of
the interfaces there. Azure's list of resources may still have deleted ones
(https://github.com/Azure/azure-rest-api-specs/issues/21221), so that each row is read once more. A row whose
type the credentials may not read counts as existing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.anything import Anything, type_of
from cloudrec.providers.azure.api.rows import created, group_name, place
from cloudrec.providers.azure.cleanup import orphans, tariffs
from cloudrec.providers.base.audit import Audit, unmanaged
from cloudrec.providers.base.driver import is_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cloudrec.engine.graph import Observed
    from cloudrec.providers.azure.api.client import Azure

    _Found: TypeAlias = "tuple[_Row, models.resources.GenericResource | None]"

T = TypeVar("T")
_READS = 8  # concurrent reads
_MACHINE = "microsoft.compute/virtualmachines"
_SCALE_SET = "microsoft.compute/virtualmachinescalesets"
_RESERVATIONS = "microsoft.compute/capacityreservationgroups"
_INTERFACE = "microsoft.network/networkinterfaces"
# The types that AKS and its controllers create in the resource group for the nodes.
_OF_NODES = frozenset(
    {
        _SCALE_SET,
        _INTERFACE,
        "microsoft.compute/disks",
        "microsoft.compute/snapshots",
        "microsoft.managedidentity/userassignedidentities",
        "microsoft.network/loadbalancers",
        "microsoft.network/networksecuritygroups",
        "microsoft.network/privatednszones",
        "microsoft.network/privatednszones/virtualnetworklinks",
        "microsoft.network/privateendpoints",
        "microsoft.network/privatelinkservices",
        "microsoft.network/publicipaddresses",
        "microsoft.network/routetables",
        "microsoft.storage/storageaccounts",
    }
)
_OF_POOL = "aks-managed-poolName"  # a tag of each scale set that AKS creates


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A resource as a list describes it.

    Attributes:
        identity: its id.
        cluster: the cluster whose tag, group or network it has; empty if only its tags name it.
        location: its region; that of the network for a network's user.
        listed: the row of Azure's list; None if no list has it, as for the user of a network.
        has_tags: whether the list states all tags.
    """

    identity: str
    cluster: str
    location: str
    listed: models.resources.GenericResource | None = None
    has_tags: bool = False

    @property
    def key(self) -> str:
        """The id as Azure compares ids."""
        return self.identity.lower()


def audit(azure: Azure, cluster: str | None, managed: Iterable[Observed]) -> Audit:
    """Return the resources that no driver manages, in all regions: Azure's lists cover the subscription.

    Args:
        azure: the subscription.
        cluster: the cluster's name; None for all clusters.
        managed: the resources that drivers manage.
    """
    return _Search(azure, cluster, managed).audit()


def regions(azure: Azure) -> Sequence[str]:
    """Return the physical regions of the subscription."""
    return azure.regions


class _Search:
    """One audit."""

    def __init__(self, azure: Azure, cluster: str | None, managed: Iterable[Observed]) -> None:
        self.azure = azure
        self._cluster = cluster
        self._managed = {seen.identity.lower() for seen in managed}
        self._anything = Anything(azure)
        self._unsearched: dict[str, None] = {}  # in the order in which they were found
        self._own: dict[str, str] = {}  # name of a resource group of cloudrec's -> its cluster
        self._nodes: dict[str, str] = {}  # name of a resource group for nodes -> its cluster
        self._living: set[str] = set()  # those whose AKS cluster exists
        self._groups: set[str] = set()  # the names of all resource groups

    def audit(self) -> Audit:
        """Return what no driver manages."""
        self._find_groups()
        rows = {row.key: row for row in [*self._used_networks(), *self._tagged(), *self._grouped()]}
        found: list[_Found] = []
        known = set(rows)
        while rows:
            fresh = self._confirmed(rows.values())
            found += fresh
            # What these lead to: the reservations of a group, the machine of an interface, its disks.
            rows = {row.key: row for seen in fresh for row in self._behind(*seen) if row.key not in known}
            known |= set(rows)
        return Audit(
            found=tuple(self._observed(row, described) for row, described in found),
            unsearched=tuple(self._unsearched),
        )

    def _find_groups(self) -> None:
        listed = self._asked(
            "resource groups with cloudrec's names",
            lambda: self.azure.rows(self.azure.resources.resource_groups.list),
        )
        self._groups = {(row.name or "").lower() for row in listed}
        for row in listed:
            name = (row.name or "").lower()
            if not row.managed_by:
                self._own[name] = self._cluster_of(name, row.tags or {})
            elif orphans.is_of_aks(row):
                # The cluster and its group may be removed already.
                self._nodes[name] = self._cluster_of(ids.group_of(row.managed_by), row.tags or {})
                if self._nodes[name] and self._is_there(ids.known(row.managed_by)):
                    self._living.add(name)
        self._own = {name: title for name, title in self._own.items() if title}
        self._nodes = {name: title for name, title in self._nodes.items() if title}

    def _cluster_of(self, group: str, tags: Mapping[str, str]) -> str:
        """Return the cluster of a resource group by its tag, or else its name; empty for another group."""
        prefix = group_name("")
        title = tags.get(TAG_CLUSTER) or (group.removeprefix(prefix) if group.startswith(prefix) else "")
        return title if self._cluster in {None, title} else ""

    def _is_there(self, identity: str) -> bool:
        """Return whether an AKS cluster exists; if it cannot be read, it does."""
        if identity.lower() in self._managed:
            return True
        calls = self.azure.containerservice.managed_clusters
        group, (name, *_) = ids.group_of(identity), ids.names(identity)
        found = self._asked(
            f"the cluster of the resource group {group}",
            lambda: [self.azure.get(calls.get, group, name)],
        )
        return found != [None]

    def _tagged(self) -> Iterator[_Row]:
        """Yield the resources of any type with cloudrec's tag, in any group."""
        # A filter by tag cannot have other conditions, and rows that match a value come without tags.
        query = f"tagName eq '{TAG_CLUSTER}'"
        if self._cluster is not None:
            query += f" and tagValue eq '{self._cluster}'"
        listed = self._asked(
            "resources of any type with cloudrec's tag",
            lambda: self.azure.rows(self._anything.calls.list, filter=query),
        )
        return (self._row(row, self._cluster or "") for row in listed)

    def _grouped(self) -> Iterator[_Row]:
        """Yield the resources in cloudrec's groups and in those for its nodes."""
        for group, title in {**self._own, **self._nodes}.items():
            listed = self._asked(
                f"resources in the resource group {group}",
                lambda: self.azure.rows(
                    self._anything.calls.list_by_resource_group,
                    group,  # noqa: B023 - used up in this round
                    expand="createdTime",
                ),
            )
            yield from (self._row(row, title, has_tags=True) for row in listed)

    def _used_networks(self) -> Iterator[_Row]:
        """Yield what has addresses or private endpoints in the subnets of cloudrec's networks."""
        listed = self._asked(
            "what uses the clusters' networks",
            lambda: self.azure.rows(self.azure.network.virtual_networks.list_all),
        )
        for network in listed:
            title = self._own.get(ids.group_of(network.id), "")
            if is_ours(network.tags or {}, self._cluster):
                title = (network.tags or {})[TAG_CLUSTER]
            if not title:
                continue
            used = [user.id for subnet in network.subnets or () for user in subnet.ip_configurations or ()]
            used += [user.id for subnet in network.subnets or () for user in subnet.private_endpoints or ()]
            for identity in dict.fromkeys(_resource(each) for each in used if each):
                if self._is_mine(identity):
                    yield _Row(identity=identity, cluster=title, location=place(network.location))

    def _is_mine(self, identity: str) -> bool:
        """Return whether a resource is in this subscription: Azure's services have others in a subnet."""
        return identity.lower().startswith(f"/subscriptions/{self.azure.subscription}/resourcegroups/")

    def _behind(self, row: _Row, described: models.resources.GenericResource | None) -> Iterator[_Row]:
        """Yield what a resource leads to: reservations, a machine, its disks, an endpoint."""
        title = self._title(row, described)
        for identity in [*_linked(row.identity, described), *self._reservations(row.identity)]:
            yield _Row(identity=identity, cluster=title, location=row.location)

    def _reservations(self, identity: str) -> list[str]:
        """Return the ids of the reservations in a capacity reservation group."""
        if type_of(identity) != _RESERVATIONS:
            return []
        calls = self.azure.compute.capacity_reservations
        group, (name, *_) = ids.group_of(identity), ids.names(identity)
        listed = self._asked(
            f"the reservations in {name}",
            lambda: self.azure.rows(calls.list_by_capacity_reservation_group, group, name),
        )
        return [ids.known(each.id) for each in listed]

    @staticmethod
    def _row(row: models.resources.GenericResource, title: str, *, has_tags: bool = False) -> _Row:
        return _Row(
            identity=ids.known(row.id),
            cluster=title,
            location=place(row.location),
            listed=row,
            has_tags=has_tags,
        )

    def _confirmed(self, rows: Iterable[_Row]) -> list[_Found]:
        """Return those that exist and that no driver manages, as Azure describes them now."""
        left = [row for row in rows if not self._is_managed(row)]
        with ThreadPoolExecutor(_READS, thread_name_prefix="audit") as pool:
            described = list(pool.map(self._described, left))
        return [(row, answer[0]) for row, answer in zip(left, described, strict=True) if answer is not None]

    def _described(self, row: _Row) -> tuple[models.resources.GenericResource | None] | None:
        """Return a resource as it is now, else as it was listed; None if it does not exist any more."""
        of_type = type_of(row.identity)
        has_group = not self._groups or ids.group_of(row.identity) in self._groups
        try:
            if self._anything.version(row.identity):
                found = self._anything.read(row.identity)
                return None if found is None else (found,)
        except ClientAuthenticationError:
            raise
        except HttpResponseError as error:
            # A resource that cannot be read counts as existing, unless its group does not.
            if has_group:
                self._note(f"whether resources of type {of_type} still exist", error)
        return (row.listed,) if has_group else None

    def _is_managed(self, row: _Row) -> bool:
        """Return whether a driver manages a resource or its parent, or AKS for a cluster that exists."""
        parent = row.key.rpartition("/")[0].rpartition("/")[0]
        if row.key in self._managed or (parent in self._managed and "/providers/" in parent):
            return True
        if ids.group_of(row.identity) not in self._living:
            return False
        of_type = type_of(row.identity)
        tags = (row.listed.tags if row.listed is not None else None) or {}
        is_foreign = of_type == _SCALE_SET and row.has_tags and _OF_POOL not in tags
        return of_type in _OF_NODES and not is_foreign

    def _observed(self, row: _Row, described: models.resources.GenericResource | None) -> Observed:
        if described is None:
            return unmanaged(
                f"{type_of(row.identity)} {_name(row.identity)}",
                row.identity,
                cluster=row.cluster,
                location=row.location,
                hourly_usd=None,
            )
        return unmanaged(
            f"{described.type or type_of(row.identity)} {_name(row.identity)}",
            row.identity,
            cluster=self._title(row, described),
            location=place(described.location) or row.location,
            hourly_usd=tariffs.hourly_usd(described, self.azure.prices_at(described.location)),
            tags=described.tags,
            created=_created(row, described),
        )

    def _title(self, row: _Row, described: models.resources.GenericResource | None) -> str:
        tags = (described.tags if described is not None else None) or {}
        return tags.get(TAG_CLUSTER) or row.cluster

    def _asked(self, what: str, call: Callable[[], list[T]]) -> list[T]:
        """Return what a list has; nothing, with a note, if the credentials may not make the call."""
        try:
            return call()
        except HttpResponseError as error:
            if not errors.is_denied(error):
                raise
            self._note(what, error)
            return []

    def _note(self, what: str, error: HttpResponseError) -> None:
        action = errors.action_of(errors.message(error))
        why = f"Azure does not allow {action}" if action else f"Azure refuses ({errors.code(error)})"
        self._unsearched[f"{what}: {why}"] = None


def _resource(identity: str) -> str:
    """Return the id of the resource that has a part, such as an address configuration."""
    return "/".join(identity.split("/")[:9])


def _linked(identity: str, described: models.resources.GenericResource | None) -> list[str]:
    """Return the ids of the resources that an interface or a machine names."""
    properties: Mapping[str, Any] = (described.properties if described is not None else None) or {}
    named: list[Mapping[str, Any] | None] = []
    if type_of(identity) == _INTERFACE:
        named = [properties.get("virtualMachine"), properties.get("privateEndpoint")]
    if type_of(identity) == _MACHINE:
        storage: Mapping[str, Any] = properties.get("storageProfile") or {}
        disks: list[Mapping[str, Any]] = [storage.get("osDisk") or {}, *(storage.get("dataDisks") or ())]
        named = [disk.get("managedDisk") for disk in disks]
    return [each["id"] for each in named if each and each.get("id")]


def _name(identity: str) -> str:
    """Return the names of a resource and its parents."""
    return "/".join(identity.rpartition("/providers/")[2].split("/")[2::2])


def _created(row: _Row, described: models.resources.GenericResource) -> float | None:
    moment = getattr(row.listed, "created_time", None)
    return moment.timestamp() if moment else created(described)
