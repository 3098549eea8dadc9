"""Policies that cloudrec's own is compared with: simple ones, a published one, and an oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.planning.spot.policy import Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.planning.spot.policy import Candidate, Held, Situation
    from cloudrec.planning.spot.simulate import Rules
    from cloudrec.planning.spot.traces import Trace

_HOUR_S = 3600.0


def stay(situation: Situation) -> Decision:
    """Hold or request the first candidate only, as one group of nodes does."""
    return _only(situation, situation.candidates[0].name, "the first candidate only")


def switch(situation: Situation) -> Decision:
    """Hold what the run has; without nodes, request the spot candidates in their order, one at a time."""
    held = _spot_nodes(situation)
    if held is not None:
        return _only(situation, held.name, "the nodes that it has")
    spot = [each.name for each in situation.candidates if each.is_spot]
    asked = next((name for name in spot if name in situation.requested), None)
    history = situation.history.get(asked) if asked else None
    if asked is None:
        return _only(situation, spot[0], "the first in the list")
    if history is not None and history.is_up is False and history.at >= situation.now - 1.0:
        return _only(situation, spot[(spot.index(asked) + 1) % len(spot)], "the next in the list")
    return _only(situation, asked, "the request is open")


def uniform_progress(situation: Situation) -> Decision:
    """Return the decision of "uniform progress" (Wu et al., "Can't Be Late", NSDI 2024), over all zones.

    Spot nodes are kept until the cloud takes them. Without them the run waits while it is ahead of the line
    of uniform progress, and uses on-demand nodes while it is behind it, until it is ahead by two changes.
    When the time left is just enough, it uses on-demand nodes to the end.
    """
    progress = situation.progress
    if progress.deadline is None:
        raise ValueError("uniform progress needs a deadline")
    on_demand = next(each for each in situation.candidates if not each.is_spot)
    time_left = progress.deadline - situation.now
    change_s = progress.restart_s + progress.save_s
    if time_left <= progress.left_s + 2 * change_s:
        return _only(situation, on_demand.name, "the time left is just enough")
    spot = _spot_nodes(situation)
    if spot is not None:
        return _only(situation, spot.name, "spot nodes are kept")
    expected = (situation.now - progress.begun) * progress.work_s / (progress.deadline - progress.begun)
    done = progress.work_s - progress.left_s
    is_paid = any(nodes.name == on_demand.name for nodes in situation.held)
    requests = frozenset(each.name for each in situation.candidates if each.is_spot)
    if done >= expected + (2 * change_s if is_paid else 0.0):
        return Decision(run_on=None, keep=frozenset(), request=requests, reason="ahead of the line: waiting")
    held = frozenset({on_demand.name}) if is_paid else frozenset[str]()
    ready = next((nodes for nodes in situation.held if nodes.name == on_demand.name and nodes.is_ready), None)
    return Decision(
        run_on=ready.name if ready else None,
        keep=held,
        request=frozenset({on_demand.name}) - held,
        reason="behind the line: on-demand nodes",
    )


def _spot_nodes(situation: Situation) -> Held | None:
    """Return the spot nodes to keep: those that train, or the first."""
    spot = {each.name for each in situation.candidates if each.is_spot}
    held = [nodes for nodes in situation.held if nodes.name in spot]
    return next((nodes for nodes in held if nodes.name == situation.runs_on), held[0] if held else None)


def _only(situation: Situation, name: str, reason: str) -> Decision:
    """Return the decision that holds one candidate, or requests it."""
    held = next((nodes for nodes in situation.held if nodes.name == name), None)
    return Decision(
        run_on=name if held is not None and held.is_ready else None,
        keep=frozenset({name}) if held is not None else frozenset(),
        request=frozenset() if held is not None else frozenset({name}),
        reason=reason,
    )


@dataclass(frozen=True, kw_only=True)
class Best:
    """What an oracle achieves.

    Attributes:
        useful_s: its work, in seconds.
        usd: its cost.
    """

    useful_s: float
    usd: float


def oracle(
    candidates: Sequence[Candidate],
    traces: Sequence[Trace],
    rules: Rules,
    *,
    start_s: float,
    limit_s: float,
    commit_s: float,
) -> Best:
    """Return what a policy achieves that knows every end: always the nodes that last longest.

    It saves once before each end. It pays each restart in full: it requests nodes when the earlier ones
    have ended.
    """
    by_name = {each.name: each for each in candidates}
    now, end, useful, usd = start_s, start_s + limit_s, 0.0, 0.0
    while now < end:
        up = [trace for trace in traces if trace.is_up(now)]
        if not up:
            now = min(trace.changes_at(now) for trace in traces)
            continue
        chosen = max(up, key=lambda trace: trace.changes_at(now))
        until = min(chosen.changes_at(now), end)
        save = commit_s if until < end else 0.0
        speed = by_name[chosen.name].speed
        useful += max(until - now - rules.restart_s - save, 0.0) * speed
        usd += (until - now) / _HOUR_S * by_name[chosen.name].hourly_usd
        now = until
    return Best(useful_s=useful, usd=usd)
