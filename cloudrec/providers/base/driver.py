"""The base of all cloud drivers: comparison, creation in two parts, and the delay of listings.

A creation of several calls has two parts. `make` is the one call that creates the resource, with its tags.
`complete` makes the other calls; it is idempotent, and `change` calls it too. An interrupted creation is
therefore found by its tags, differs from the request, and is completed in place.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic
from uuid import UUID, uuid4, uuid5

from cloudrec.engine.graph import (
    TAG_CLUSTER,
    TAG_KEY,
    Condition,
    Difference,
    ErrorVerdict,
    Observed,
    P_contra,
)
from cloudrec.providers.base.reading import answers_read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cloudrec.engine.graph import PoolMachines, Resource
    from cloudrec.errors import CloudrecError

# Clouds are eventually consistent: for so long after a creation, "not found" does not mean that it is gone.
_VISIBLE_S = 120.0
_SEARCHES = 32  # concurrent searches
_CALLS = {"find", "search", "difference", "create", "change", "condition", "delete"}
# Of several resources with one key, the first in this order is used.
_ORDER = (
    Condition.READY,
    Condition.PENDING,
    Condition.FAILED,
    Condition.UNAVAILABLE,
    Condition.DELETING,
    Condition.GONE,
)


class UnfinishedError(Exception):
    """The resource was created, but completing it failed. Find it before a retry.

    Attributes:
        cause: the error of what completes it.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause

    def verdict(self, judge: Callable[[Exception], ErrorVerdict]) -> ErrorVerdict:
        """Return the verdict on the cause; never RETRY, which would create a second resource."""
        found = judge(self.cause)
        return ErrorVerdict.LOST if found is ErrorVerdict.RETRY else found


def awaited(machines: PoolMachines, *, is_shortage: bool) -> tuple[Condition, str]:
    """Return the condition of a pool whose own state is good, by the machines that run.

    Args:
        machines: its machines.
        is_shortage: whether the reason for missing ones is a lack of capacity or quota.
    """
    if not machines.lack:
        return Condition.READY, ""
    return (Condition.UNAVAILABLE if is_shortage else Condition.PENDING), machines.lack


def with_nodes(resource: Resource[Any], nodes: object) -> Resource[Any] | None:
    """Return a requested pool with another number of nodes; None for 0. See `Growing.as_before`."""
    if not isinstance(nodes, int) or not nodes:
        return None
    return replace(resource, properties=replace(resource.properties, nodes=nodes))


class CloudDriver(ABC, Generic[P_contra]):
    """The driver of one kind of a cloud's resources.

    Each cloud has a base class that classifies the errors of its SDK. A subclass for a kind implements
    `search`, `look`, `make` and `remove`. If the resource can be changed in place, it also implements
    `complete` and names the properties that `complete` changes.
    """

    kind: ClassVar[str]
    changeable: ClassVar[frozenset[str]] = frozenset()  # properties that `complete` changes in place
    deadline_s: ClassVar[float] = 600.0
    poll_s: ClassVar[float] = 2.0
    refusals: ClassVar[tuple[type[Exception], ...]]  # the exceptions of the cloud's SDK

    def __init_subclass__(cls) -> None:
        """Let the calls of the engine raise UnreadableAnswerError for an answer that they cannot read."""
        super().__init_subclass__()
        for name in _CALLS & cls.__dict__.keys():
            setattr(cls, name, answers_read()(cls.__dict__[name]))

    def __init__(self) -> None:
        self._born: dict[str, float] = {}  # identity -> monotonic time of its creation by this process
        self._tokens: dict[str, str] = {}

    @abstractmethod
    def is_absent(self, error: Exception) -> bool:
        """Return whether the error means that the resource does not exist."""

    @abstractmethod
    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return whether the call that raised this error can be retried."""

    @abstractmethod
    def explain(self, error: Exception) -> CloudrecError:
        """Return the cloud's error as one for users, with a remedy."""

    @abstractmethod
    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find one cluster's resources (None: all of cloudrec's) by tag, or by name if they have no tags."""

    @abstractmethod
    def look(self, identity: str) -> tuple[Condition, str]:
        """Return a resource's state and its reason. If it does not exist: GONE, or the SDK's error."""

    @abstractmethod
    def make(self, resource: Resource[P_contra], *, token: str, identities: Mapping[str, str]) -> str:
        """Create the resource with its tags, in one call, and return its identity."""

    @abstractmethod
    def remove(self, observed: Observed) -> None:
        """Begin to delete a resource; the SDK's error if it does not exist."""

    def complete(self, resource: Resource[P_contra], identity: str, *, identities: Mapping[str, str]) -> None:
        """Make the calls that `make` cannot; idempotent."""

    @answers_read()
    def find(self, resource: Resource[P_contra]) -> Observed | None:
        """Find a resource by its key among those with the cluster's tags; None if it does not exist."""
        return best(seen for seen in self.search(resource.tags[TAG_CLUSTER]) if seen.key == resource.key)

    @answers_read()
    def difference(self, resource: Resource[P_contra], observed: Observed) -> Difference | None:
        """Compare what is both requested and observed, and the nodes that run; None if they agree."""
        # A property that the cloud did not report cannot be compared, so it is no drift.
        wrong = {
            name: f"{name} is {observed.properties.get(name)!r}, not {wanted!r}"
            for name, wanted in resource.properties.requested().items()
            if name in observed.properties and observed.properties[name] != wanted
        }
        if not wrong and observed.machines is not None and observed.machines.lack:
            return Difference(reason=observed.machines.lack, in_place=True)
        if not wrong:
            return None
        return Difference(reason="; ".join(wrong.values()), in_place=wrong.keys() <= self.changeable)

    @answers_read()
    def create(self, resource: Resource[P_contra], *, token: str, identities: Mapping[str, str]) -> str:
        """Make the resource and complete it; return its identity."""
        identity = self.make(resource, token=self._token(resource.key, token), identities=identities)
        self._born[identity] = time.monotonic()
        self._tokens.pop(resource.key, None)
        with self._unfinished(), answers_read():
            self.complete(resource, identity, identities=identities)
        return identity

    @answers_read()
    def change(
        self, resource: Resource[P_contra], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Complete an existing resource."""
        self.complete(resource, observed.identity, identities=identities)

    @answers_read()
    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return the state and its reason; PENDING if not found within two minutes of its creation."""
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

    @answers_read()
    def delete(self, observed: Observed) -> None:
        """Begin to delete a resource; not an error if it does not exist."""
        self._born.pop(observed.identity, None)
        try:
            self.remove(observed)
        except self.refusals as error:
            if not self.is_absent(error):
                raise

    def _token(self, key: str, token: str) -> str:
        """Return an idempotency token that is the same for the retries of one creation only.

        The engine's token is the same for each later resource of this key too. A cloud remembers tokens for a
        day or more, and would return the deleted resource for a token that it knows.
        """
        return self._tokens.setdefault(key, str(uuid5(UUID(token), uuid4().hex)))

    @contextmanager
    def _unfinished(self) -> Iterator[None]:
        """Raise UnfinishedError for an error in the block, since the resource exists by then."""
        try:
            yield
        except self.refusals as error:
            raise UnfinishedError(error) from error


def best(found: Iterator[Observed]) -> Observed | None:
    """Return the resource whose state comes first in `_ORDER`; among equals the one of least identity."""
    return min(found, key=lambda seen: (_ORDER.index(seen.condition), seen.identity), default=None)


def needed(resource: Resource, identities: Mapping[str, str], kind: str) -> str:
    """Return the identity of the first resource of this kind that the resource needs."""
    return all_needed(resource, identities, kind)[0]


def all_needed(resource: Resource, identities: Mapping[str, str], kind: str) -> list[str]:
    """Return the identities of all resources of this kind that the resource needs, in order."""
    return [identities[key] for key in resource.needs if key.partition("/")[0] == kind]


def is_ours(tags: Mapping[str, str], cluster: str | None) -> bool:
    """Return whether the tags are those of this cluster; if it is None, of any of cloudrec's clusters."""
    return TAG_CLUSTER in tags if cluster is None else tags.get(TAG_CLUSTER) == cluster


def name_of(tags: Mapping[str, str], otherwise: str) -> str:
    """Return the resource's name within the cluster from its key tag; `otherwise` if it has none."""
    return tags.get(TAG_KEY, "").partition("/")[2] or otherwise


def search_all(drivers: Iterable[CloudDriver[Any]], cluster: str | None) -> list[Observed]:
    """Search with all drivers concurrently; return each resource once, in the drivers' order."""
    looks: list[Callable[[str | None], Sequence[Observed]]] = [driver.search for driver in drivers]
    with ThreadPoolExecutor(_SEARCHES, thread_name_prefix="search") as pool:
        found = [seen for listed in pool.map(lambda look: look(cluster), looks) for seen in listed]
    return list({(seen.kind, seen.identity): seen for seen in found}.values())
