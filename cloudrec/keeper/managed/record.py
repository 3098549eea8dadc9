"""What the keeper of a managed cluster remembers between two rounds, in the guard's ConfigMap."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from cloudrec.planning.spot.history import CapacityHistory
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping

MANAGED = "managed.json"  # the key of the guard's ConfigMap
MOST_EVENTS = 100
_SAME_S, _NEWEST = 600.0, 20  # a problem that repeats is one event in ten minutes


@dataclass(frozen=True, kw_only=True)
class KeeperEvent:
    """What the keeper did, or saw.

    Attributes:
        at: the time, in seconds since the epoch.
        run: the run that it concerns; empty for none.
        text: what and why, in one line.
    """

    at: float
    run: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ManagedRecord:
    """The keeper's record.

    Attributes:
        at: the time of the last round, in seconds since the epoch; 0 before the first.
        run: the run that has the nodes; empty for none.
        queue: the runs that wait for it to end, in the order of their turn.
        asked: the nodes that the keeper asked for, by pool; absent pools have none.
        asked_at: when that number was last changed, by pool.
        complete: since when a pool has had all nodes, by pool.
        broken: since when a pool has lost a part of its nodes, by pool.
        history: what was seen of each pool's capacity.
        worked_s: the seconds for which all pods of the run have run.
        worked_at: the last round at which they ran; 0 if they did not run at the last round.
        free_since: since when no run needs nodes; 0 if one does.
        reason: the last decision's reason.
        events: the newest events, the oldest first.
    """

    at: float = 0.0
    run: str = ""
    queue: tuple[str, ...] = ()
    asked: Mapping[str, int] = field(default_factory=dict)
    asked_at: Mapping[str, float] = field(default_factory=dict)
    complete: Mapping[str, float] = field(default_factory=dict)
    broken: Mapping[str, float] = field(default_factory=dict)
    history: Mapping[str, CapacityHistory] = field(default_factory=dict)
    worked_s: float = 0.0
    worked_at: float = 0.0
    free_since: float = 0.0
    reason: str = ""
    events: tuple[KeeperEvent, ...] = ()

    @classmethod
    def of(cls, text: str) -> ManagedRecord:
        """Return the record from the ConfigMap's text; an empty one if it is invalid or absent."""
        try:
            known = safe_object(text)
            return cls(
                **{
                    **known,
                    "queue": tuple(str(each) for each in known["queue"]),
                    "history": {pool: CapacityHistory(**seen) for pool, seen in known["history"].items()},
                    "events": tuple(KeeperEvent(**each) for each in known["events"]),
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def to_json(self) -> str:
        """Return the record as the ConfigMap has it."""
        return json.dumps(asdict(self))

    def noting_once(self, text: str) -> ManagedRecord:
        """Return the record with another event, unless it has this one of the last minutes already."""
        is_known = any(each.text == text and self.at - each.at < _SAME_S for each in self.events[-_NEWEST:])
        return self if is_known else self.noting(text)

    def noting(self, text: str) -> ManagedRecord:
        """Return the record with another event."""
        made = KeeperEvent(at=self.at, run=self.run, text=text)
        return replace(self, events=(*self.events, made)[-MOST_EVENTS:])
