"""What Azure tracks: things in a cluster's resource group, each with a name of ours, a region and tags."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.cloud.driver import is_ours, name_of
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Difference, Observed
from cloudrec.providers.azure import ids
from cloudrec.providers.azure.driver import AzureDriver
from cloudrec.providers.azure.rows import created, group_name, group_names, place, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Resource

_BROKEN = "failed"  # the property of what failed and can be mended


class GroupDriver(AzureDriver):
    """Handles one kind of what is in the cluster's resource group, with tags, under a name of ours.

    What failed to change is there all the same, and others may stand on it: where `mends`, it is not replaced
    but put again, as it is or as it should be.
    """

    service: ClassVar[str]  # as `Azure.client` takes it
    collection: ClassVar[str]  # the client's attribute: virtual_networks
    of_type: ClassVar[str]  # Microsoft.Network/virtualNetworks
    # The collection's methods, where they are called otherwise.
    listing: ClassVar[str] = "list"
    getting: ClassVar[str] = "get"
    putting: ClassVar[str] = "begin_create_or_update"
    deleting: ClassVar[str] = "begin_delete"
    holds_data: ClassVar[bool] = False
    mends: ClassVar[bool] = False

    def named(self, resource: Resource) -> str:
        """Return what Azure calls it."""
        return resource.tags["Name"]

    def path(self, resource: Resource) -> tuple[str, ...]:
        """Return the names of what it is part of, and its own."""
        return (self.named(resource),)

    @abstractmethod
    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return what is asked for, as the SDK wants it."""

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's model
        """Tell what drift is told from."""
        del row
        return {}

    def hourly_usd(self, row: Any) -> float:  # noqa: ANN401 - the SDK's model
        """Tell what it costs an hour."""
        del row
        return 0.0

    def state(self, row: Any) -> tuple[Condition, str]:  # noqa: ANN401 - the SDK's model
        """Tell how far it has come, and why it failed, as far as it tells by itself."""
        return state_of(row)

    @property
    def calls(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The client's methods for this kind."""
        return getattr(self.azure.client(self.service), self.collection)

    @property
    def models(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The service's models."""
        return self.azure.models(self.service)

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List what is in the clusters' groups, and keep what bears our tag."""
        rows = [
            row
            for group in group_names(self.azure, cluster)
            for row in self.azure.rows(getattr(self.calls, self.listing), group)
        ]
        return [self.observe(row) for row in rows if is_ours(row.tags or {}, cluster)]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look it up by its name."""
        group = group_name(resource.tags[TAG_CLUSTER])
        row = self.azure.get(getattr(self.calls, self.getting), group, *self.path(resource))
        return None if row is None else self.observe(row)

    def find(self, resource: Resource) -> Observed | None:
        """Look it up; what failed and can be mended is there."""
        seen = super().find(resource)
        if seen is None or not self.mends or seen.condition is not Condition.FAILED:
            return seen
        return replace(seen, condition=Condition.READY, properties={**seen.properties, _BROKEN: seen.reason})

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Compare the properties; what failed is to be mended whatever it is like."""
        found = super().difference(resource, observed)
        if found is None and _BROKEN in observed.properties:
            return Difference(reason=f"it failed: {observed.properties[_BROKEN]}", in_place=True)
        return found

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Complete it; what failed is put as it is, which is how Azure mends it."""
        if _BROKEN not in observed.properties:
            super().change(resource, observed, identities=identities)
            return
        group, names = ids.group_of(observed.identity), ids.names(observed.identity)
        self.call(observed.identity, self.putting, group, *names, self.row(observed.identity))

    def row(self, identity: str) -> Any:  # noqa: ANN401 - the SDK's model
        """Read it by its identity; Azure's own error where it is not there."""
        return self.azure.read(
            getattr(self.calls, self.getting), ids.group_of(identity), *ids.names(identity)
        )

    def look(self, identity: str) -> tuple[Condition, str]:
        """Read it by its identity."""
        return self.state(self.row(identity))

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Put it; a second time, Azure changes what there is, so that it needs no token."""
        del token
        return self.put(resource, identities)

    def put(self, resource: Resource, identities: Mapping[str, str]) -> str:
        """Bring it to what is asked for, whether it exists or not."""
        group, names = group_name(resource.tags[TAG_CLUSTER]), self.path(resource)
        identity = ids.resource(self.azure.subscription, group, self.of_type, *names)
        return self.call(identity, self.putting, group, *names, self.body(resource, identities))

    def call(self, identity: str, method: str, *arguments: object, is_removal: bool = False) -> str:
        """Make a changing call, and follow it where Azure answers before it is done; return the identity."""
        made = getattr(self.calls, method)
        if method.startswith("begin_"):
            return self.start(identity, made, *arguments, is_removal=is_removal)
        made(*arguments)
        return identity

    def remove(self, observed: Observed) -> None:
        """Delete it."""
        self.drop(observed.identity)

    def drop(self, identity: str) -> None:
        """Delete it by its identity; Azure's own error where it is not there."""
        self.call(identity, self.deleting, ids.group_of(identity), *ids.names(identity), is_removal=True)

    def observe(self, row: Any) -> Observed:  # noqa: ANN401 - the SDK's model
        """Tell of what Azure describes what the engine wants to know."""
        tags = dict(row.tags or {})
        condition, reason = self.state(row)
        return Observed(
            kind=self.kind,
            name=name_of(tags, row.name),
            identity=ids.resource(
                self.azure.subscription, ids.group_of(row.id), self.of_type, *ids.names(row.id)
            ),
            condition=condition,
            properties={"location": place(row.location), **self.properties(row)},
            tags=tags,
            hourly_usd=self.hourly_usd(row),
            holds_data=self.holds_data,
            reason=reason,
            location=place(row.location),
            created=created(row),
        )
