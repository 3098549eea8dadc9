"""The base classes of drivers of resources in a cluster's resource group."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from cloudrec.engine.graph import TAG_CLUSTER, Condition, Difference, Observed, P_contra, Properties
from cloudrec.providers.azure.api import ids
from cloudrec.providers.azure.api.driver import AzureDriver
from cloudrec.providers.azure.api.rows import Tracked, created, group_name, place, state_of
from cloudrec.providers.base.driver import is_ours, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api import models
    from cloudrec.providers.azure.api.client import Azure

_BROKEN = "failed"  # an observed property: why the last change failed of a resource that can be repaired
Row = TypeVar("Row")  # the SDK's model of one resource
TrackedRow = TypeVar("TrackedRow", bound=Tracked)


@dataclass(frozen=True, kw_only=True)
class LocatedProperties(Properties):
    """The requested properties of a resource that has a region.

    Attributes:
        location: the region, as `rows.place` writes it.
    """

    location: str


@dataclass(frozen=True, kw_only=True)
class Calls(Generic[Row]):
    """The SDK's methods for one kind of resource.

    The names that they take are the resource group's, those of the resource's parents, and the resource's
    own.

    Attributes:
        get: returns a resource; takes the names.
        put: creates or changes a resource; takes the names and the model.
        delete: deletes a resource; takes the names.
        puts_at_once: whether `put` returns when the change is done; if not, it is a `begin_` method.
        deletes_at_once: whether `delete` returns when the resource is gone; if not, it is a `begin_` method.
    """

    get: Callable[..., Row]
    put: Callable[..., object]
    delete: Callable[..., object]
    puts_at_once: bool = False
    deletes_at_once: bool = False


class GroupDriver(AzureDriver[P_contra], Generic[Row, P_contra]):
    """Handles one kind of resource in the cluster's resource group.

    Attributes:
        of_type: the kind's type in Azure, such as Microsoft.Network/virtualNetworks.
        holds_data: whether `down --keep-data` keeps the resource.
        repairs: whether a resource that failed to change is put again instead of replaced. It still exists,
            and other resources may need it.
    """

    of_type: ClassVar[str]
    holds_data: ClassVar[bool] = False
    repairs: ClassVar[bool] = False

    @property
    @abstractmethod
    def calls(self) -> Calls[Row]:
        """The client's methods for this kind."""

    @abstractmethod
    def body(self, resource: Resource[P_contra], identities: Mapping[str, str]) -> object:
        """Return the SDK's model of the requested resource, as `put` takes it."""

    def named(self, resource: Resource[P_contra]) -> str:
        """Return the resource's name in Azure."""
        return resource.tags["Name"]

    def path(self, resource: Resource[P_contra]) -> tuple[str, ...]:
        """Return the names of the resource's parents, and its own."""
        return (self.named(resource),)

    def state(self, row: Row) -> tuple[Condition, str]:
        """Return the condition of a resource, and why it failed as far as its description has the reason."""
        return state_of(row)

    def identity_of(self, row_id: str | None) -> str:
        """Return a resource's identity: the id that Azure gives, as `ids` writes it."""
        return ids.resource(self.azure.subscription, ids.group_of(row_id), self.of_type, *ids.names(row_id))

    def find(self, resource: Resource[P_contra]) -> Observed | None:
        """Return the resource, or None; one that failed and can be repaired counts as ready."""
        seen = super().find(resource)
        # The engine replaces what has failed; only what is ready is compared and changed in place.
        if seen is None or not self.repairs or seen.condition is not Condition.FAILED:
            return seen
        return replace(seen, condition=Condition.READY, properties={**seen.properties, _BROKEN: seen.reason})

    def difference(self, resource: Resource[P_contra], observed: Observed) -> Difference | None:
        """Compare the properties; a resource that failed differs even if its properties are as requested."""
        found = super().difference(resource, observed)
        if found is None and _BROKEN in observed.properties:
            return Difference(reason=f"it failed: {observed.properties[_BROKEN]}", in_place=True)
        return found

    def change(
        self, resource: Resource[P_contra], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Complete the resource; one that failed is put as it is, so that Azure tries the change again."""
        if _BROKEN not in observed.properties:
            super().change(resource, observed, identities=identities)
            return
        self.write_row(observed.identity, self.row(observed.identity))

    def row(self, identity: str) -> Row:
        """Return the SDK's model of a resource; raises Azure's error if there is none."""
        return self.azure.read(self.calls.get, ids.group_of(identity), *ids.names(identity))

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the condition of a resource, and why it failed."""
        return self.state(self.row(identity))

    def make(self, resource: Resource[P_contra], *, token: str, identities: Mapping[str, str]) -> str:
        """Create the resource; a second put changes nothing, so no idempotency token is needed."""
        del token
        return self.put(resource, identities)

    def put(self, resource: Resource[P_contra], identities: Mapping[str, str]) -> str:
        """Create the resource, or change it into the requested one; return its identity."""
        group, names = group_name(resource.tags[TAG_CLUSTER]), self.path(resource)
        identity = ids.resource(self.azure.subscription, group, self.of_type, *names)
        return self._put(identity, group, *names, self.body(resource, identities))

    def write_row(self, identity: str, row: Row) -> str:
        """Put a model by its identity, and return the identity."""
        return self._put(identity, ids.group_of(identity), *ids.names(identity), row)

    def _put(self, identity: str, *arguments: object) -> str:
        calls = self.calls
        if not calls.puts_at_once:
            return self.start(identity, calls.put, *arguments)
        calls.put(*arguments)
        return identity

    def remove(self, observed: Observed) -> None:
        """Delete the resource."""
        self.drop(observed.identity)

    def drop(self, identity: str) -> None:
        """Delete a resource by its identity; raises Azure's error if there is none."""
        calls, names = self.calls, (ids.group_of(identity), *ids.names(identity))
        if calls.deletes_at_once:
            calls.delete(*names)
        else:
            self.start(identity, calls.delete, *names, is_removal=True)


@dataclass(frozen=True, kw_only=True)
class TrackedCalls(Calls[Row]):
    """The SDK's methods for one kind of resource that has tags.

    Attributes:
        list: returns the resources of a resource group; takes its name.
    """

    list: Callable[[str], Iterable[Row]]


class TrackedDriver(GroupDriver[TrackedRow, P_contra], Generic[TrackedRow, P_contra]):
    """Handles one kind of resource that has a region and tags.

    Attributes:
        charge: the price of every resource of the kind, in USD an hour; None if it is unknown or differs.
    """

    charge: ClassVar[float | None] = None

    @property
    @abstractmethod
    def calls(self) -> TrackedCalls[TrackedRow]:
        """The client's methods for this kind."""

    def properties(self, row: TrackedRow) -> Mapping[str, Any]:
        """Return the observed properties, by the names of the requested ones."""
        del row
        return {}

    def hourly_usd(self, row: TrackedRow) -> float | None:
        """Return the price of a resource in USD an hour; None if it is not known."""
        del row
        return self.charge

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return the resources in the clusters' resource groups that have cloudrec's tag."""
        rows = [
            row
            for group in group_names(self.azure, cluster)
            for row in self.azure.rows(self.calls.list, group)
        ]
        return [self.observe(row) for row in rows if is_ours(row.tags or {}, cluster)]

    def fetch(self, resource: Resource[P_contra]) -> Observed | None:
        """Return the resource of this name; None if there is none."""
        # Names are unique within a group, so that one call is enough and no tag has to be searched for.
        group = group_name(resource.tags[TAG_CLUSTER])
        row = self.azure.get(self.calls.get, group, *self.path(resource))
        return None if row is None else self.observe(row)

    def observe(self, row: TrackedRow) -> Observed:
        """Return a resource in the form that the engine uses."""
        tags = dict(row.tags or {})
        condition, reason = self.state(row)
        return Observed(
            kind=self.kind,
            name=name_of(tags, row.name or ""),
            identity=self.identity_of(row.id),
            condition=condition,
            properties={"location": place(row.location), **self.properties(row)},
            tags=tags,
            hourly_usd=self.hourly_usd(row),
            holds_data=self.holds_data,
            reason=reason,
            location=place(row.location),
            created=created(row),
        )


def group_names(azure: Azure, cluster: str | None) -> list[str]:
    """Return the name of a cluster's resource group, which may not exist; for None, of all clusters'."""
    if cluster is not None:
        return [group_name(cluster)]
    return [(row.name or "").lower() for row in our_groups(azure)]


def our_groups(azure: Azure) -> list[models.resources.ResourceGroup]:
    """Return the resource groups of all clusters, without those that AKS manages."""
    listed = azure.rows(azure.resources.resource_groups.list, filter=f"tagName eq '{TAG_CLUSTER}'")
    # AKS copies a cluster's tags to the group that it creates for the nodes, and removes that group itself.
    return [row for row in listed if not row.managed_by]
