"""Resources, how they depend on each other, and the Driver protocol through which the engine reaches a cloud.

The engine knows no cloud. A provider describes what should exist as `Resource` values and gives a
`Driver` for each kind; the engine decides what to call, when, and what to write down around it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Generic, Protocol, cast, runtime_checkable

from typing_extensions import TypeVar  # before Python 3.13, typing's own has no defaults

from cloudrec.engine.cost import FREE, Cost, Item
from cloudrec.errors import CloudrecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NODES = "nodes"  # the property of a pool with its number of nodes
# Every resource is created with these tags, so that a search finds it even if the journal is lost.
TAG_CLUSTER = "cloudrec-cluster"
TAG_OWNER = "cloudrec-owner"
TAG_KEY = "cloudrec-key"
TAG_EXPIRES = "cloudrec-expires"  # ISO 8601, UTC; only on clusters that have an end


@dataclass(frozen=True, kw_only=True)
class Properties:
    """The requested properties of a resource; each kind that has any defines a subclass.

    Drift compares the fields with what the cloud reports under the same names. A field that is None is not
    requested: it is neither compared nor shown.
    """

    def requested(self) -> dict[str, Any]:
        """Return the fields that are not None, by name, as plain dictionaries, lists and scalars."""
        return {name: value for name, value in asdict(self).items() if value is not None}


# Resources of any kind can be used as `Resource`; a driver accepts those of one kind only.
P_co = TypeVar("P_co", covariant=True, bound=Properties, default=Properties)
P_contra = TypeVar("P_contra", contravariant=True, bound=Properties, default=Any)


@dataclass(frozen=True, kw_only=True)
class Prepaid:
    """Nodes that are paid for in advance: by the hour, they cost nothing more.

    Attributes:
        hourly_usd: the price of all of them, spread over the time that is paid for; None if unknown.
    """

    hourly_usd: float | None


@dataclass(frozen=True, kw_only=True)
class Resource(Generic[P_co]):
    """One resource that should exist.

    Attributes:
        kind: the provider's word for it ("vpc", "node-group"); chooses the driver.
        name: computed from the spec alone, so that the resource can be found without a journal.
        needs: keys of the resources that must be ready before this one is created.
        properties: the requested properties; compared with the observed ones to detect drift.
        tags: tags from its creation on, including the TAG_ ones.
        hourly_usd: its price in USD an hour while it exists; None if unknown. The field has no default,
            because a default would look like a known price.
        node_type: the type of its nodes, which decides their price; empty if it has no nodes.
        gpus: GPUs of each of its nodes.
        pool: the name of its pool, as the nodes' label has it; empty if it has no nodes.
        nodes: how many nodes its price is for; 0 if the price of the pool's nodes is in that of something
            else, such as the control plane.
        priced: the market, date and source of the price of its nodes; empty if it has none.
        prepaid: what was paid for its nodes in advance; None if they are paid by the hour.
        holds_data: whether `down --keep-data` keeps it.
        candidates: alternatives for a resource that the cloud may be out of, the best first. The engine
            creates the first one that is available, and never a resource with this resource's own name.
        is_standby: whether all candidates exist, each without nodes: the keeper in the cluster gives them
            their nodes.
        kept: properties that others change: they are set at the creation, and keep what they have after it.
        is_shared: whether it belongs to the account and not to the cluster (an enabled service). A shared
            resource is created if it does not exist, and is never removed, journalled or searched for.
    """

    kind: str
    name: str
    needs: tuple[str, ...] = ()
    properties: P_co = field(default_factory=lambda: cast("P_co", Properties()))
    tags: Mapping[str, str] = field(default_factory=dict)
    hourly_usd: float | None
    node_type: str = ""
    gpus: int = 0
    pool: str = ""
    nodes: int = 0
    priced: str = ""
    prepaid: Prepaid | None = None
    holds_data: bool = False
    candidates: tuple[Resource, ...] = ()
    is_standby: bool = False
    kept: frozenset[str] = frozenset()
    is_shared: bool = False

    @property
    def key(self) -> str:
        """Its name within the cluster: KIND/NAME."""
        return f"{self.kind}/{self.name}"

    def beside(self, observed: Observed) -> Resource[P_co]:
        """Return the resource with the observed values of the properties that others change."""
        there = {name: observed.properties[name] for name in self.kept if name in observed.properties}
        properties = replace(self.properties, **there)
        return replace(self, properties=properties) if there else self

    @property
    def item(self) -> Item:
        """The item that its price is shown for."""
        if self.node_type:
            return Item(name=self.kind, node_type=self.node_type)
        return Item(name=self.key)

    @property
    def most(self) -> Sequence[tuple[Item, float | None]]:
        """The highest price it may have: its dearest candidate, and each candidate of unknown price."""
        choices = self.candidates or (self,)
        unknown = [(one.item, None) for one in choices if one.hourly_usd is None]
        known = [(one.hourly_usd, one.item) for one in choices if one.hourly_usd is not None]
        usd, item = max(known, key=lambda price: price[0], default=(FREE, self.item))
        return [*unknown, (item, usd)]


class Condition(Enum):
    """The state of a resource."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"  # failed because the cloud has no capacity or quota for it
    DELETING = "deleting"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class PoolMachines:
    """The machines of a pool of nodes, whatever state the pool itself reports.

    Attributes:
        running: how many run.
        wanted: how many the pool is set to have now.
        reason: why the others do not run, in the cloud's words; empty if it gives no reason.
        is_retried: whether the cloud starts the missing ones by itself once it can.
    """

    running: int
    wanted: int
    reason: str = ""
    is_retried: bool

    @property
    def lack(self) -> str:
        """What is missing and why, as one phrase; empty if all machines run."""
        if self.running >= self.wanted:
            return ""
        why = self.reason or "the cloud gives no reason"
        then = "it tries again by itself" if self.is_retried else "it starts none by itself"
        return f"{self.running} of {self.wanted} nodes run, and {then}: {why}"


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A resource that was found in the cloud.

    Attributes:
        kind: chooses the driver.
        name: the name of its `Resource`.
        identity: the cloud's unique name for it, which describe and delete calls take.
        condition: its state.
        properties: the properties that the cloud reports, by field name of the kind's `Properties`.
        tags: the tags that the cloud reports.
        hourly_usd: its price in USD an hour; None if unknown.
        holds_data: whether `down --keep-data` keeps it.
        reason: the cloud's message if it failed, or why its tags are not known.
        location: the region, as `Provider.search` takes it.
        created: its creation in seconds since the epoch; None if the cloud does not report it.
        outside_graph: whether a run or an add-on made it rather than `up`. `up` ignores such a resource,
            `down` removes it.
        machines: the machines of a pool of nodes; None if it is no pool or the cloud does not report them.
    """

    kind: str
    name: str
    identity: str
    condition: Condition
    properties: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    hourly_usd: float | None
    holds_data: bool = False
    reason: str = ""
    location: str = ""
    created: float | None = None
    outside_graph: bool = False
    machines: PoolMachines | None = None

    @property
    def key(self) -> str:
        """Its name within the cluster, as in `Resource.key`."""
        return self.tags.get(TAG_KEY, f"{self.kind}/{self.name}")

    @property
    def owner(self) -> str:
        """The owner in its tags; empty if it has no such tag."""
        return self.tags.get(TAG_OWNER, "")

    @property
    def cluster(self) -> str:
        """The cluster in its tags; empty if it has no such tag."""
        return self.tags.get(TAG_CLUSTER, "")


def cost_of(found: Iterable[Observed]) -> Cost:
    """Return the total cost of existing resources."""
    return Cost.of((Item(name=seen.key), seen.hourly_usd) for seen in found)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How an existing resource differs from the requested one, and whether it can be changed in place."""

    reason: str
    in_place: bool


class ErrorVerdict(Enum):
    """A driver's classification of an error of its cloud."""

    RETRY = "retry"  # the call had no effect, and may succeed later
    LOST = "lost"  # like RETRY, but the call may have had its effect: find the resource before a retry
    UNAVAILABLE = "unavailable"  # no capacity here; another candidate may be available
    FATAL = "fatal"


class Driver(Protocol[P_contra]):
    """The operations of one kind of resource. A crash may interrupt any call, and the engine calls it again.

    The SDK must not retry changing calls itself. The engine retries them, and first checks whether a call
    whose response was lost has had its effect.
    """

    @property
    def deadline_s(self) -> float:
        """The longest wait for a creation or deletion, in seconds."""
        ...

    @property
    def poll_s(self) -> float:
        """Seconds between the first polls of a resource in creation; later polls are less frequent."""
        ...

    def find(self, resource: Resource[P_contra]) -> Observed | None:
        """Look a resource up by its name or its tags; None if it does not exist."""
        ...

    def difference(self, resource: Resource[P_contra], observed: Observed) -> Difference | None:
        """Compare the requested resource with the existing one; None if they agree. It may ask the cloud."""
        ...

    def create(self, resource: Resource[P_contra], *, token: str, identities: Mapping[str, str]) -> str:
        """Create a resource with its tags, and return its identity.

        If the creation takes several calls and is interrupted, `find` finds the incomplete resource, and
        `difference` reports what is missing as a change in place.

        Args:
            resource: the resource to create.
            token: the idempotency token for the cloud: the same at every attempt for this resource.
            identities: key -> identity of the resources that it needs. The identity of a resource with
                candidates is that of the candidate that was created.
        """
        ...

    def change(
        self, resource: Resource[P_contra], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Change the existing resource into the requested one, in place."""
        ...

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return a resource's state, and the cloud's message if it failed."""
        ...

    def delete(self, observed: Observed) -> None:
        """Begin to delete a resource; not an error if it is gone or being deleted."""
        ...

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return whether the call that raised this error can be retried."""
        ...

    def explain(self, error: Exception) -> CloudrecError:
        """Return the cloud's error as one for users, with a remedy and an exit code."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A driver of a cloud whose changes are operations; only an operation reports why its change failed.

    The engine writes the operation in progress on a resource into the journal, and gives it back to the
    process that continues after a crash.
    """

    def operation(self, identity: str) -> str:
        """Return the operation in progress on a resource, as `resume` takes it; empty if there is none."""
        ...

    def resume(self, identity: str, operation: str) -> None:
        """Follow an operation that another process began: `find` and `condition` then report its result."""
        ...


@runtime_checkable
class Holding(Protocol):
    """A driver whose failed candidates can hold what the next one needs: some of the nodes of a quota."""

    def holds(self, observed: Observed) -> bool:
        """Return whether the remains of an unavailable candidate hold capacity now."""
        ...


@runtime_checkable
class Growing(Protocol):
    """A driver of pools whose nodes may be in use while more are requested."""

    def as_before(self, resource: Resource[Any], observed: Observed) -> Resource[Any] | None:
        """Return the pool as it is requested, but with the size that it had; None if it had no nodes.

        If the cloud does not have the further nodes, the engine gives them back and keeps the others.

        Args:
            resource: the requested pool.
            observed: the pool before the change.
        """
        ...


def _expanded(resource: Resource, standby: Mapping[str, Sequence[str]]) -> Iterable[Resource]:
    """Yield the resource, or the candidates of one whose nodes the keeper sizes, each without nodes.

    Args:
        resource: the resource.
        standby: the candidates' keys, by the keys of such resources; what needs one needs all its candidates.
    """
    if not resource.is_standby:
        needs = tuple(key for need in resource.needs for key in standby.get(need, (need,)))
        yield resource if needs == resource.needs else replace(resource, needs=needs)
        return
    for candidate in resource.candidates:
        # The type of the properties is the kind's: those of every pool have a number of nodes.
        empty = replace(candidate.properties, **cast("dict[str, Any]", {NODES: 0}))
        yield replace(candidate, properties=empty, hourly_usd=FREE, nodes=0, kept=frozenset({NODES}))


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The resources of one cluster, checked: keys are unique, needs exist, there is no cycle."""

    resources: Mapping[str, Resource]

    @classmethod
    def of(cls, resources: Iterable[Resource]) -> Graph:
        """Return a graph of the resources; CloudrecError for a bug in a provider."""
        held: dict[str, Resource] = {}
        listed = list(resources)
        standby = {each.key: [one.key for one in each.candidates] for each in listed if each.is_standby}
        for resource in (one for each in listed for one in _expanded(each, standby)):
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
        graph.order()  # raises if there is a cycle
        return graph

    def needs(self) -> dict[str, set[str]]:
        """Return key -> keys that must be ready first."""
        return {key: set(resource.needs) for key, resource in self.resources.items()}

    def needed_by(self) -> dict[str, set[str]]:
        """Return key -> keys that need it, and so are removed first; a candidate counts like its choice."""
        places = self.places()
        variants: dict[str, list[str]] = {}
        for key, place in places.items():
            variants.setdefault(place, []).append(key)
        found: dict[str, set[str]] = {key: set() for key in places}
        for key, resource in self.resources.items():
            for need in resource.needs:
                for below in variants[need]:
                    found[below] |= set(variants[key])
        return found

    def places(self) -> dict[str, str]:
        """Return key -> key of its node in the graph: the key itself, or the resource of a candidate."""
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
