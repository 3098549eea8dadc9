"""A training run on nodes that end: what it has done and what is committed, as the trainer does it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec_contract.interval import Hazard, SaveCosts, Uptime, best_interval, plan_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, kw_only=True)
class SaveTimes:
    """What a checkpoint costs.

    Attributes:
        stall_s: seconds for which the steps stop.
        commit_s: seconds from its begin until it counts.
        slowdown: of the steps between the two; 0.1 for a tenth.
    """

    stall_s: float
    commit_s: float
    slowdown: float = 0.0


def automatic(costs: SaveCosts, past: Sequence[Uptime]) -> Callable[[float], float]:
    """Return the intervals of `checkpoint_interval: auto`."""
    hazard = Hazard(past)
    return lambda age_s: best_interval(costs, hazard, age_s)


def constant(seconds: float) -> Callable[[SaveCosts, Sequence[Uptime]], Callable[[float], float]]:
    """Return intervals of a constant length."""
    return lambda _costs, _past: lambda _age_s: seconds


@dataclass(kw_only=True)
class Training:
    """The work of one run over all its attempts. Times are in seconds; work in seconds at speed 1.

    Attributes:
        saver: what a checkpoint costs.
        intervals: when to save.
        reads_notices: whether it saves at a notice.
        kept: the work that is committed.
        past: the up-times of earlier attempts.
        costs: of the saves so far.
    """

    saver: SaveTimes
    intervals: Callable[[SaveCosts, Sequence[Uptime]], Callable[[float], float]] = automatic
    reads_notices: bool = True
    kept: float = 0.0
    past: list[Uptime] = field(default_factory=list)
    costs: SaveCosts = field(default_factory=SaveCosts)
    _work: float = 0.0
    _now: float = 0.0
    _began: float = 0.0
    _speed: float = 1.0
    _next_cut: float = math.inf
    _busy_until: float = 0.0  # the newest save commits at this time
    _pending: float | None = None  # the work that the newest save holds, until it is committed
    _stops_at: float = math.inf  # of the last save after a notice: when the steps end
    _interval: Callable[[float], float] = field(default=lambda _age: math.inf)
    is_running: bool = False

    @property
    def work(self) -> float:
        """The work done by this attempt and those before, committed or not."""
        return self._work

    @property
    def has_stopped(self) -> bool:
        """Whether the steps have ended because of a notice."""
        return self._now >= self._stops_at

    def start(self, at: float, speed: float) -> None:
        """Begin an attempt from the last commit; its first step is at this time."""
        self.is_running = True
        self._work, self._now, self._began, self._speed = self.kept, at, at, speed
        self._pending, self._busy_until, self._stops_at = None, at, math.inf
        self._interval = self.intervals(self.costs, tuple(self.past))
        self._plan(at)

    def advance(self, to: float) -> None:
        """Continue up to a time."""
        while self.is_running and self._now < to:
            cut = max(self._next_cut, self._busy_until)
            until = min(to, cut, self._stops_at)
            self._step(until)
            if self._now >= self._stops_at:
                self._now = max(self._now, to)
                self._look()
                return
            if until == cut and cut < to:
                self._cut(cut)
        self._look()

    def finishes_at(self, work: float, limit: float) -> float:
        """Return about when this much work is done if nothing intervenes, at most the limit."""
        if not self.is_running:
            return limit
        return min(self._now + max(work - self._work, 0.0) / self._speed + 1e-6, limit)

    def notice(self, ends_at: float) -> None:
        """Use the time that a notice leaves: train on, and save once before the end."""
        if not self.reads_notices or not self.is_running:
            return
        plan = plan_stop(
            ends_at - self._now,
            self.costs,
            committed=self.kept > 0 or self._pending is not None,
            decided_elsewhere=True,
        )
        stops_at = self._now
        if plan.when == "later":
            # The trainer asks again between two steps: find the second at which the answer changes.
            while (
                plan_stop(ends_at - stops_at, self.costs, committed=True, decided_elsewhere=True).when
                == "later"
            ):
                stops_at += 1.0
        self._stops_at = stops_at

    def stop(self, at: float) -> float:
        """Save and end the attempt; return when the checkpoint is committed."""
        self.advance(at)
        done = max(at, self._busy_until) + self.saver.commit_s
        self.kept, self.is_running = self._work, False
        self.past.append(Uptime(at - self._began, lost=False))
        return done

    def end(self, at: float) -> None:
        """End the attempt, since the nodes are gone; the save after a notice counts if there was time."""
        self.advance(at)
        saved_in_time = False
        if self._stops_at < math.inf:
            begun = max(self._stops_at, self._busy_until if self._pending is not None else 0.0)
            saved_in_time = begun + self.saver.commit_s <= at
        if saved_in_time:
            self.kept = self._work
        self.is_running = False
        self.past.append(Uptime(at - self._began, lost=not saved_in_time))

    def _step(self, until: float) -> None:
        busy = max(min(until, self._busy_until) - self._now, 0.0) if self._pending is not None else 0.0
        self._work += (max(until - self._now, 0.0) - self.saver.slowdown * busy) * self._speed
        self._now = max(until, self._now)
        self._look()

    def _look(self) -> None:
        """Count the newest save if it is committed by now."""
        if self._pending is not None and self._busy_until <= self._now:
            self.kept, self._pending = self._pending, None

    def _cut(self, at: float) -> None:
        """Begin a save."""
        self._pending, self._busy_until = self._work, at + self.saver.commit_s
        self._now = at + self.saver.stall_s
        self.costs.add(self.saver.stall_s, self.saver.commit_s)
        self._look()
        self._plan(at)

    def _plan(self, at: float) -> None:
        self._next_cut = at + self._interval(at - self._began)
