"""Which candidates a run holds and requests now: a pure function of what is known.

A candidate is one kind of nodes in one zone, spot or on-demand. A request for a candidate that is out of
stock costs nothing and stays open until it is fulfilled or withdrawn, as groups of nodes do on each cloud. So
a run without nodes keeps requests open for all spot candidates, and a run with a notice requests its
replacement at once, which then starts while the old nodes still train.

With a deadline the run must be ahead of a line: at each time, the share of the work that is done is not below
the share of the time that has passed ("uniform progress", Wu et al., "Can't Be Late", NSDI 2024). Behind the
line, or when the time left is just enough, the run uses on-demand nodes until spot nodes are ready.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec.planning.spot.history import CapacityHistory

# Moves to on-demand nodes that fit into the time left: one, and another if the first fails.
SPARE_RESTARTS = 2.0
_LIKELY = 0.6  # the chance from which on a candidate is requested alone
_FRESH_S = 120.0  # for which a refusal counts


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One kind of nodes in one zone.

    Attributes:
        name: its name, unique in a run; the pool's name on a cluster.
        hourly_usd: price of all nodes of the run, in USD an hour.
        is_spot: whether the cloud may take the nodes back.
        speed: samples per second, relative to the other candidates.
    """

    name: str
    hourly_usd: float
    is_spot: bool = True
    speed: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Held:
    """Nodes that the run has.

    Attributes:
        name: the candidate's name.
        since: when they started, in seconds since the epoch.
        is_ready: whether a run can start on them; False while they boot.
        ends_at: when the cloud takes them back, by its notice; None without a notice.
    """

    name: str
    since: float
    is_ready: bool
    ends_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class WorkProgress:
    """The run's progress and limits.

    Attributes:
        begun: when the run began, in seconds since the epoch.
        work_s: all work of the run, in seconds of a candidate with speed 1.
        left_s: the work that is left.
        restart_s: seconds from a request that is fulfilled to the next step.
        save_s: seconds that a checkpoint takes until it is committed.
        at_risk_s: the work that is not committed, in seconds.
        deadline: when the run must be finished, in seconds since the epoch; None without a deadline.
    """

    begun: float
    work_s: float
    left_s: float
    restart_s: float
    save_s: float = 0.0
    at_risk_s: float = 0.0
    deadline: float | None = None


@dataclass(frozen=True, kw_only=True)
class Situation:
    """All that the policy knows.

    Attributes:
        now: the time, in seconds since the epoch.
        candidates: the allowed candidates, the preferred ones first.
        history: what was seen of each candidate's capacity, by name.
        held: the nodes that the run has.
        requested: the candidates with an open request.
        runs_on: the candidate whose nodes train; None if no nodes do.
        progress: the run's progress.
    """

    now: float
    candidates: tuple[Candidate, ...]
    history: Mapping[str, CapacityHistory]
    held: tuple[Held, ...]
    requested: frozenset[str]
    runs_on: str | None
    progress: WorkProgress


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is to be true now.

    Attributes:
        run_on: the candidate whose nodes train; None to wait.
        keep: the candidates whose nodes are held; those of others are released.
        request: the candidates with an open request; other requests are withdrawn.
        reason: why, in one line for people.
    """

    run_on: str | None
    keep: frozenset[str]
    request: frozenset[str]
    reason: str


def decide(situation: Situation) -> Decision:
    """Return what the run holds, requests and runs on now."""
    names = {candidate.name for candidate in situation.candidates}
    view = _View(
        situation=situation,
        by_name={candidate.name: candidate for candidate in situation.candidates},
        held={nodes.name: nodes for nodes in situation.held if nodes.name in names},
    )
    urgency = _urgency(view)
    if urgency == "last":
        return _on_demand_only(view)
    ready = _ready_spot(view)
    if ready is not None:
        return Decision(
            run_on=ready, keep=frozenset({ready}), request=frozenset(), reason=f"{ready} has the nodes"
        )
    return _until_spot_is_ready(view, is_behind=urgency == "behind")


@dataclass(frozen=True, kw_only=True)
class _View:
    """A situation, with its candidates and its nodes by name."""

    situation: Situation
    by_name: Mapping[str, Candidate]
    held: Mapping[str, Held]

    @property
    def paid(self) -> Held | None:
        """The on-demand nodes that the run has."""
        return next((nodes for name, nodes in self.held.items() if not self.by_name[name].is_spot), None)

    @property
    def on_demand(self) -> str | None:
        """The on-demand candidate to use: the one that the run has, or the one with the most work per USD."""
        if self.paid is not None:
            return self.paid.name
        found = [each for each in self.situation.candidates if not each.is_spot]
        return min(found, key=lambda each: each.hourly_usd / each.speed).name if found else None

    @property
    def running(self) -> Held | None:
        """The nodes that train."""
        return self.held.get(self.situation.runs_on or "")


_Urgency = Literal["none", "behind", "last"]


def _urgency(view: _View) -> _Urgency:
    """Return whether the run is behind its line, or the time left is just enough for on-demand nodes."""
    progress = view.situation.progress
    if progress.deadline is None or view.on_demand is None:
        return "none"
    needed_s = progress.left_s / view.by_name[view.on_demand].speed
    time_left_s = progress.deadline - view.situation.now
    # An end without a notice loses what is not committed, and then a restart. The spare is one that fails.
    move_s = progress.restart_s + progress.save_s
    spare_s = SPARE_RESTARTS * move_s + progress.at_risk_s
    is_paid = view.paid is not None
    if time_left_s - needed_s <= spare_s + (move_s if is_paid else 0.0):
        return "last"
    # The line of uniform progress: work left / time left is not above what it was at the beginning. Nodes
    # that are paid for stay until the run is ahead of the line by two moves: it does not move to and fro.
    planned = progress.work_s / (progress.deadline - progress.begun)
    ahead_s = time_left_s * planned - progress.left_s
    return "behind" if ahead_s < (2 * move_s if is_paid else 0.0) else "none"


def _on_demand_only(view: _View) -> Decision:
    """Use on-demand nodes to the end; what trains now continues until they are ready."""
    name = view.on_demand or ""
    paid, running = view.paid, view.running
    is_ready = paid is not None and paid.is_ready
    run_on = name if is_ready else running.name if running is not None else None
    keep = {nodes for nodes in (run_on, paid.name if paid is not None else None) if nodes is not None}
    return Decision(
        run_on=run_on,
        keep=frozenset(keep),
        request=frozenset() if paid is not None else frozenset({name}),
        reason="the time left is just enough: on-demand nodes to the end",
    )


def _ready_spot(view: _View) -> str | None:
    """Return the spot nodes without a notice to run on: those that train, else the best that are ready."""
    ready = {
        name
        for name, nodes in view.held.items()
        if view.by_name[name].is_spot and nodes.is_ready and nodes.ends_at is None
    }
    # A move to a better candidate would cost a restart.
    return view.situation.runs_on if view.situation.runs_on in ready else _best(ready, view.situation)


def _until_spot_is_ready(view: _View, *, is_behind: bool) -> Decision:
    """Decide while no spot nodes without a notice are ready."""
    situation, running, paid = view.situation, view.running, view.paid
    booting = _best(
        [n.name for n in view.held.values() if view.by_name[n.name].is_spot and n.ends_at is None], situation
    )
    keep, request = set[str](), set[str]()
    if booting is not None:
        keep.add(booting)
    else:
        ending = {nodes.name for nodes in view.held.values() if nodes.ends_at is not None}
        request |= _spot_requests(situation, ending)
    if paid is not None and (is_behind or booting is not None):
        keep.add(paid.name)
    elif paid is None and is_behind and booting is None and view.on_demand is not None:
        request.add(view.on_demand)
    if paid is not None and paid.name in keep and paid.is_ready:
        run_on: str | None = paid.name
    else:
        run_on = running.name if running is not None and running.ends_at is not None else None
    if run_on is not None:
        keep.add(run_on)
    return Decision(
        run_on=run_on,
        keep=frozenset(keep),
        request=frozenset(request),
        reason=_reason(run_on, booting, is_behind=is_behind, is_refused=request <= _refused(situation)),
    )


def _spot_requests(situation: Situation, ending: set[str]) -> set[str]:
    """Return the spot candidates to request: the best one first, and all once it has not come.

    An open request costs nothing until it is fulfilled. Two that are fulfilled cost the start of both, so a
    candidate that most probably has nodes is requested alone.
    """
    fitting = [each for each in situation.candidates if each.is_spot and each.name not in ending]
    if not fitting:
        return set()
    best = max(fitting, key=lambda each: _score(each, situation))
    chance = situation.history[best.name].chance(situation.now) if best.name in situation.history else 0.5
    if chance >= _LIKELY and best.name not in _refused(situation):
        return {best.name}
    return {each.name for each in fitting}


def _refused(situation: Situation) -> set[str]:
    """Return the candidates that were out of stock when they were last seen, a minute ago or less."""
    return {
        name
        for name, history in situation.history.items()
        if history.is_up is False and situation.now - history.at <= _FRESH_S
    }


def _best(names: Iterable[str], situation: Situation) -> str | None:
    """Return the name with the highest score; None of none."""
    by_name = {candidate.name: candidate for candidate in situation.candidates}
    return max(names, key=lambda name: _score(by_name[name], situation), default=None)


def _score(candidate: Candidate, situation: Situation) -> float:
    """Return the work per USD that a request for a candidate promises, given its chance and its up-times."""
    history = situation.history.get(candidate.name)
    chance = history.chance(situation.now) if history is not None else 0.5
    lasts_s = history.lasts_s if history is not None else math.inf
    useful_s = max(min(lasts_s, situation.progress.left_s) - situation.progress.restart_s, 1.0)
    return (
        chance * useful_s / (useful_s + situation.progress.restart_s) * candidate.speed / candidate.hourly_usd
    )


def _reason(run_on: str | None, booting: str | None, *, is_behind: bool, is_refused: bool) -> str:
    if run_on is not None and booting is not None:
        return f"{run_on} trains until {booting} is ready"
    if booting is not None:
        return f"{booting} is starting"
    if is_behind:
        return "behind the line of its deadline: on-demand nodes until spot nodes are ready"
    if run_on is not None:
        return f"{run_on} is being taken back: its replacement is requested"
    return "no candidate has spot capacity" if is_refused else "spot nodes are requested"
