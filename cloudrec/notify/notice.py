"""A notification: its kind, its text, and the JSON document that a webhook receives."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = 1
_ID = 24  # hexadecimal digits
LONGEST = 1000  # characters of a text: a cause may have the last lines of a log
TEST = "test"


@dataclass(frozen=True, kw_only=True)
class Notification:
    """What happened.

    Attributes:
        key: names the event: the same event has the same key after a restart of what sends it.
        event: its kind, such as finished; the kinds are those of `notify.events`, and test.
        at: when it was seen, in seconds since the epoch.
        text: what happened, in one or two sentences.
        cluster: the cluster's name.
        run: the run's name; empty if it is about no run.
        details: numbers and names for programs.
    """

    key: str
    event: str
    at: float
    text: str
    cluster: str = ""
    run: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The id that receivers see; a repeated delivery has the same one."""
        name = f"{self.cluster}\n{self.run}\n{self.key}"
        return hashlib.sha256(name.encode()).hexdigest()[:_ID]

    @property
    def title(self) -> str:
        """One line: the kind, the run and the cluster."""
        about = [f"run {self.run}"] if self.run else []
        about += [f"cluster {self.cluster}"] if self.cluster else []
        return f"cloudrec: {self.event}: {', '.join(about) or 'a test'}"

    def document(self) -> dict[str, Any]:
        """Return the JSON object that a webhook receives; docs/notifications.md is its schema."""
        return {
            "schema": SCHEMA,
            "id": self.id,
            "event": self.event,
            "time": datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds"),
            "cluster": self.cluster or None,
            "run": self.run or None,
            "text": self.text[:LONGEST],
            "details": dict(self.details),
        }

    def to_record(self) -> dict[str, Any]:
        """Return what an outbox keeps of it."""
        return {**asdict(self), "text": self.text[:LONGEST]}


@dataclass(frozen=True, kw_only=True)
class UnusableChannel:
    """A way out that cannot be used.

    Attributes:
        channel: webhook, slack or email.
        why: the reason.
    """

    channel: str
    why: str
