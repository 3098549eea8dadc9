"""One round of the keeper of a managed cluster: it looks, decides by the policy, and sizes the pools.

A round does each change again that an earlier one did not finish, so the keeper may be killed at any moment.
It writes what it is going to ask for before it asks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError
from cloudrec.keeper.managed.pools import pool_views
from cloudrec.keeper.managed.runs import managed_runs, pods_by_node, queue_run, release_run
from cloudrec.kubernetes.client.errors import AbsentError, ConflictError
from cloudrec.planning.spot.history import CapacityHistory
from cloudrec.planning.spot.policy import Candidate, Held, Situation, WorkProgress, decide
from cloudrec.providers.base.offers import SPOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.keeper.managed.pools import PoolView
    from cloudrec.keeper.managed.record import ManagedRecord
    from cloudrec.keeper.managed.runs import ManagedRun
    from cloudrec.keeper.meter import Tariff
    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.planning.spot.policy import Decision
    from cloudrec.providers.base.protocol import PoolSize

RESTART_S = 300.0  # from nodes that start to the next step; of pods that install their packages it is longer
SAVE_S = 30.0
# Some of a run's nodes cost money and do nothing: after this time the request is given back.
PARTIAL_S = 900.0
SLOW_S = 420.0  # in which nodes that the cloud has become nodes of the cluster
LINGER_S = 300.0  # nodes stay for so long after a run, for the next one
_UNKNOWN = -1  # a size for which both a request and a release ask the cloud
_AGAIN_S = 60.0  # a size that the cloud does not show yet is asked for again after this time


@dataclass(frozen=True, kw_only=True)
class RunKeeper:
    """One round.

    Attributes:
        kube: a client of the cluster's API server.
        namespace: the namespace of the runs.
        pool_label: the label by which the cloud names a node's pool.
        tariffs: the pools, the preferred ones first, with the price of a node of each.
        unhealthy: conditions by which the cloud's agents report a node that must be replaced.
        notice_s: seconds from the cloud's notice to the end of a spot node.
        resize: begins to give a pool a number of nodes; returns why the cloud does not do so now.
        sizes: returns the cloud's pools.
        keep: writes the record.
        report: receives a line for each change.
    """

    kube: Kube
    namespace: str
    pool_label: str
    tariffs: Sequence[Tariff]
    unhealthy: Mapping[str, str]
    notice_s: float
    resize: Callable[[str, int], str]
    sizes: Callable[[], Sequence[PoolSize]]
    keep: Callable[[ManagedRecord], None]
    report: Callable[[str], None]

    def round(self, record: ManagedRecord) -> ManagedRecord:
        """Look, decide and act; return the new record, which is written."""
        now = self.kube.now_s()
        pools = [each.pool for each in self._pools]
        views = pool_views(self.kube, self.pool_label, pools, self.unhealthy)
        sizes = {size.name: size for size in self._sizes() if size.name in views}
        runs = managed_runs(self.kube, self.namespace)
        run, record = self._turn(runs, _adopted(replace(record, at=now), views, sizes))
        record = _seen(record, views, sizes, run.nodes if run is not None else 0)
        for node in (each for view in views.values() for each in view.nodes if each.problem):
            self.report(f"node {node.name} is unhealthy: {node.problem}")
            record = record.noting_once(f"node {node.name} is unhealthy ({node.problem}): it is replaced")
        if run is None:
            record = self._idle(record, views)
        else:
            record = self._serve(run, replace(record, free_since=0.0), views)
        self.keep(record)
        return record

    @property
    def _pools(self) -> list[Tariff]:
        return [each for each in self.tariffs if each.gpus]

    def _sizes(self) -> Sequence[PoolSize]:
        """Return the cloud's pools; none if it cannot be asked, since the nodes show most of it."""
        try:
            return self.sizes()
        except CloudrecError as error:
            self.report(f"the sizes of the pools are not known: {error.message}")
            return ()

    def _turn(
        self, runs: Sequence[ManagedRun], record: ManagedRecord
    ) -> tuple[ManagedRun | None, ManagedRecord]:
        """Return the run that has its turn; suspend the others."""
        wanted = [run for run in runs if run.is_wanted]
        chosen = next((run for run in wanted if run.name == record.run), wanted[0] if wanted else None)
        others = [run for run in wanted if chosen is None or run.name != chosen.name]
        for run in others:
            if not run.is_suspended:
                queue_run(self.kube, run, self.namespace)
                self.report(f"run {run.name} waits for its turn")
        if chosen is not None and chosen.is_queued:
            release_run(self.kube, chosen, self.namespace)
            self.report(f"run {chosen.name} has its turn")
        name = chosen.name if chosen is not None else ""
        if name != record.run:
            ended = f"run {record.run} has ended" if record.run else ""
            record = record.noting(ended) if ended else record
            record = replace(record, run=name, worked_s=0.0, reason="")
        return chosen, replace(record, queue=tuple(run.name for run in others))

    def _idle(self, record: ManagedRecord, views: Mapping[str, PoolView]) -> ManagedRecord:
        """Remove the nodes of all pools, a while after the last run."""
        since = record.free_since or record.at
        record = replace(record, free_since=since)
        if record.at - since < LINGER_S:
            return record
        for pool in views:
            record = self._release(pool, record, views, {})
        return record

    def _serve(self, run: ManagedRun, record: ManagedRecord, views: Mapping[str, PoolView]) -> ManagedRecord:
        pods = pods_by_node(self.kube, self.namespace, run.name)
        on = _pool_of(pods, views)
        situation = self._situation(run, record, views, on)
        decision = decide(situation)
        if not situation.candidates:
            why = f"no pool has a known price of at most ${run.max_price or 0:g} a node and hour"
            decision = replace(decision, reason=why)
        if decision.reason != record.reason:
            self.report(f"run {run.name}: {decision.reason}")
            record = replace(record.noting(decision.reason), reason=decision.reason)
        record = _worked(run, record, pods, on)
        wanted = {*decision.keep, *decision.request, *([decision.run_on] if decision.run_on else [])}
        wanted -= self._partial(record, views, run.nodes, decision)
        for pool in (each.pool for each in self._pools):
            if pool in wanted:
                record = self._ask(pool, run.nodes, record)
            else:
                record = self._release(pool, record, views, pods)
        return record

    def _situation(
        self, run: ManagedRun, record: ManagedRecord, views: Mapping[str, PoolView], on: str | None
    ) -> Situation:
        affordable = [
            each
            for each in self._pools
            if run.max_price is None or (each.hourly_usd is not None and each.hourly_usd <= run.max_price)
        ]
        has_spot = any(each.capacity == SPOT for each in affordable)
        candidates = tuple(
            Candidate(
                name=each.pool,
                # Without a price no candidate is preferred to another.
                hourly_usd=(each.hourly_usd or 1.0) * run.nodes,
                # In a cluster without spot nodes, the others are what a run may have at any time.
                is_spot=each.capacity == SPOT or not has_spot,
            )
            for each in affordable
        )
        held = [self._held(record, view, run.nodes) for view in views.values()]
        work_s = run.work_s or 0.0
        return Situation(
            now=record.at,
            candidates=candidates,
            history={each.name: CapacityHistory() for each in candidates} | dict(record.history),
            held=tuple(each for each in held if each is not None),
            requested=frozenset(pool for pool in record.asked if pool not in record.complete),
            runs_on=on,
            progress=WorkProgress(
                begun=run.began,
                work_s=work_s,
                left_s=max(work_s - record.worked_s, 0.0),
                restart_s=RESTART_S,
                save_s=SAVE_S,
                deadline=run.began + run.deadline_s if run.deadline_s and work_s else None,
            ),
        )

    def _held(self, record: ManagedRecord, view: PoolView, nodes: int) -> Held | None:
        """Return the pool's nodes if it has all that the run needs; nodes that end count until their end."""
        if len(view.nodes) < nodes or not record.asked.get(view.name):
            return None
        usable = view.usable()
        is_ending = len(usable) < nodes
        return Held(
            name=view.name,
            since=record.complete.get(view.name, record.at),
            is_ready=sum(node.is_ready for node in usable) >= nodes,
            ends_at=record.at + self.notice_s if is_ending else None,
        )

    def _partial(
        self, record: ManagedRecord, views: Mapping[str, PoolView], nodes: int, decision: Decision
    ) -> set[str]:
        """Return the pools that have had a part of the run's nodes for too long, and are given back."""
        return {
            pool
            for pool in decision.request
            if 0 < len(views[pool].usable()) < nodes
            and record.at - max(record.asked_at.get(pool, record.at), record.broken.get(pool, 0.0))
            > PARTIAL_S
        }

    def _ask(self, pool: str, nodes: int, record: ManagedRecord) -> ManagedRecord:
        """Ask for a pool's nodes, if they are not asked for already."""
        if record.asked.get(pool) == nodes:
            return record
        record = replace(
            record,
            asked={**record.asked, pool: nodes},
            asked_at={**record.asked_at, pool: record.at},
        ).noting(f"{pool}: {nodes} nodes are requested")
        self.keep(record)
        self.report(f"{pool}: {nodes} nodes are requested")
        return self._resized(pool, nodes, record)

    def _release(
        self,
        pool: str,
        record: ManagedRecord,
        views: Mapping[str, PoolView],
        pods: Mapping[str, Sequence[Mapping[str, Any]]],
    ) -> ManagedRecord:
        """Remove a pool's nodes. Pods on them end first, with the time to write a checkpoint."""
        if pool not in record.asked:
            return record
        used = [node.name for node in views[pool].nodes if node.name in pods]
        if used:
            self._vacate(used, pods)
            return record
        if not views[pool].nodes and record.asked[pool] == 0:
            asked = {name: nodes for name, nodes in record.asked.items() if name != pool}
            return replace(record.noting(f"{pool}: released"), asked=asked)
        if record.asked[pool] or record.asked_at.get(pool, 0.0) + _AGAIN_S <= record.at:
            record = replace(
                record,
                asked={**record.asked, pool: 0},
                asked_at={**record.asked_at, pool: record.at},
            )
            self.keep(record)
            self.report(f"{pool}: its nodes are released")
            record = self._resized(pool, 0, record)
        return record

    def _resized(self, pool: str, nodes: int, record: ManagedRecord) -> ManagedRecord:
        """Ask the cloud; if it does not do so now, the next round asks again."""
        try:
            why = self.resize(pool, nodes)
        except CloudrecError as error:
            why = error.message
        if not why:
            return record
        self.report(f"{pool}: not resized to {nodes} nodes: {why}")
        return replace(record, asked={**record.asked, pool: _UNKNOWN}).noting_once(f"{pool}: {why}")

    def _vacate(self, nodes: Sequence[str], pods: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Cordon nodes of a pool that is released, and end the run's pods on them."""
        for name in nodes:
            try:
                self.kube.patch("Node", name, {"spec": {"unschedulable": True}})
            except (AbsentError, ConflictError):
                continue
            for pod in pods[name]:
                metadata = pod["metadata"]
                if not metadata.get("deletionTimestamp"):
                    self.report(f"pod {metadata['name']} ends: the run moves to other nodes")
                    self.kube.delete("Pod", metadata["name"], namespace=self.namespace, uid=metadata["uid"])


def _adopted(
    record: ManagedRecord, views: Mapping[str, PoolView], sizes: Mapping[str, PoolSize]
) -> ManagedRecord:
    """Return the record with the pools whose size is not what it says, as of an unknown size.

    A pool differs after a change that failed later, after another process changed it, or if the cloud itself
    makes it smaller when it takes nodes back.
    """
    asked, asked_at = dict(record.asked), dict(record.asked_at)
    for pool, size in sizes.items():
        if record.at - asked_at.get(pool, 0.0) < _AGAIN_S:
            continue
        nodes = size.nodes if size.nodes is not None else len(views[pool].nodes)
        is_smaller = size.nodes is not None and nodes < asked.get(pool, 0)
        if (nodes and pool not in asked) or is_smaller:
            asked[pool], asked_at[pool] = _UNKNOWN, record.at
    return replace(record, asked=asked, asked_at=asked_at)


def _seen(
    record: ManagedRecord, views: Mapping[str, PoolView], sizes: Mapping[str, PoolSize], nodes: int
) -> ManagedRecord:
    """Return the record with what this round saw of each pool that was asked for nodes.

    Nodes take minutes to start. A pool without them counts as out of stock only if the cloud says why it has
    none, or after `SLOW_S`.
    """
    complete, broken = dict(record.complete), dict(record.broken)
    history = dict(record.history)
    for pool, asked in record.asked.items():
        if pool not in views or asked <= 0:
            complete.pop(pool, None)
            continue
        is_up = len(views[pool].usable()) >= max(nodes, 1)
        problem = sizes[pool].problem if pool in sizes else ""
        if is_up:
            complete.setdefault(pool, record.at)
            broken.pop(pool, None)
        elif complete.pop(pool, None) is not None:
            broken[pool] = record.at
            record = record.noting(f"{pool}: the cloud takes nodes back")
        elif not problem and record.at - record.asked_at.get(pool, record.at) < SLOW_S:
            continue
        history[pool] = history.get(pool, CapacityHistory()).seen(record.at, is_up=is_up)
    return replace(record, complete=complete, broken=broken, history=history)


def _worked(
    run: ManagedRun, record: ManagedRecord, pods: Mapping[str, Sequence[Mapping[str, Any]]], on: str | None
) -> ManagedRecord:
    """Count the time since the last round if all pods of the run have run in it."""
    running = sum(
        (pod.get("status") or {}).get("phase") == "Running" for each in pods.values() for pod in each
    )
    if on is None or running < run.nodes:
        return replace(record, worked_at=0.0)
    added = record.at - record.worked_at if record.worked_at else 0.0
    return replace(record, worked_at=record.at, worked_s=record.worked_s + added)


def _pool_of(pods: Mapping[str, Sequence[object]], views: Mapping[str, PoolView]) -> str | None:
    """Return the pool whose nodes have most of the run's pods; None for none."""
    counts = {pool: sum(len(pods.get(node.name, ())) for node in view.nodes) for pool, view in views.items()}
    best = max(counts, key=lambda pool: counts[pool], default=None)
    return best if best is not None and counts[best] else None
