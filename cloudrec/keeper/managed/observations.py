"""What the keeper of a managed cluster sees in a round, as changes of its record; no cluster is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudrec.keeper.managed.record import TAKEN_BACK
from cloudrec.planning.spot.history import CapacityHistory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.keeper.managed.pools import PoolView
    from cloudrec.keeper.managed.record import KeptRun, ManagedRecord
    from cloudrec.keeper.managed.runs import ManagedRun
    from cloudrec.providers.base.protocol import PoolSize

SLOW_S = 420.0  # in which nodes that the cloud has become nodes of the cluster
UNKNOWN = -1  # a size for which both a request and a release ask the cloud
AGAIN_S = 60.0  # a size that the cloud does not show yet is asked for again after this time


def adopted(
    record: ManagedRecord, views: Mapping[str, PoolView], sizes: Mapping[str, PoolSize]
) -> ManagedRecord:
    """Return the record with the pools whose size is not what it says, as of an unknown size.

    A pool differs after a change that failed later, after another process changed it, or if the cloud itself
    makes it smaller when it takes nodes back. One that has too few nodes is asked for again if the cloud does
    not retry, or does not show that another process has made the pool smaller.
    """
    asked, asked_at = dict(record.asked), dict(record.asked_at)
    for pool, size in sizes.items():
        age_s, there = record.at - asked_at.get(pool, 0.0), len(views[pool].nodes)
        if age_s < AGAIN_S:
            continue
        nodes = size.nodes if size.nodes is not None else there
        is_smaller = size.nodes is not None and nodes < asked.get(pool, 0)
        has_failed = bool(size.problem) and not size.is_retried
        is_stuck = has_failed or (size.nodes is None and age_s >= SLOW_S)
        if (nodes and pool not in asked) or is_smaller or (is_stuck and there < asked.get(pool, 0)):
            asked[pool], asked_at[pool] = UNKNOWN, record.at
    return replace(record, asked=asked, asked_at=asked_at)


def seen(
    record: ManagedRecord, views: Mapping[str, PoolView], sizes: Mapping[str, PoolSize]
) -> ManagedRecord:
    """Return the record with what this round saw of each pool that was asked for nodes.

    Nodes take minutes to start. A pool without them counts as out of stock only if the cloud says why it has
    none, or after `SLOW_S`.
    """
    complete, broken, unready = dict(record.complete), dict(record.broken), dict(record.unready)
    history, held_off = dict(record.history), dict(record.held_off)
    for pool, asked in record.asked.items():
        if pool not in views or asked <= 0:
            complete.pop(pool, None)
            unready.pop(pool, None)
            continue
        usable = views[pool].usable()
        is_up, is_ready = len(usable) >= asked, sum(node.is_ready for node in usable) >= asked
        problem = sizes[pool].problem if pool in sizes else ""
        if is_ready:
            held_off.pop(pool, None)
        if (is_up and not is_ready) or (not views[pool].nodes and _runs_machines(sizes.get(pool))):
            unready.setdefault(pool, record.at)
        else:
            unready.pop(pool, None)
        if is_up:
            complete.setdefault(pool, record.at)
            broken.pop(pool, None)
        elif complete.pop(pool, None) is not None:
            broken[pool] = record.at
            record = record.noting(f"{pool}: {TAKEN_BACK}", run=record.owner.get(pool, ""))
        elif not problem and record.at - record.wanted_at.get(pool, record.at) < SLOW_S:
            continue
        history[pool] = history.get(pool, CapacityHistory()).seen(record.at, is_up=is_up)
    return replace(
        record, complete=complete, broken=broken, unready=unready, held_off=held_off, history=history
    )


def _runs_machines(size: PoolSize | None) -> bool:
    """Return whether a cloud that reports sizes and problems says that a pool's machines run."""
    return size is not None and bool(size.nodes) and not size.problem and not size.is_changing


def owned(
    record: ManagedRecord,
    active: Sequence[ManagedRun],
    pods: Mapping[str, Mapping[str, Sequence[object]]],
    views: Mapping[str, PoolView],
) -> ManagedRecord:
    """Return the record with the run that trains on a pool as its owner, if it has none."""
    owner = {pool: run for pool, run in record.owner.items() if pool in record.asked}
    for run in active:
        on = pool_of(pods[run.name], views)
        if on is not None and on in record.asked and owner.get(on) not in record.runs:
            owner[on] = run.name
    return replace(record, owner=owner)


def worked(
    run: ManagedRun,
    kept: KeptRun,
    now: float,
    pods: Mapping[str, Sequence[Mapping[str, Any]]],
    on: str | None,
) -> KeptRun:
    """Count the time since the last round if all pods of the run have run in it."""
    if on is None or running(pods) < run.nodes:
        return replace(kept, worked_at=0.0, halted_at=now if kept.worked_at else kept.halted_at)
    added = now - kept.worked_at if kept.worked_at else 0.0
    return replace(kept, worked_at=now, worked_s=kept.worked_s + added)


def running(pods: Mapping[str, Sequence[Mapping[str, Any]]]) -> int:
    """Return the number of pods that run."""
    return sum((pod.get("status") or {}).get("phase") == "Running" for each in pods.values() for pod in each)


def pool_of(pods: Mapping[str, Sequence[object]], views: Mapping[str, PoolView]) -> str | None:
    """Return the pool whose nodes have most of the run's pods; None for none."""
    counts = {pool: sum(len(pods.get(node.name, ())) for node in view.nodes) for pool, view in views.items()}
    best = max(counts, key=lambda pool: counts[pool], default=None)
    return best if best is not None and counts[best] else None
