"""What all drivers of Azure share: its errors, its operations, and how what is in a group is handled."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from azure.core.exceptions import AzureError

from cloudrec.cloud.driver import CloudDriver, is_ours, name_of
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, TAG_OWNER, Condition, Difference, Observed, Verdict
from cloudrec.providers.azure import errors, ids, operations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.engine.graph import Resource
    from cloudrec.errors import CloudrecError
    from cloudrec.providers.azure.client import Azure

_STATES: Mapping[str, Condition] = {
    "succeeded": Condition.READY,
    "failed": Condition.FAILED,
    "canceled": Condition.FAILED,
    "deleting": Condition.DELETING,
}
_BROKEN = "failed"  # the property of what failed and can be mended
_FAILED = frozenset({Condition.FAILED, Condition.UNAVAILABLE})
_PREFIX = "cloudrec-"  # what the names of all resource groups of ours begin with


class AzureDriver(CloudDriver):
    """Handles one kind of Azure's resources. Identities are resource ids, as `ids` writes them.

    A subclass looks things up in `fetch`, and begins what Azure answers before it is done with `begin`: the
    operation is followed in `condition`, begun again where it failed for a reason that passes, and given to
    the engine's journal.
    """

    refusals = (AzureError, errors.OperationFailedError)

    def __init__(self, azure: Azure) -> None:
        super().__init__()
        self.azure = azure
        self._changes: dict[str, operations.Change] = {}
        self._lock = threading.Lock()

    def fetch(self, resource: Resource) -> Observed | None:
        """Look it up, as it says of itself that it is; by default among all that a search shows."""
        return super().find(resource)

    def find(self, resource: Resource) -> Observed | None:
        """Look it up; where a change of it is known, that tells how far it has come, and why it failed."""
        seen = self.fetch(resource)
        if seen is None or seen.identity not in self._changes:
            return seen
        condition, reason = self.condition(self.kind, seen.identity)
        if condition is Condition.GONE:
            return None
        if condition in _FAILED and seen.condition is Condition.READY:
            return seen  # it is what it was, and differs from what is asked for as it did
        return replace(seen, condition=condition, reason=reason)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Ask the change that is under way how far it has come, and else the thing itself."""
        change = self._changes.get(identity)
        if change is None:
            return super().condition(kind, identity)
        progress = operations.look(self.azure, change.operation)
        if not progress.is_done:
            return (Condition.DELETING if change.is_removal else Condition.PENDING), ""
        if progress.error is None:
            self._forget(identity, change)
            return super().condition(kind, identity)
        return self._failed(identity, change, progress.error)

    def _failed(
        self, identity: str, change: operations.Change, error: errors.OperationFailedError
    ) -> tuple[Condition, str]:
        """Begin a change again if it failed for a reason that passes; else tell why it failed."""
        verdict = self.verdict(error)
        if verdict in {Verdict.RETRY, Verdict.LOST} and change.again is not None:
            try:
                change.again()
            except self.refusals as refusal:
                if not (change.is_removal and self.is_absent(refusal)):
                    raise
                self._forget(identity, change)
                return Condition.GONE, ""
            return (Condition.DELETING if change.is_removal else Condition.PENDING), error.message
        if change.is_removal:
            raise error
        told = self.explain(error)
        return (Condition.UNAVAILABLE if verdict is Verdict.UNAVAILABLE else Condition.FAILED), told.message

    def begin(
        self,
        identity: str,
        call: Callable[..., Any],
        *arguments: object,
        is_removal: bool = False,
        **parameters: object,
    ) -> str:
        """Begin a change of a thing, and return the thing's identity.

        Args:
            identity: of the thing.
            call: one of the SDK's `begin_` methods.
            arguments: its own.
            is_removal: whether it takes the thing away.
            parameters: the method's own.
        """
        operation = operations.begin(call, *arguments, **parameters)
        again = partial(self.begin, identity, call, *arguments, is_removal=is_removal, **parameters)
        with self._lock:
            self._changes.pop(identity, None)
            if operation:
                self._changes[identity] = operations.Change(
                    operation=operation, again=again, is_removal=is_removal
                )
        return identity

    def _forget(self, identity: str, change: operations.Change) -> None:
        with self._lock:
            if self._changes.get(identity) is change:
                del self._changes[identity]

    def operation(self, identity: str) -> str:
        """Return what is under way on this thing, or failed last, for another process."""
        change = self._changes.get(identity)
        return change.text if change else ""

    def resume(self, identity: str, operation: str) -> None:
        """Take up what another process began."""
        self._changes.setdefault(identity, operations.Change.of(operation))

    def failure(self, identity: str) -> errors.OperationFailedError | None:
        """Return why the last change of a thing failed; None where it did not, or goes on."""
        change = self._changes.get(identity)
        return operations.look(self.azure, change.operation).error if change else None

    def is_absent(self, error: Exception) -> bool:
        """Tell whether the thing, or what it would be in, is not there."""
        return errors.is_absent(error)

    def verdict(self, error: Exception) -> Verdict:
        """Tell by Azure's code, and by what it says, whether the call may be made again."""
        return errors.verdict(error, self.azure.grants)

    def explain(self, error: Exception) -> CloudrecError:
        """Say what Azure's error means."""
        return errors.explain(error)


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

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return what is asked for, as the SDK wants it."""
        raise NotImplementedError

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
            for group in groups(self.azure, cluster)
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
        """Put it as it is: that is how Azure mends what failed."""
        del resource, identities
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
            return self.begin(identity, made, *arguments, is_removal=is_removal)
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
            created=_created(row),
        )


def group_name(cluster: str) -> str:
    """Return the name of a cluster's resource group."""
    return f"{_PREFIX}{cluster}"


def groups(azure: Azure, cluster: str | None) -> list[str]:
    """Return the names of the resource groups of one cluster, there or not, or of all of ours."""
    if cluster is not None:
        return [group_name(cluster)]
    return [row.name.lower() for row in our_groups(azure)]


def our_groups(azure: Azure) -> list[Any]:
    """Return the resource groups of all clusters; those that AKS makes bear its clusters' tags too."""
    listed = azure.rows(azure.client("resources").resource_groups.list, filter=f"tagName eq '{TAG_CLUSTER}'")
    return [row for row in listed if not row.managed_by]


def state_of(row: Any) -> tuple[Condition, str]:  # noqa: ANN401 - the SDK's model
    """Tell by what Azure calls the provisioning state how far a thing has come; without one, it is there."""
    state = getattr(row, "provisioning_state", None)
    if state is None:
        return Condition.READY, ""
    text = str(plain(state))
    condition = _STATES.get(text.lower(), Condition.PENDING)
    return condition, f"its state is {text}" if condition is Condition.FAILED else ""


def place(location: str | None) -> str:
    """Return a region as we write it; Azure has `East US` at some places and `eastus` at others."""
    return (location or "").lower().replace(" ", "")


def plain(value: Any) -> Any:  # noqa: ANN401 - what the SDK's models hold
    """Return what an enumeration of the SDK's holds; of a value that is none, itself."""
    return getattr(value, "value", value)


def inherited(tags: Mapping[str, str], key: str) -> dict[str, str]:
    """Return the tags that a thing which can have none would have, by those of what it is part of."""
    return {TAG_CLUSTER: tags[TAG_CLUSTER], TAG_OWNER: tags.get(TAG_OWNER, ""), TAG_KEY: key}


def _created(row: Any) -> float | None:  # noqa: ANN401 - the SDK's model
    data = getattr(row, "system_data", None)
    created = data.created_at if data else getattr(row, "creation_time", None)
    return created.timestamp() if created else None
