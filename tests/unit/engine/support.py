"""A cloud in memory that refuses invalid calls like real clouds, and can crash or fail at any call."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cloudrec.engine.apply import apply
from cloudrec.engine.clock import Clock
from cloudrec.engine.context import Context
from cloudrec.engine.destroy import destroy, plan_removal
from cloudrec.engine.graph import (
    TAG_CLUSTER,
    TAG_KEY,
    TAG_OWNER,
    Condition,
    Difference,
    ErrorVerdict,
    Graph,
    Observed,
    Properties,
    Resource,
)
from cloudrec.engine.journal import Journal
from cloudrec.engine.plan import Plan, PlanStep, merge, plan
from cloudrec.errors import CloudrecError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path


class ThrottledError(Exception):
    """A throttling error."""


class DependencyError(Exception):
    """An error for a resource in use."""


class LostError(Exception):
    """A lost response; the effect of the call is unknown."""


class NoneLeftError(Exception):
    """An error for missing capacity."""


class Crash(BaseException):  # not an error: the process is killed
    """The process is killed here."""


@dataclass(frozen=True, kw_only=True)
class ThingProperties(Properties):
    """The requested properties of any resource of this cloud."""

    size: int | None = None
    colour: str | None = None


@dataclass
class Cloud:
    """The existing resources in creation order, and all calls."""

    things: dict[str, Observed] = field(default_factory=dict)
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    faults: dict[str, list[BaseException]] = field(default_factory=dict)
    pending_polls: int = 0
    unlisted: set[str] = field(default_factory=set)  # identities that no listing shows yet
    accounts_own: set[str] = field(default_factory=set)  # identities that no search by cluster shows
    listed_after: dict[str, float] = field(default_factory=dict)  # seconds slept until then
    born_at: dict[str, Resource] = field(default_factory=dict)  # at a call, by a controller
    sold_out: dict[str, str] = field(default_factory=dict)  # key -> the reason that comes some time later
    goes_with: dict[str, set[str]] = field(
        default_factory=dict
    )  # the resource being deleted -> the one deleted with it
    resumed: list[str] = field(default_factory=list)  # operations that a process took up from another
    by_operation: bool = False  # the reason is visible only through the operation
    stalls: dict[str, Callable[[], None]] = field(default_factory=dict)  # a hook that runs at a call
    _polls: dict[str, int] = field(default_factory=dict)

    def enter(self, call: str) -> None:
        """Record a call; raise the next fault planned for it."""
        self.calls.append(call)
        if stray := self.born_at.pop(call, None):
            CloudDriver(self)._put(stray, f"id-{stray.name}")
        if stall := self.stalls.pop(call, None):
            stall()
        if self.faults.get(call):
            raise self.faults[call].pop(0)

    def changing_calls(self) -> list[str]:
        """Return the changing calls."""
        return [call for call in self.calls if call.split()[0] in {"create", "change", "delete"}]

    def search(self, cluster: str) -> list[Observed]:
        """Find by tag."""
        return [
            thing
            for identity, thing in self.things.items()
            if thing.cluster == cluster and identity not in self.unlisted | self.accounts_own
        ]


@dataclass
class CloudDriver:
    """The driver of every kind of resource of the cloud in memory."""

    cloud: Cloud
    deadline_s: float = 60.0
    poll_s: float = 1.0
    begun: dict[str, str] = field(default_factory=dict)  # operations that this process knows

    def find(self, resource: Resource) -> Observed | None:
        """Look up by name."""
        self.cloud.enter(f"find {resource.key}")
        identity = f"id-{resource.name}"
        found = None if identity in self.cloud.unlisted else self.cloud.things.get(identity)
        if found is not None and (reason := self._failure(found)):
            return replace(found, condition=Condition.UNAVAILABLE, reason=reason)
        if found is not None and identity in self.cloud.goes_with:
            return replace(found, condition=Condition.DELETING)
        return found

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Compare properties: the size can grow in place, another colour needs a replacement."""
        self.cloud.enter(f"difference {resource.key}")
        requested = resource.properties.requested()
        for key, in_place in (("size", True), ("colour", False)):
            if observed.properties.get(key) != requested.get(key):
                return Difference(reason=f"{key} differs", in_place=in_place)
        return None

    def create(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create; a second creation of one name is a conflict, and a missing need an error."""
        self.cloud.enter(f"create {resource.key}")
        identity = f"id-{resource.name}"
        if identity in self.cloud.things:
            raise AssertionError(f"{resource.key} was created twice")
        for need in resource.needs:
            assert identities[need] in self.cloud.things
        assert token
        self._put(resource, identity)
        self.cloud.enter(f"created {resource.key}")
        self.begun[identity] = f"operation-on-{identity}"
        return identity

    def operation(self, identity: str) -> str:
        """Return the operation while the creation is in progress."""
        return self.begun.get(identity, "")

    def resume(self, identity: str, operation: str) -> None:
        """Know of it."""
        self.begun[identity] = operation
        self.cloud.resumed.append(operation)

    def _failure(self, thing: Observed) -> str:
        if self.cloud.by_operation and thing.identity not in self.begun:
            return ""
        return self.cloud.sold_out.get(thing.key, "")

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Apply the new properties."""
        assert set(resource.needs) <= set(identities)
        self.cloud.enter(f"change {resource.key}")
        self._put(resource, observed.identity)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return a pending condition for a few polls."""
        self.cloud.enter(f"condition {identity}")
        del kind
        if identity not in self.cloud.things:
            return Condition.GONE, ""
        if reason := self._failure(self.cloud.things[identity]):
            return Condition.UNAVAILABLE, reason
        seen = self.cloud._polls.get(identity, 0)
        self.cloud._polls[identity] = seen + 1
        if seen >= self.cloud.pending_polls:
            self.begun.pop(identity, None)
        return (Condition.PENDING if seen < self.cloud.pending_polls else Condition.READY), ""

    def delete(self, observed: Observed) -> None:
        """Refuse while a dependent exists."""
        self.cloud.enter(f"delete {observed.key}")
        if observed.identity in self.cloud.goes_with:
            for identity in (observed.identity, *self.cloud.goes_with.pop(observed.identity)):
                del self.cloud.things[identity]
            return
        for key, needs in self.cloud.needs.items():
            if observed.key in needs and any(thing.key == key for thing in self.cloud.things.values()):
                raise DependencyError(f"{observed.key} is needed by {key}")
        self.begun.pop(observed.identity, None)
        self.cloud.things.pop(observed.identity, None)

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Retry on throttling, and look up after a lost response."""
        verdicts = {
            ThrottledError: ErrorVerdict.RETRY,
            LostError: ErrorVerdict.LOST,
            NoneLeftError: ErrorVerdict.UNAVAILABLE,
        }
        return verdicts.get(type(error), ErrorVerdict.FATAL)

    def explain(self, error: Exception) -> CloudrecError:
        """Say it as it is."""
        return CloudrecError(f"{type(error).__name__}: {error}")

    def _put(self, resource: Resource, identity: str) -> None:
        self.cloud.needs[resource.key] = resource.needs
        self.cloud.things[identity] = Observed(
            kind=resource.kind,
            name=resource.name,
            identity=identity,
            condition=Condition.READY,
            properties=resource.properties.requested(),
            tags=resource.tags,
            hourly_usd=resource.hourly_usd,
            holds_data=resource.holds_data,
        )


def resource(
    key: str,
    *needs: str,
    cluster: str = "c",
    owner: str = "",
    candidates: tuple[Resource, ...] = (),
    is_shared: bool = False,
    size: int | None = None,
    colour: str | None = None,
) -> Resource:
    """Return a resource named kind/name."""
    kind, _, name = key.partition("/")
    return Resource(
        kind=kind,
        name=name,
        needs=needs,
        properties=ThingProperties(size=size, colour=colour),
        tags={TAG_CLUSTER: cluster, TAG_KEY: key} | ({TAG_OWNER: owner} if owner else {}),
        hourly_usd=1.0,
        holds_data=kind == "bucket",
        candidates=candidates,
        is_shared=is_shared,
    )


SETTLE_S = 30.0
GRAPH = (
    resource("vpc/net"),
    resource("role/admin"),
    resource("bucket/data"),
    resource("subnet/a", "vpc/net"),
    resource("cluster/k", "subnet/a", "role/admin"),
    resource("nodes/gpu", "cluster/k", size=2),
)


class FakeClock(Clock):
    """Counts the time slept, and updates lists."""

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(speed=1000.0)  # stamina's waits are real and therefore shortened
        self.slept = 0.0
        self._cloud = cloud

    def now(self) -> float:
        """Return the seconds slept so far."""
        return self.slept

    def sleep(self, seconds: float) -> None:
        """Advance the time."""
        self.check()
        self.slept += seconds
        for identity, moment in self._cloud.listed_after.items():
            if self.slept >= moment:
                self._cloud.unlisted.discard(identity)


class Bench:
    """One home and one cloud for a test of the engine."""

    def __init__(self, folder: Path, cloud: Cloud | None = None) -> None:
        self.cloud = cloud or Cloud()
        self.journal = Journal(folder / "journal.sqlite")
        self.clock = FakeClock(self.cloud)

    @property
    def slept(self) -> float:
        """Seconds that the last command waited."""
        return self.clock.slept

    def context(self) -> Context:
        """Return the context of one command."""
        self.clock = FakeClock(self.cloud)
        kinds = {"vpc", "role", "bucket", "subnet", "cluster", "nodes", "gpu", "tap"}
        drivers = dict.fromkeys(kinds, CloudDriver(self.cloud))
        return Context(journal=self.journal, drivers=drivers, clock=self.clock)

    def plan(self, resources: tuple[Resource, ...] = GRAPH, context: Context | None = None) -> Plan:
        """Compare without any change."""
        context = context or self.context()
        known, searched = self.journal.known("c"), self.cloud.search("c")
        return plan("c", Graph.of(resources), context, known=known, searched=searched, settle_s=SETTLE_S)

    def up(self, resources: tuple[Resource, ...] = GRAPH) -> list[tuple[PlanStep, str]]:
        context = self.context()
        planned = self.plan(resources, context)
        apply(planned, Graph.of(resources), context, settle_s=SETTLE_S)
        return [(action.step, action.key) for action in planned.changes]

    def down(
        self,
        resources: tuple[Resource, ...] = GRAPH,
        *,
        keep_data: bool = False,
        kinds: Mapping[str, AbstractSet[str]] | None = None,
    ) -> None:
        existing = merge(self.journal.known("c"), self.cloud.search("c"))
        removal = plan_removal("c", existing, keep_data=keep_data)
        graph, context = Graph.of(resources), self.context()
        destroy(removal, graph, context, lambda: self.cloud.search("c"), kinds=kinds, settle_s=SETTLE_S)


# The columns of each earlier schema of the journal.
COLUMNS = {
    "clusters": {"name", "provider", "request", "created", "is_down"},
    "entries": {
        *("cluster", "key", "kind", "name", "identity", "tags", "hourly_usd", "holds_data", "written"),
    },
}


def make_journal_old(path: Path, version: int) -> None:
    """Downgrade a journal to the schema of an earlier version."""
    with sqlite3.connect(path) as file:
        for table, had in COLUMNS.items():
            kept = {*had, *(["operation"] if version > 1 else [])}
            for (column,) in file.execute("select name from pragma_table_info(?)", (table,)).fetchall():
                if column not in kept:
                    file.execute(f"alter table {table} drop column {column}")
        file.execute(f"pragma user_version = {version}")
    file.close()
