"""Resources, how they depend on each other, and the Driver protocol through which the engine reaches a cloud.

The engine knows no cloud. A provider describes what should exist as `Resource` values and gives a
`Driver` for each kind; the engine decides what to call, when, and what to write down around it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cloudrec.errors import CloudrecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Every resource is born with these; a search by them finds what a lost journal no longer knows.
TAG_CLUSTER = "cloudrec-cluster"
TAG_OWNER = "cloudrec-owner"
TAG_KEY = "cloudrec-key"
TAG_EXPIRES = "cloudrec-expires"  # ISO 8601, UTC; only on clusters that have an end


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One thing that should exist.

    Attributes:
        kind: the provider's word for it ("vpc", "node-group"); chooses the driver.
        name: recomputable from the spec alone, so that it can be found with no journal.
        needs: keys of the resources that must be ready before this one is created.
        properties: what is asked for; compared with what is found, to tell drift.
        tags: given at birth, the three TAG_ ones included.
        hourly_usd: what it costs an hour while it exists.
        holds_data: kept by `down --keep-data`.
        candidates: where the cloud may be out of it: what is tried in its place, the best first, until
            one can be had. Such a resource is a choice: nothing of its own name is ever created.
        is_shared: the account's and not the cluster's (a service that is enabled): seen to where it is
            missing, and never removed, journalled or searched for.
    """

    kind: str
    name: str
    needs: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    hourly_usd: float = 0.0
    holds_data: bool = False
    candidates: tuple[Resource, ...] = ()
    is_shared: bool = False

    @property
    def key(self) -> str:
        """Its name within the cluster."""
        return f"{self.kind}/{self.name}"


class Condition(Enum):
    """How far a resource has come."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"  # failed because the cloud has none of it, or allows no more
    DELETING = "deleting"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One thing that was found in the cloud.

    Attributes:
        kind: chooses the driver.
        name: as its `Resource`'s.
        identity: the cloud's name for this very thing, by which it can be described and deleted.
        condition: how far it has come.
        properties: as far as drift is told from them.
        tags: as the cloud has them.
        hourly_usd: what it costs an hour.
        holds_data: kept by `down --keep-data`.
        reason: the cloud's own words where it failed.
        location: the region, as `Provider.search` takes it.
        created: seconds since the epoch; None where the cloud does not tell.
    """

    kind: str
    name: str
    identity: str
    condition: Condition
    properties: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    hourly_usd: float = 0.0
    holds_data: bool = False
    reason: str = ""
    location: str = ""
    created: float | None = None

    @property
    def key(self) -> str:
        """Its name within the cluster, as `Resource.key`."""
        return self.tags.get(TAG_KEY, f"{self.kind}/{self.name}")

    @property
    def owner(self) -> str:
        """Who it says answers for it; empty when it says nobody."""
        return self.tags.get(TAG_OWNER, "")

    @property
    def cluster(self) -> str:
        """The cluster that it says it belongs to; empty when it says none."""
        return self.tags.get(TAG_CLUSTER, "")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How what exists differs from what is asked for, and whether it can be changed in place."""

    reason: str
    in_place: bool


class Verdict(Enum):
    """What a driver says of an error of its cloud."""

    RETRY = "retry"  # it had no effect, and may succeed a little later
    LOST = "lost"  # as RETRY, but it may have had its effect: look before it is made again
    UNAVAILABLE = "unavailable"  # none of it is to be had here: another candidate may do
    FATAL = "fatal"


class Driver(Protocol):
    """How the engine handles one kind of resource. Every call may be cut short by a crash and made again.

    The SDK beneath must not repeat a changing call by itself: the engine does, and looks first whether an
    answer that was lost had its effect all the same.
    """

    @property
    def deadline_s(self) -> float:
        """Seconds from creation (or deletion) until waiting any longer is hopeless."""
        ...

    @property
    def poll_s(self) -> float:
        """Seconds between the first looks at one that is on its way; later looks are rarer."""
        ...

    def find(self, resource: Resource) -> Observed | None:
        """Look it up by its recomputable name or its tags; None when there is none."""
        ...

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Compare what is asked for with what exists; None when they agree."""
        ...

    def create(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create it, tagged from birth, and return its identity.

        Where this takes several calls and is cut short, `find` finds what there is and `difference` tells,
        in place, what is missing.

        Args:
            resource: what to create.
            token: the same at every attempt for this resource: the cloud's idempotency token.
            identities: identities of what it needs, by key; of a choice, of the candidate that was had.
        """
        ...

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Change what exists into what is asked for, in place."""
        ...

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Tell how far it has come, and the cloud's reason when it failed."""
        ...

    def delete(self, observed: Observed) -> None:
        """Ask for its removal; deleting what is gone or going is no error."""
        ...

    def verdict(self, error: Exception) -> Verdict:
        """Tell whether the call that raised this may be made again."""
        ...

    def explain(self, error: Exception) -> CloudrecError:
        """Say in a person's words what an error of the cloud means, with the remedy and the exit code."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A driver of a cloud whose changes are operations of their own, which alone tell why one failed.

    The engine writes an operation into its journal beside what it works on, and gives it back to the
    process that goes on after a crash.
    """

    def operation(self, identity: str) -> str:
        """Return what is under way on this thing, as another process can resume it; empty if nothing."""
        ...

    def resume(self, identity: str, operation: str) -> None:
        """Take up what another process began: `find` and `condition` tell how it ends."""
        ...


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The resources of one cluster, checked: keys are unique, needs exist, there is no cycle."""

    resources: Mapping[str, Resource]

    @classmethod
    def of(cls, resources: Iterable[Resource]) -> Graph:
        """Check and hold the resources; an error here is a provider's mistake, told plainly."""
        held: dict[str, Resource] = {}
        for resource in resources:
            if resource.key in held:
                raise CloudrecError(f"two resources share the key {resource.key!r}")
            held[resource.key] = resource
        for resource in held.values():
            missing = [need for need in resource.needs if need not in held]
            if missing:
                raise CloudrecError(f"{resource.key} needs {missing[0]}, which is not in the graph")
            for candidate in resource.candidates:
                if candidate.key in held or candidate.candidates:
                    raise CloudrecError(f"{candidate.key} cannot be a candidate for {resource.key}")
        graph = cls(resources=held)
        graph.order()
        return graph

    def needs(self) -> dict[str, set[str]]:
        """Return key -> keys that must be ready first."""
        return {key: set(resource.needs) for key, resource in self.resources.items()}

    def places(self) -> dict[str, str]:
        """Return key -> where it stands in the graph: itself, or for a candidate its choice."""
        places = {key: key for key in self.resources}
        for key, resource in self.resources.items():
            places |= {candidate.key: key for candidate in resource.candidates}
        return places

    def order(self) -> Sequence[str]:
        """Return the keys, each after everything that it needs."""
        try:
            return tuple(TopologicalSorter(self.needs()).static_order())
        except CycleError as error:
            raise CloudrecError(
                f"resources need each other in a circle: {' -> '.join(error.args[1])}"
            ) from error
