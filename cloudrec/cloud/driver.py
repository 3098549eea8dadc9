"""What all drivers of clouds share: comparing, completing, and the time until a new thing is seen everywhere.

A creation of several calls is written in two: `make` is the one call that brings the thing into being,
tagged; `complete` gives it all else, is idempotent, and is also what `change` does. So a creation that was
cut short is found by its tags, seen to differ, and completed in place.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID, uuid4, uuid5

from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Difference, Observed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cloudrec.engine.graph import Resource, Verdict
    from cloudrec.errors import CloudrecError

_VISIBLE_S = 120.0  # after its creation, that a thing is not found says nothing
_SEARCHES = 32  # at once
# Of several of one key, the one that serves is the one that has come furthest.
_ORDER = (
    Condition.READY,
    Condition.PENDING,
    Condition.FAILED,
    Condition.UNAVAILABLE,
    Condition.DELETING,
    Condition.GONE,
)


class UnfinishedError(Exception):
    """It was made, and a call that completes it failed (see `__cause__`): look before making another."""


class CloudDriver(ABC):
    """Handles one kind of a cloud's resources.

    A cloud's own base class says what its errors mean. Below it, a subclass gives `search`, `look`, `make`
    and `remove`; where the thing can be changed in place, also `complete` and the names of the properties
    that `complete` puts right.
    """

    kind: ClassVar[str]
    changeable: ClassVar[frozenset[str]] = frozenset()  # properties that `complete` puts right
    deadline_s: ClassVar[float] = 600.0
    poll_s: ClassVar[float] = 2.0
    refusals: ClassVar[tuple[type[Exception], ...]]  # what the cloud's SDK raises

    def __init__(self) -> None:
        self._born: dict[str, float] = {}  # identity -> when this process made it
        self._tokens: dict[str, str] = {}

    @abstractmethod
    def is_absent(self, error: Exception) -> bool:
        """Tell whether the cloud says that the thing is not there."""

    @abstractmethod
    def verdict(self, error: Exception) -> Verdict:
        """Tell whether the call that raised this may be made again."""

    @abstractmethod
    def explain(self, error: Exception) -> CloudrecError:
        """Say in a person's words what an error of the cloud means."""

    @abstractmethod
    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find by tag (by name, where tags are missing) what exists of one cluster, or of any of ours."""

    @abstractmethod
    def look(self, identity: str) -> tuple[Condition, str]:
        """Tell how far it has come; the cloud's own error, or GONE, where it is not there."""

    @abstractmethod
    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Make the one call that brings it into being, tagged, and return its identity."""

    @abstractmethod
    def remove(self, observed: Observed) -> None:
        """Ask for its removal; the cloud's own error where it is not there."""

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:  # noqa: B027 - most are born complete
        """Give it what it is not born with; made again, this changes nothing."""

    def find(self, resource: Resource) -> Observed | None:
        """Look it up among all that the cluster's tags show."""
        return best(seen for seen in self.search(resource.tags[TAG_CLUSTER]) if seen.key == resource.key)

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Compare the properties, as far as they are observed."""
        wrong = {
            name: f"{name} is {observed.properties.get(name)!r}, not {wanted!r}"
            for name, wanted in resource.properties.items()
            if name in observed.properties and observed.properties[name] != wanted
        }
        if not wrong:
            return None
        return Difference(reason="; ".join(wrong.values()), in_place=wrong.keys() <= self.changeable)

    def create(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Make it, then complete it."""
        identity = self.make(resource, token=self._token(resource.key, token), identities=identities)
        self._born[identity] = time.monotonic()
        self._tokens.pop(resource.key, None)
        with self._unfinished():
            self.complete(resource, identity, identities=identities)
        return identity

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Complete what exists."""
        self.complete(resource, observed.identity, identities=identities)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Look; what was made a moment ago and is not seen yet is on its way."""
        del kind
        try:
            condition, reason = self.look(identity)
        except self.refusals as error:
            if not self.is_absent(error):
                raise
            condition, reason = Condition.GONE, ""
        if (
            condition is Condition.GONE
            and time.monotonic() - self._born.get(identity, -_VISIBLE_S) < _VISIBLE_S
        ):
            return Condition.PENDING, "not yet visible"
        return condition, reason

    def delete(self, observed: Observed) -> None:
        """Remove it; what is not there is removed."""
        self._born.pop(observed.identity, None)
        try:
            self.remove(observed)
        except self.refusals as error:
            if not self.is_absent(error):
                raise

    def _token(self, key: str, token: str) -> str:
        """Return an idempotency token for this attempt at this incarnation.

        The engine's own is the same for every later incarnation too, and a cloud, which remembers tokens
        for a day or more, would answer it with the one that was deleted.
        """
        return self._tokens.setdefault(key, str(uuid5(UUID(token), uuid4().hex)))

    @contextmanager
    def _unfinished(self) -> Iterator[None]:
        """Say of whatever fails here that the thing itself was made."""
        try:
            yield
        except self.refusals as error:
            raise UnfinishedError(str(error)) from error


def best(found: Iterator[Observed]) -> Observed | None:
    """Return the one that has come furthest, of several always the same; None where there is none."""
    return min(found, key=lambda seen: (_ORDER.index(seen.condition), seen.identity), default=None)


def needed(resource: Resource, identities: Mapping[str, str], kind: str) -> str:
    """Return the identity of the first thing of this kind that the resource needs."""
    return all_needed(resource, identities, kind)[0]


def all_needed(resource: Resource, identities: Mapping[str, str], kind: str) -> list[str]:
    """Return the identities of all things of this kind that the resource needs, in its own order."""
    return [identities[key] for key in resource.needs if key.partition("/")[0] == kind]


def is_ours(tags: Mapping[str, str], cluster: str | None) -> bool:
    """Tell whether the tags say that it is of this cluster, or where that is None of any of ours."""
    return TAG_CLUSTER in tags if cluster is None else tags.get(TAG_CLUSTER) == cluster


def name_of(tags: Mapping[str, str], otherwise: str) -> str:
    """Return the resource's name within the cluster, which its key tag holds."""
    return tags.get(TAG_KEY, "").partition("/")[2] or otherwise


def search_all(drivers: Iterable[CloudDriver], cluster: str | None) -> list[Observed]:
    """Let every driver look, many at once; each thing once, in the drivers' order."""
    looks: list[Callable[[str | None], Sequence[Observed]]] = [driver.search for driver in drivers]
    with ThreadPoolExecutor(_SEARCHES, thread_name_prefix="search") as pool:
        found = [seen for listed in pool.map(lambda look: look(cluster), looks) for seen in listed]
    return list({(seen.kind, seen.identity): seen for seen in found}.values())
