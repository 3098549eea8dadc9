"""What the keeper of a managed cluster remembers between two rounds, in the guard's ConfigMap."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from cloudrec.errors import DataError
from cloudrec.launchers.kubernetes.turns import Turn  # noqa: TC001 - record_of reads the annotations
from cloudrec.planning.spot.history import CapacityHistory  # noqa: TC001 - record_of reads the annotations
from cloudrec_contract.safe_json import record_of, safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping

MANAGED = "managed.json"  # the key of the guard's ConfigMap
MOST_EVENTS = 100
TAKEN_BACK = "the cloud takes nodes back"  # the end of an event of a pool
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
class KeptRun:
    """A run that has its turn.

    Attributes:
        worked_s: the seconds for which all pods of the run have run.
        worked_at: the last round at which they ran; 0 if they did not run at the last round.
        halted_at: the round at which they ran no more; 0 if they have always run since their start.
        pod: the uid of the pod whose steps were seen last; empty before the first step.
        step: the steps that are done; None if the run does not print them.
        steps: all steps of the run; None if it does not print them.
        saved: the step of the newest checkpoint; None if it is not known.
        save_s: the seconds in which that was written; None if it is not known.
        restart_s: the seconds from complete nodes to the first steps, as measured last; None before that.
        reason: the last decision's reason.
        without_since: since when the run has had no nodes; 0 if it has some.
        leaves: whether it is suspended, to be offered to another cluster once its pods have ended.
    """

    worked_s: float = 0.0
    worked_at: float = 0.0
    halted_at: float = 0.0
    pod: str = ""
    step: int | None = None
    steps: int | None = None
    saved: int | None = None
    save_s: float | None = None
    restart_s: float | None = None
    reason: str = ""
    without_since: float = 0.0
    leaves: bool = False

    @property
    def sure_step(self) -> int | None:
        """The step from which another cluster would continue: of the newest checkpoint, if it is known."""
        return self.step if self.saved is None else self.saved

    @property
    def done(self) -> float | None:
        """The part of the steps that is done, from 0 to 1; None if the run does not print its steps."""
        if self.step is None or not self.steps:
            return None
        # Without pods, what is not in a checkpoint is done again.
        step = self.step if self.worked_at or self.saved is None else min(self.step, self.saved)
        return step / self.steps


@dataclass(frozen=True, kw_only=True)
class HoldOff:
    """A time for which a pool is not requested, because its machines did not become ready nodes.

    Attributes:
        until: its end, in seconds since the epoch.
        length_s: its length; the next one of the pool is twice as long.
    """

    until: float
    length_s: float


@dataclass(frozen=True, kw_only=True)
class SilentRun:
    """A run of another cluster whose keeper has not reported for some time.

    Attributes:
        number: the number of its newest turn.
        files: the SHA-256 of the names and sizes of the files that its pods have written.
        since: since when these files have not changed, in seconds since the epoch.
    """

    number: int
    files: str
    since: float


@dataclass(frozen=True, kw_only=True)
class ManagedRecord:
    """The keeper's record.

    Attributes:
        at: the time of the last round, in seconds since the epoch; 0 before the first.
        runs: the runs that have their turn, in the order of their submission.
        queue: the runs that wait for theirs, in the order of their turn.
        owner: the run for which the nodes of a pool are, by pool; absent for none.
        asked: the nodes that the keeper asked for, by pool; absent pools have none.
        asked_at: when the cloud was last asked for that number, by pool.
        wanted_at: since when its run has wanted a pool's nodes, by pool.
        complete: since when a pool has had all nodes, by pool.
        broken: since when a pool has lost a part of its nodes, by pool.
        unready: since when a pool's machines are no ready nodes without a problem in the cloud, by pool.
        held_off: the pools that are not requested for a time, or were not before.
        history: what was seen of each pool's capacity.
        turns: the newest turn of each run of several clusters.
        silent: those of these runs that another cluster has, whose keeper has not reported for some time.
        free_since: since when no run needs nodes; 0 if one does.
        events: the newest events, the oldest first.
    """

    at: float = 0.0
    runs: Mapping[str, KeptRun] = field(default_factory=dict)
    queue: tuple[str, ...] = ()
    owner: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, int] = field(default_factory=dict)
    asked_at: Mapping[str, float] = field(default_factory=dict)
    wanted_at: Mapping[str, float] = field(default_factory=dict)
    complete: Mapping[str, float] = field(default_factory=dict)
    broken: Mapping[str, float] = field(default_factory=dict)
    unready: Mapping[str, float] = field(default_factory=dict)
    held_off: Mapping[str, HoldOff] = field(default_factory=dict)
    history: Mapping[str, CapacityHistory] = field(default_factory=dict)
    turns: Mapping[str, Turn] = field(default_factory=dict)
    silent: Mapping[str, SilentRun] = field(default_factory=dict)
    free_since: float = 0.0
    events: tuple[KeeperEvent, ...] = ()

    @classmethod
    def of(cls, text: str) -> ManagedRecord:
        """Return the record from the ConfigMap's text; an empty one if it is invalid or absent."""
        try:
            known = safe_object(text)
            found = record_of(cls, known)
            for turn in found.turns.values():
                turn.check()
        except (DataError, ValueError):
            return cls()
        return found

    def to_json(self) -> str:
        """Return the record as the ConfigMap has it."""
        return json.dumps(asdict(self))

    def ended(self, at: float) -> ManagedRecord:
        """Return the record after the cluster's end: no run has nodes, and what was asked for is void."""
        if not (self.runs or self.queue or self.asked):
            return self
        rest = ManagedRecord(
            at=at, history=self.history, held_off=self.held_off, turns=self.turns, events=self.events
        )
        return rest.noting("the cluster's end has come: its nodes are released")

    def noting_once(self, text: str, *, run: str = "") -> ManagedRecord:
        """Return the record with another event, unless it has this one of the last minutes already."""
        is_known = any(each.text == text and self.at - each.at < _SAME_S for each in self.events[-_NEWEST:])
        return self if is_known else self.noting(text, run=run)

    def noting(self, text: str, *, run: str = "") -> ManagedRecord:
        """Return the record with another event, of a run or of none."""
        made = KeeperEvent(at=self.at, run=run, text=text)
        return replace(self, events=(*self.events, made)[-MOST_EVENTS:])
