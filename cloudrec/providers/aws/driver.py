"""What all drivers of AWS share: errors, tags, comparing, and the time until a new thing is seen everywhere.

A creation of several calls is written in two: `make` is the one call that brings the thing into being,
tagged; `complete` gives it all else, is idempotent, and is also what `change` does. So a creation that was
cut short is found by its tags, seen to differ, and completed in place.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID, uuid4, uuid5

from botocore.exceptions import BotoCoreError, ClientError

from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Difference, Observed
from cloudrec.providers.aws import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.engine.graph import Resource, Verdict
    from cloudrec.errors import CloudrecError
    from cloudrec.providers.aws.client import Aws

_VISIBLE_S = 120.0  # after its creation, that a thing is not found says nothing
# Of several of one key, the one that serves is the one that has come furthest.
_ORDER = (
    Condition.READY,
    Condition.PENDING,
    Condition.FAILED,
    Condition.UNAVAILABLE,
    Condition.DELETING,
    Condition.GONE,
)


class AwsDriver(ABC):
    """Handles one kind of AWS's resources.

    A subclass gives `search`, `look`, `make` and `remove`; where it can be changed in place, also
    `complete` and the names of the properties that `complete` puts right.
    """

    kind: ClassVar[str]
    changeable: ClassVar[frozenset[str]] = frozenset()  # properties that `complete` puts right
    deadline_s: ClassVar[float] = 600.0
    poll_s: ClassVar[float] = 2.0

    def __init__(self, aws: Aws) -> None:
        self.aws = aws
        self._born: dict[str, float] = {}  # identity -> when this process made it
        self._tokens: dict[str, str] = {}

    @abstractmethod
    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find by tag (by name, where tags are missing) what exists of one cluster, or of any of ours."""

    @abstractmethod
    def look(self, identity: str) -> tuple[Condition, str]:
        """Tell how far it has come; AWS's own error, or GONE, where it is not there."""

    @abstractmethod
    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Make the one call that brings it into being, tagged, and return its identity."""

    @abstractmethod
    def remove(self, observed: Observed) -> None:
        """Ask for its removal; AWS's own error where it is not there."""

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
        with _unfinished():
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
        except ClientError as error:
            if not errors.is_absent(error):
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
        except ClientError as error:
            if not errors.is_absent(error):
                raise

    def verdict(self, error: Exception) -> Verdict:
        """Tell by AWS's code whether the call may be made again."""
        return errors.verdict(error)

    def explain(self, error: Exception) -> CloudrecError:
        """Say what AWS's error means."""
        return errors.explain(error)

    def _token(self, key: str, token: str) -> str:
        """Return an idempotency token for this attempt at this incarnation.

        The engine's own is the same for every later incarnation too, and AWS, which remembers tokens
        for a day or more, would answer it with the one that was deleted.
        """
        return self._tokens.setdefault(key, str(uuid5(UUID(token), uuid4().hex)))


def best(found: Iterator[Observed]) -> Observed | None:
    """Return the one that has come furthest, of several always the same; None where there is none."""
    return min(found, key=lambda seen: (_ORDER.index(seen.condition), seen.identity), default=None)


def needed(resource: Resource, identities: Mapping[str, str], kind: str) -> str:
    """Return the identity of the first thing of this kind that the resource needs."""
    return all_needed(resource, identities, kind)[0]


def all_needed(resource: Resource, identities: Mapping[str, str], kind: str) -> list[str]:
    """Return the identities of all things of this kind that the resource needs, in its own order."""
    return [identities[key] for key in resource.needs if key.partition("/")[0] == kind]


def as_list(tags: Mapping[str, str], key: str = "Key", value: str = "Value") -> list[dict[str, str]]:
    """Return tags as most of AWS wants them; some services spell the two names in lower case."""
    return [{key: name, value: content} for name, content in tags.items()]


def as_map(
    tags: Sequence[Mapping[str, str]] | None, key: str = "Key", value: str = "Value"
) -> dict[str, str]:
    """Return tags, as most of AWS lists them, as a mapping."""
    return {tag[key]: tag[value] for tag in tags or ()}


def is_ours(tags: Mapping[str, str], cluster: str | None) -> bool:
    """Tell whether the tags say that it is of this cluster, or where that is None of any of ours."""
    return TAG_CLUSTER in tags if cluster is None else tags.get(TAG_CLUSTER) == cluster


def name_of(tags: Mapping[str, str], otherwise: str) -> str:
    """Return the resource's name within the cluster, which its key tag holds."""
    return tags.get(TAG_KEY, "").partition("/")[2] or otherwise


@contextmanager
def _unfinished() -> Iterator[None]:
    """Say of whatever fails here that the thing itself was made."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise errors.UnfinishedError(str(error)) from error
