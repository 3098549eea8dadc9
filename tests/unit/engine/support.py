"""A cloud in memory that refuses what clouds refuse, and can be told to crash or fail at any call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import (
    TAG_CLUSTER,
    TAG_KEY,
    Condition,
    Difference,
    Observed,
    Resource,
    Verdict,
)
from cloudrec.errors import CloudrecError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ThrottledError(Exception):
    """The cloud says: not so fast."""


class DependencyError(Exception):
    """The cloud says: something still needs this."""


class Crash(BaseException):  # not an error of the program: its death
    """The process dies here."""


@dataclass
class Cloud:
    """What exists, in the order of creation, and every call that was made."""

    things: dict[str, Observed] = field(default_factory=dict)
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    faults: dict[str, list[BaseException]] = field(default_factory=dict)
    pending_polls: int = 0
    unlisted: set[str] = field(default_factory=set)  # identities that a search does not show yet
    _polls: dict[str, int] = field(default_factory=dict)

    def enter(self, call: str) -> None:
        """Record a call; raise the next fault planned for it."""
        self.calls.append(call)
        if self.faults.get(call):
            raise self.faults[call].pop(0)

    def changing_calls(self) -> list[str]:
        """Return the calls that changed something."""
        return [call for call in self.calls if call.split()[0] in {"create", "change", "delete"}]

    def search(self, cluster: str) -> list[Observed]:
        """Find by tag."""
        return [
            thing
            for identity, thing in self.things.items()
            if thing.cluster == cluster and identity not in self.unlisted
        ]


@dataclass
class CloudDriver:
    """Handles any kind of thing in the cloud in memory."""

    cloud: Cloud
    deadline_s: float = 60.0
    poll_s: float = 1.0

    def find(self, resource: Resource) -> Observed | None:
        """Look up by name."""
        self.cloud.enter(f"find {resource.key}")
        return self.cloud.things.get(f"id-{resource.name}")

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Compare sizes: growing works in place, another colour needs a new one."""
        for key, in_place in (("size", True), ("colour", False)):
            if observed.properties.get(key) != resource.properties.get(key):
                return Difference(reason=f"{key} differs", in_place=in_place)
        return None

    def create(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create; a second creation of one name is a conflict, a missing need a failure."""
        self.cloud.enter(f"create {resource.key}")
        identity = f"id-{resource.name}"
        if identity in self.cloud.things:
            raise AssertionError(f"{resource.key} was created twice")
        for need in resource.needs:
            assert identities[need] in self.cloud.things
        assert token
        self._put(resource, identity)
        self.cloud.enter(f"created {resource.key}")
        return identity

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Take on the new properties."""
        assert set(resource.needs) <= set(identities)
        self.cloud.enter(f"change {resource.key}")
        self._put(resource, observed.identity)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Be pending for a few polls."""
        self.cloud.enter(f"condition {identity}")
        del kind
        if identity not in self.cloud.things:
            return Condition.GONE, ""
        seen = self.cloud._polls.get(identity, 0)
        self.cloud._polls[identity] = seen + 1
        return (Condition.PENDING if seen < self.cloud.pending_polls else Condition.READY), ""

    def delete(self, observed: Observed) -> None:
        """Refuse while something needs it."""
        self.cloud.enter(f"delete {observed.key}")
        for key, needs in self.cloud.needs.items():
            if observed.key in needs and any(thing.key == key for thing in self.cloud.things.values()):
                raise DependencyError(f"{observed.key} is needed by {key}")
        self.cloud.things.pop(observed.identity, None)

    def verdict(self, error: Exception) -> Verdict:
        """Only throttling passes."""
        return Verdict.RETRY if isinstance(error, ThrottledError) else Verdict.FATAL

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
            properties=resource.properties,
            tags=resource.tags,
            hourly_usd=resource.hourly_usd,
            holds_data=resource.holds_data,
        )


def resource(key: str, *needs: str, cluster: str = "c", **properties: Any) -> Resource:
    """Return a resource named kind/name."""
    kind, _, name = key.partition("/")
    return Resource(
        kind=kind,
        name=name,
        needs=needs,
        properties=properties,
        tags={TAG_CLUSTER: cluster, TAG_KEY: key},
        hourly_usd=1.0,
        holds_data=kind == "bucket",
    )
