"""Finds what happened since the last round: runs that ended, moved or lost nodes, money, the end.

Pure functions over what a round has seen. Each notice has a key by which a later round knows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cloudrec.notify.notice import Notification
from cloudrec.notify.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.launchers.kubernetes.turns import Turn

SHARES = (50, 80, 100)  # percent of a budget
_SAME_S = 600.0  # nodes of one preemption go one after the other: they are one notice
_MOST_FACTS = 600
_AGAIN = 2.0  # an end that moves away by this many times the notice is announced again
_POOL, _MOVES, _TAKEN, _TAKEN_AT = "pool:", "moves:", "preemptions:", "preempted-at:"


@dataclass(frozen=True, kw_only=True)
class EndedRun:
    """A run that has finished or failed.

    Attributes:
        run: its name.
        uid: the uid of its object: a resumed run has another one.
        has_failed: whether it failed.
        cause: why; empty if that is not known.
    """

    run: str
    uid: str
    has_failed: bool
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class TakenNode:
    """A node that the cloud took from a run.

    Attributes:
        run: the run.
        key: names the loss: the uid of the pod that ended with it, or the time at which it was seen.
        text: what was seen.
    """

    run: str
    key: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ClusterSight:
    """What one round has seen.

    Attributes:
        now: the time, in seconds since the epoch.
        cluster: the cluster's name.
        ends: the runs that have finished or failed.
        taken: the nodes that the cloud took from runs.
        pools: the pool that each run trains on.
        received: the runs that came from a cluster of another region, each with its turn.
        spent_usd: what the cluster has cost; None if unknown.
        budget_usd: the most that it may cost; None without a limit.
        end: its end, in seconds since the epoch; None without one.
        near_s: how long before it `end-near` is sent.
    """

    now: float
    cluster: str
    ends: Sequence[EndedRun] = ()
    taken: Sequence[TakenNode] = ()
    pools: Mapping[str, str]
    received: Mapping[str, Turn] = field(default_factory=dict)
    spent_usd: float | None = None
    budget_usd: float | None = None
    end: float | None = None
    near_s: float = 1800.0


def detect(outbox: Outbox | None, sight: ClusterSight) -> tuple[Outbox, list[Notification]]:
    """Return the outbox with what this round has seen, and what is new.

    Without an outbox it is the first look: what has happened before is not sent.
    """
    is_first = outbox is None
    outbox = outbox or Outbox()
    if is_first:
        outbox = outbox.knowing(_end_key(end) for end in sight.ends)
        outbox = outbox.knowing(f"taken:{each.key}" for each in sight.taken)
        outbox = outbox.knowing(notice.key for notice in _received(sight))
    notices = [notice for notice in (*_received(sight), *_ends(sight)) if notice.key not in outbox.known]
    outbox, moved = _moved(outbox, sight)
    outbox, taken = _preempted(outbox, sight)
    outbox, money = _money(outbox, sight)
    outbox, near = _near(outbox, sight)
    return outbox, [*taken, *moved, *notices, *money, *near]


def count_of(outbox: Outbox) -> dict[str, dict[str, float]]:
    """Return how often each run was moved, and lost nodes, since the keeper watches it."""
    found: dict[str, dict[str, float]] = {"moves": {}, "preemptions": {}}
    for name, value in outbox.facts.items():
        for prefix, kind in ((_MOVES, "moves"), (_TAKEN, "preemptions")):
            if name.startswith(prefix):
                found[kind][name.removeprefix(prefix)] = _number(value)
    return found


def _end_key(end: EndedRun) -> str:
    return f"{'failed' if end.has_failed else 'finished'}:{end.uid}"


def _ends(sight: ClusterSight) -> Iterator[Notification]:
    for end in sight.ends:
        text = f"Run {end.run} has finished."
        if end.has_failed:
            text = f"Run {end.run} has failed: {end.cause or 'the cause is not known'}"
        yield Notification(
            key=_end_key(end),
            event="failed" if end.has_failed else "finished",
            at=sight.now,
            text=text,
            cluster=sight.cluster,
            run=end.run,
        )


def _received(sight: ClusterSight) -> Iterator[Notification]:
    for run, turn in sight.received.items():
        yield Notification(
            key=f"moved:{run}:turn:{turn.number}",
            event="moved",
            at=sight.now,
            text=f"Run {run} has moved to cluster {sight.cluster}: {turn.reason}.",
            cluster=sight.cluster,
            run=run,
            details={"to": sight.cluster, "reason": turn.reason},
        )


def _moved(outbox: Outbox, sight: ClusterSight) -> tuple[Outbox, list[Notification]]:
    facts, found = dict(outbox.facts), []
    for run, pool in sight.pools.items():
        before = facts.pop(_POOL + run, "")
        facts[_POOL + run] = pool  # the facts of the runs of now are the last ones
        facts[_MOVES + run] = facts.pop(_MOVES + run, "0")
        if before in ("", pool):
            continue
        count = int(_number(facts[_MOVES + run])) + 1
        facts[_MOVES + run] = str(count)
        found.append(
            Notification(
                key=f"moved:{run}:{count}:{pool}",
                event="moved",
                at=sight.now,
                text=f"Run {run} has moved from {before} to {pool}.",
                cluster=sight.cluster,
                run=run,
                details={"from": before, "to": pool, "moves": count},
            )
        )
    return replace(outbox, facts=_of_present(facts, sight)), found


def _preempted(outbox: Outbox, sight: ClusterSight) -> tuple[Outbox, list[Notification]]:
    found, facts = [], dict(outbox.facts)
    new: dict[str, list[TakenNode]] = {}
    for each in sight.taken:
        if f"taken:{each.key}" not in outbox.known:
            new.setdefault(each.run, []).append(each)
    for run, nodes in new.items():
        facts[_TAKEN + run] = str(int(_number(facts.get(_TAKEN + run, "0"))) + len(nodes))
        if sight.now - _number(facts.get(_TAKEN_AT + run, "0")) < _SAME_S:
            continue
        facts[_TAKEN_AT + run] = str(sight.now)
        more = f" ({len(nodes)} losses)" if len(nodes) > 1 else ""
        found.append(
            Notification(
                key=f"preempted:{run}:{nodes[0].key}",
                event="preempted",
                at=sight.now,
                text=f"Run {run} has lost nodes{more}: {nodes[0].text}. It continues by itself.",
                cluster=sight.cluster,
                run=run,
                details={"losses": len(nodes)},
            )
        )
    outbox = outbox.knowing(f"taken:{each.key}" for nodes in new.values() for each in nodes)
    return replace(outbox, facts=facts), found


def _money(outbox: Outbox, sight: ClusterSight) -> tuple[Outbox, list[Notification]]:
    """Return the highest share of the budget that is spent, if it is new; the lower ones are known then."""
    if sight.budget_usd is None or sight.spent_usd is None or sight.budget_usd <= 0:
        return outbox, []
    part = 100 * sight.spent_usd / sight.budget_usd
    reached = [share for share in SHARES if part >= share]
    new = [share for share in reached if _budget_key(share, sight.budget_usd) not in outbox.known]
    if not new or new[-1] != reached[-1]:
        return outbox, []
    share = new[-1]
    notice = Notification(
        key=_budget_key(share, sight.budget_usd),
        event="budget",
        at=sight.now,
        text=f"Cluster {sight.cluster} has cost ${sight.spent_usd:,.2f}, {part:.0f} % of its budget of "
        f"${sight.budget_usd:,.2f}.",
        cluster=sight.cluster,
        details={"percent": share, "spent_usd": sight.spent_usd, "budget_usd": sight.budget_usd},
    )
    return outbox.knowing(_budget_key(each, sight.budget_usd) for each in new[:-1]), [notice]


def _budget_key(share: int, budget_usd: float) -> str:
    return f"budget:{budget_usd:g}:{share}"  # another budget is another threshold


def _near(outbox: Outbox, sight: ClusterSight) -> tuple[Outbox, list[Notification]]:
    if sight.end is None:
        return outbox, []
    left = sight.end - sight.now
    if left > _AGAIN * sight.near_s:  # `up` has given it more time, or the money lasts longer
        return outbox.forgetting("ended").forgetting("end-near"), []
    ends = datetime.fromtimestamp(sight.end, UTC).isoformat(timespec="seconds")
    if left <= 0:
        text = (
            f"The end of cluster {sight.cluster} has come ({ends}): its runs are stopped with a checkpoint."
        )
        kind = "ended"
    elif left <= sight.near_s:
        kind = "end-near"
        text = f"Cluster {sight.cluster} ends in {left / 60:,.0f} minutes, at {ends}. `cloudrec up` with a "
        text += "longer --ttl or a larger --budget gives it more time."
    else:
        return outbox, []
    if kind in outbox.known:
        return outbox, []
    notice = Notification(
        key=kind, event=kind, at=sight.now, text=text, cluster=sight.cluster, details={"end": ends}
    )
    return outbox, [notice]


def _of_present(facts: Mapping[str, str], sight: ClusterSight) -> dict[str, str]:
    """Return the facts without those of runs that have ended."""
    gone = {end.run for end in sight.ends} - sight.pools.keys()
    kept = {name: value for name, value in facts.items() if name.partition(":")[2] not in gone}
    return dict(list(kept.items())[-_MOST_FACTS:])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
