"""Play a policy on traces of capacity: what a run achieves, what it costs, and whether it meets its deadline.

Time advances from one event to the next: an answer to a request, nodes that are ready, a notice, an end, a
change of a trace. Nodes cost money from the moment at which the cloud starts them until they are released or
taken back. An open request is tried again by the cloud every `retry_s`.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.planning.spot.history import CapacityHistory
from cloudrec.planning.spot.policy import Held, Situation, WorkProgress, decide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.planning.spot.policy import Candidate, Decision
    from cloudrec.planning.spot.traces import Trace
    from cloudrec.planning.spot.training import Training

_HOUR_S = 3600.0
_LOOK_S = 300.0  # the policy is asked at least this often


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How the cloud behaves, and what a restart takes.

    Attributes:
        restart_s: seconds from a request that is fulfilled to the next step.
        boot_share: the part of it until the nodes are ready; then the trainer starts and reads its state.
        notice_s: seconds from a notice to the end of spot nodes.
        announced: the share of ends that have a notice.
        answer_s: seconds from a request to the cloud's first try.
        retry_s: how often the cloud tries an open request.
    """

    restart_s: float = 300.0
    boot_share: float = 0.6
    notice_s: float = 120.0
    announced: float = 0.9
    answer_s: float = 15.0
    retry_s: float = 60.0

    @property
    def boot_s(self) -> float:
        """Seconds from a request that is fulfilled until its nodes are ready."""
        return self.restart_s * self.boot_share

    @property
    def load_s(self) -> float:
        """Seconds from nodes that are ready to the next step."""
        return self.restart_s - self.boot_s


@dataclass(frozen=True, kw_only=True)
class SpotOutcome:
    """The result of one run.

    Attributes:
        useful_s: the work that is kept, in seconds at speed 1.
        wall_s: seconds from its begin to its end.
        usd: the cost of its nodes.
        is_met: whether all work was done in time.
        moves: the number of attempts.
        waited_s: seconds without nodes that were ready.
        events: what happened and why, with the seconds since the begin.
    """

    useful_s: float
    wall_s: float
    usd: float
    is_met: bool
    moves: int
    waited_s: float
    events: tuple[tuple[float, str], ...] = ()

    @property
    def goodput(self) -> float:
        """Work per second."""
        return self.useful_s / self.wall_s if self.wall_s else 0.0

    @property
    def usd_per_hour(self) -> float | None:
        """USD for an hour of work; None without any work."""
        return self.usd / self.useful_s * _HOUR_S if self.useful_s else None


@dataclass(kw_only=True)
class _Nodes:
    candidate: Candidate
    since: float
    ready_at: float
    ends_at: float
    notice_at: float
    has_notice: bool = False


@dataclass(kw_only=True)
class Play:
    """One run on traces.

    Attributes:
        candidates: the candidates; those of spot have a trace of their name.
        traces: the capacity of each spot candidate; on-demand nodes can always be had.
        training: the run's work and saves.
        rules: how the cloud behaves.
        start_s: the time in the traces at which the run begins.
        work_s: the work to do; infinite for a run that only ends with its time.
        limit_s: the seconds after which the run ends, done or not.
        deadline_s: the seconds in which it must be done; None without a deadline.
        policy: the policy.
        seed: of what is random: which ends have a notice, and the phase of retries.
    """

    candidates: Sequence[Candidate]
    traces: Mapping[str, Trace]
    training: Training
    rules: Rules
    start_s: float
    limit_s: float
    work_s: float = math.inf
    deadline_s: float | None = None
    policy: Callable[[Situation], Decision] = decide
    seed: int = 0
    _now: float = 0.0
    _usd: float = 0.0
    _waited: float = 0.0
    _moves: int = 0
    _runs_on: str | None = None
    _starts_at: float = math.inf  # the next step of an attempt that loads
    _held: dict[str, _Nodes] = field(default_factory=dict)
    _requests: dict[str, float] = field(default_factory=dict)  # the next try of each
    _history: dict[str, CapacityHistory] = field(default_factory=dict)
    _events: list[tuple[float, str]] = field(default_factory=list)
    _reason: str = ""
    _chance: random.Random = field(default_factory=random.Random)

    def run(self) -> SpotOutcome:
        """Play the run to its end."""
        self._chance = random.Random(self.seed)  # noqa: S311 - a simulation
        self._now = self.start_s
        end = self.start_s + self.limit_s
        while self._now < end and not self._is_done():
            self._act(self.policy(self._situation()))
            self._pass(min(self._next(), end))
            self._happen()
        if self.training.is_running:
            self.training.advance(self._now)
            # At the end of the time all work counts, saved or not.
            self.training.kept = max(self.training.kept, min(self.training.work, self.work_s))
        wall = self._now - self.start_s
        return SpotOutcome(
            useful_s=self.training.kept,
            wall_s=wall,
            usd=self._usd,
            is_met=self._is_done() and (self.deadline_s is None or wall <= self.deadline_s + 1e-6),
            moves=self._moves,
            waited_s=self._waited,
            events=tuple(self._events),
        )

    def _is_done(self) -> bool:
        return self.training.is_running and self.training.work >= self.work_s - 1e-3

    def _situation(self) -> Situation:
        done = max(self.training.kept, self.training.work if self.training.is_running else 0.0)
        return Situation(
            now=self._now,
            candidates=tuple(self.candidates),
            history=dict(self._history),
            held=tuple(
                Held(
                    name=name,
                    since=nodes.since,
                    is_ready=nodes.ready_at <= self._now,
                    ends_at=nodes.ends_at if nodes.has_notice else None,
                )
                for name, nodes in self._held.items()
            ),
            requested=frozenset(self._requests),
            runs_on=self._runs_on,
            progress=WorkProgress(
                begun=self.start_s,
                work_s=self.work_s,
                left_s=self.work_s - done,
                restart_s=self.rules.restart_s,
                save_s=self.training.saver.commit_s,
                at_risk_s=done - self.training.kept,
                deadline=None if self.deadline_s is None else self.start_s + self.deadline_s,
            ),
        )

    def _act(self, decision: Decision) -> None:
        """Carry out a decision."""
        if decision.reason != self._reason:
            self._reason = decision.reason
            self._events.append((self._now - self.start_s, decision.reason))
        for name in list(self._requests):
            if name not in decision.request:
                del self._requests[name]
        for name in sorted(decision.request):
            if name not in self._requests and name not in self._held:
                self._requests[name] = self._now + self.rules.answer_s
        for name in list(self._held):
            if name not in decision.keep and name != decision.run_on:
                if name == self._runs_on:
                    self._leave()
                else:
                    self._see(name, is_up=True)
                    del self._held[name]
        if decision.run_on != self._runs_on and decision.run_on in self._held:
            self._move(decision.run_on)

    def _leave(self) -> None:
        """Save and give up the nodes that train; they are released when the checkpoint is committed."""
        name = self._runs_on
        if name is None:
            return
        done = self.training.stop(self._now) if self.training.is_running else self._now
        nodes = self._held.pop(name)
        self._see(name, is_up=True)
        self._usd += (min(done, nodes.ends_at) - self._now) / _HOUR_S * nodes.candidate.hourly_usd
        self._runs_on, self._starts_at = None, done

    def _move(self, name: str) -> None:
        """Start the run on nodes that are ready."""
        nodes = self._held[name]
        if nodes.ready_at > self._now:
            return
        committed = self._now
        if self._runs_on is not None:
            self._leave()
            committed = self._starts_at
        self._runs_on, self._starts_at = name, max(committed, self._now) + self.rules.load_s
        self._moves += 1

    def _next(self) -> float:
        """Return the time of the next event."""
        times = [self._now + _LOOK_S, *self._requests.values()]
        for nodes in self._held.values():
            times += [nodes.ready_at, nodes.ends_at]
            if not nodes.has_notice:
                times.append(nodes.notice_at)
        if self._runs_on is not None:
            times.append(self._starts_at)
            if self.training.is_running:
                times.append(self.training.finishes_at(self.work_s, math.inf))
        return min((time for time in times if time > self._now), default=self._now + _LOOK_S)

    def _pass(self, to: float) -> None:
        """Let time pass: nodes cost money, and the run trains."""
        hours = (to - self._now) / _HOUR_S
        self._usd += sum(nodes.candidate.hourly_usd for nodes in self._held.values()) * hours
        if self._runs_on is None:
            self._waited += to - self._now
        elif self.training.is_running:
            self.training.advance(to)
        self._now = to

    def _happen(self) -> None:
        """Carry out what is due now."""
        if self._runs_on is not None and not self.training.is_running and self._starts_at <= self._now:
            nodes = self._held[self._runs_on]
            self.training.start(self._now, nodes.candidate.speed)
            self._starts_at = math.inf
            if nodes.has_notice:
                self.training.notice(nodes.ends_at)
        for name, nodes in list(self._held.items()):
            if not nodes.has_notice and nodes.notice_at <= self._now < nodes.ends_at:
                nodes.has_notice = True
                self._events.append((self._now - self.start_s, f"{name}: a notice"))
                if name == self._runs_on:
                    self.training.notice(nodes.ends_at)
            if nodes.ends_at <= self._now:
                self._end(name)
        for name, due in list(self._requests.items()):
            if due <= self._now:
                self._try(name)

    def _end(self, name: str) -> None:
        """The cloud takes nodes back."""
        if name == self._runs_on:
            if self.training.is_running:
                self.training.end(self._now)
            self._runs_on, self._starts_at = None, math.inf
        del self._held[name]
        self._see(name, is_up=False)
        self._events.append((self._now - self.start_s, f"{name}: the nodes were taken back"))

    def _try(self, name: str) -> None:
        """The cloud tries an open request."""
        candidate = next(each for each in self.candidates if each.name == name)
        trace = self.traces.get(name) if candidate.is_spot else None
        if trace is not None and not trace.is_up(self._now):
            self._see(name, is_up=False)
            self._requests[name] = self._now + self.rules.retry_s
            return
        del self._requests[name]
        ends_at = trace.changes_at(self._now) if trace is not None else math.inf
        if trace is not None and ends_at >= trace.length_s:
            ends_at = math.inf
        announced = self._chance.random() < self.rules.announced
        self._see(name, is_up=True)
        self._held[name] = _Nodes(
            candidate=candidate,
            since=self._now,
            ready_at=self._now + self.rules.boot_s,
            ends_at=ends_at,
            notice_at=max(ends_at - self.rules.notice_s, self._now) if announced else math.inf,
        )

    def _see(self, name: str, *, is_up: bool) -> None:
        before = self._history.get(name, CapacityHistory())
        was_watched = name in self._held or name in self._requests
        self._history[name] = before.seen(self._now, is_up=is_up, was_watched=was_watched)
