"""One round of the keeper of a managed cluster: it looks, decides by the policy, and sizes the pools.

A round does each change again that an earlier one did not finish, so the keeper may be killed at any moment.
It writes what it is going to ask for before it asks.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError
from cloudrec.keeper.managed.observations import (
    AGAIN_S,
    UNKNOWN,
    adopted,
    owned,
    pool_of,
    running,
    seen,
    worked,
)
from cloudrec.keeper.managed.pools import pool_views
from cloudrec.keeper.managed.progress import read_progress
from cloudrec.keeper.managed.record import HoldOff, KeptRun
from cloudrec.keeper.managed.runs import forget_run, managed_runs, pods_by_node, queue_run, release_run
from cloudrec.kubernetes.client.errors import AbsentError, ConflictError
from cloudrec.kubernetes.wishes import LEAVING, NODE_RUN
from cloudrec.launchers.kubernetes.turns import ACCEPT_S
from cloudrec.planning.spot.history import CapacityHistory
from cloudrec.planning.spot.policy import Candidate, Held, Situation, WorkProgress, decide
from cloudrec.providers.base.offers import SPOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.keeper.managed.pools import PoolView
    from cloudrec.keeper.managed.record import ManagedRecord
    from cloudrec.keeper.managed.runs import ManagedRun
    from cloudrec.keeper.managed.sharing import TurnKeeper
    from cloudrec.keeper.meter import Tariff
    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.launchers.kubernetes.turns import Turn
    from cloudrec.planning.spot.policy import Decision
    from cloudrec.providers.base.protocol import PoolSize

# Until a run has shown its own times: from complete nodes to the next step, and of a checkpoint.
RESTART_S, SAVE_S = 300.0, 30.0
# Some of a run's nodes cost money and do nothing: after this time the request is given back.
PARTIAL_S = 900.0
LONGEST_HOLD_OFF_S = 4 * 3600.0  # of a pool whose machines do not become ready nodes
LEAVE_S = 120.0  # a run of several clusters leaves one whose candidates have all been refused for so long
LINGER_S = 300.0  # nodes stay for so long after a run, for the next one


@dataclass(frozen=True, kw_only=True)
class RunKeeper:
    """One round.

    Attributes:
        kube: a client of the cluster's API server.
        namespace: the namespace of the runs.
        pool_label: the label by which the cloud names a node's pool.
        tariffs: the pools, the preferred ones first, with the price of a node of each.
        unhealthy: conditions by which the cloud's agents report a node that must be replaced.
        most_nodes: the nodes that the cluster may have.
        notice_s: seconds from the cloud's notice to the end of a spot node.
        resize: begins to give a pool a number of nodes; returns why the cloud does not do so now.
        sizes: returns the cloud's pools.
        keep: writes the record.
        report: receives a line for each change.
        turns: this cluster's part in the runs of several clusters; None if it does not know their storage.
    """

    kube: Kube
    namespace: str
    pool_label: str
    tariffs: Sequence[Tariff]
    unhealthy: Mapping[str, str]
    most_nodes: int
    notice_s: float
    resize: Callable[[str, int], str]
    sizes: Callable[[], Sequence[PoolSize]]
    keep: Callable[[ManagedRecord], None]
    report: Callable[[str], None]
    turns: TurnKeeper | None = None

    def round(self, record: ManagedRecord) -> ManagedRecord:
        """Look, decide and act; return the new record, which is written."""
        now = self.kube.now_s()
        pools = [each.pool for each in self._pools]
        views = pool_views(self.kube, self.pool_label, pools, self.unhealthy)
        sizes = {size.name: size for size in self._sizes() if size.name in views}
        # A pool that the cloud made smaller is seen as it was asked for, before it is asked for again.
        record = adopted(seen(replace(record, at=now), views, sizes), views, sizes)
        runs, record = self._here(managed_runs(self.kube, self.namespace), record)
        active, record = self._admit(runs, record)
        pods = {run.name: pods_by_node(self.kube, self.namespace, run.name) for run in active}
        record = owned(record, active, pods, views)
        for node in (each for view in views.values() for each in view.nodes if each.problem):
            self.report(f"node {node.name} is unhealthy: {node.problem}")
            record = record.noting_once(f"node {node.name} is unhealthy ({node.problem}): it is replaced")
        wanted = set[str]()
        for run in active:
            record, needed = self._serve(run, record, views, pods[run.name])
            wanted |= needed
        record = self._rest(record, views, active, wanted)
        self._give_nodes(record, active, views, pods)
        record = self._renew(active, record)
        self.keep(record)
        return record

    def _here(
        self, runs: Sequence[ManagedRun], record: ManagedRecord
    ) -> tuple[list[ManagedRun], ManagedRecord]:
        """Return the runs that this cluster has; suspend those that another cluster has."""
        here, found = [run for run in runs if not run.is_shared], replace(record, turns={}, silent={})
        # A run of several clusters that is neither wanted nor ended is stopped by its user, in all of them.
        for run in (each for each in runs if each.is_shared and (each.is_wanted or each.ended)):
            if self.turns is None:
                self.report(f"run {run.name}: the storage of its turns is not known; `cloudrec up` writes it")
                continue
            shared = self.turns.see(run, record)
            found = shared.noted_in(found, run.name)
            if shared.turn is None or run.ended:
                continue
            if self.turns.has(run, shared.turn):
                here.append(run)
            elif shared.turn.launch == run.launch:
                self._keep_away(run, shared.turn)
        order = [run.name for run in runs]
        return sorted(here, key=lambda run: order.index(run.name)), found

    def _keep_away(self, run: ManagedRun, turn: Turn) -> None:
        """Suspend a run that another cluster has, and take one that has ended there out of the queue."""
        if not run.is_suspended:  # also one that has ended elsewhere, while this cluster had failed
            queue_run(self.kube, run, self.namespace)
            self.report(f"run {run.name} is in cluster {turn.cluster}")
        elif turn.ended and run.is_queued:
            forget_run(self.kube, run, self.namespace)
            self.report(f"run {run.name} has {turn.ended} in cluster {turn.cluster}")

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

    def _admit(
        self, runs: Sequence[ManagedRun], record: ManagedRecord
    ) -> tuple[list[ManagedRun], ManagedRecord]:
        """Return the runs that have their turn, in the order of their submission; suspend the others.

        Each run has separate pools, since a cloud that makes a pool smaller chooses the nodes. So a run
        has its turn if the nodes of all such runs are not more than the cluster's, and a pool is left for it.
        No run overtakes an earlier one.
        """
        wanted = [run for run in runs if run.is_wanted]
        # A run that has its turn keeps it.
        order = sorted(wanted, key=lambda run: run.name not in record.runs)
        active: list[ManagedRun] = []
        for run in order:
            nodes = run.nodes + sum(each.nodes for each in active)
            if active and (nodes > self.most_nodes or not self._has_room(active, record)):
                break
            active.append(run)
        names = {run.name for run in active}
        waiting = [run for run in wanted if run.name not in names]
        for run in waiting:
            if not run.is_suspended:
                queue_run(self.kube, run, self.namespace)
                self.report(f"run {run.name} waits for its turn")
        for run in active:
            if run.is_queued and not record.runs.get(run.name, KeptRun()).leaves:
                release_run(self.kube, run, self.namespace)
                self.report(f"run {run.name} has its turn")
        for name in record.runs:
            if name not in names:
                record = record.noting(f"run {name} {_whereabouts(record, name)}", run=name)
        kept = {run.name: record.runs.get(run.name, _received(record, run.name)) for run in active}
        record = replace(record, runs=kept, queue=tuple(run.name for run in waiting))
        return active, self._pass_on(waiting, record)

    def _pass_on(self, waiting: Sequence[ManagedRun], record: ManagedRecord) -> ManagedRecord:
        """Offer runs of several clusters that have waited behind others for long to the next cluster."""
        for run in waiting:
            turn = record.turns.get(run.name)
            if run.is_shared and turn is not None and record.at - turn.at > ACCEPT_S:
                behind = KeptRun(reason="other runs have the nodes", step=turn.step, steps=turn.steps)
                record = self._leave(run, behind, record) or record
        return record

    def _has_room(self, active: Sequence[ManagedRun], record: ManagedRecord) -> bool:
        """Return whether a pool is left for another run: one that no run has requested, and each has one."""
        names = {run.name for run in active}
        spot = {each.pool for each in self._pools if each.capacity == SPOT}
        pools = spot or {each.pool for each in self._pools}
        owned = {pool: run for pool, run in record.owner.items() if run in names and pool in pools}
        return len(pools) - len(owned) > len(names - set(owned.values()))

    def _rest(
        self,
        record: ManagedRecord,
        views: Mapping[str, PoolView],
        active: Sequence[ManagedRun],
        wanted: AbstractSet[str],
    ) -> ManagedRecord:
        """Release the pools that no run needs; after the last run, a while later."""
        since = 0.0 if active else record.free_since or record.at
        record = replace(record, free_since=since)
        if not active and record.at - since < LINGER_S:
            return record
        unneeded = [
            each.pool for each in self._pools if each.pool not in wanted and each.pool in record.asked
        ]
        # A run that was stopped is not active, but its pods may still write a checkpoint.
        pods = pods_by_node(self.kube, self.namespace) if unneeded else {}
        for pool in unneeded:
            record = self._release(pool, record, views, pods)
        return record

    def _give_nodes(
        self,
        record: ManagedRecord,
        active: Sequence[ManagedRun],
        views: Mapping[str, PoolView],
        pods: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]],
    ) -> None:
        """Label the nodes of each pool with its run, and end pods on the nodes of another run."""
        names = {run.name for run in active}
        for pool, view in views.items():
            owner = record.owner.get(pool, "")
            owner = owner if owner in names else ""
            for node in view.nodes:
                if node.run != owner:
                    with suppress(AbsentError, ConflictError):
                        label = {"metadata": {"labels": {NODE_RUN: owner or None}}}
                        self.kube.patch("Node", node.name, label)
                strangers = [run for run in names if owner and run != owner and node.name in pods[run]]
                for run in strangers:
                    self._end(pods[run][node.name], f"its node is for run {owner}")

    def _serve(
        self,
        run: ManagedRun,
        record: ManagedRecord,
        views: Mapping[str, PoolView],
        pods: Mapping[str, Sequence[Mapping[str, Any]]],
    ) -> tuple[ManagedRecord, set[str]]:
        """Decide for one run, and request its pools; return the record, and the pools that it needs."""
        free = {run.name, *(name for name in record.owner.values() if name not in record.runs)}
        own = {pool: view for pool, view in views.items() if record.owner.get(pool, run.name) in free}
        on = pool_of(pods, own)
        decision = decide(situation := self._situation(run, record, own, on))
        if not situation.candidates:
            decision = replace(decision, reason=self._without_candidates(run, record))
        kept = record.runs[run.name]
        if decision.reason != kept.reason:
            self.report(f"run {run.name}: {decision.reason}")
            record = record.noting(decision.reason, run=run.name)
            kept = replace(kept, reason=decision.reason)
        kept = self._measured(worked(run, kept, record.at, pods, on), record, pods, on)
        has_all = any(record.owner.get(each) == run.name for each in record.complete)
        is_without = not has_all and running(pods) < run.fewest
        kept = replace(
            kept,
            without_since=(kept.without_since or record.at) if is_without else 0.0,
            leaves=kept.leaves and is_without,
        )
        record = replace(record, runs={**record.runs, run.name: kept})
        # A part of the nodes is worth a longer wait for the others.
        is_late = record.at - kept.without_since >= (LEAVE_S if on is None else PARTIAL_S)
        if run.is_shared and is_without and (kept.leaves or (is_late and _is_out_of_stock(situation))):
            moved = self._leave(run, kept, record)
            if moved is not None:
                return moved, set()
        wanted = {*decision.keep, *decision.request, *([decision.run_on] if decision.run_on else [])}
        wanted -= self._partial(record, views, run.nodes, decision)
        record, lost = self._unready(record, wanted)
        wanted -= lost
        for pool in (each.pool for each in self._pools if each.pool in wanted):
            record = self._ask(pool, run, record)
            self._take_back(views[pool])
        # What it leaves, another run may have once its pods have ended there.
        left = {
            pool
            for pool, name in record.owner.items()
            if name == run.name
            and pool not in wanted
            and not any(node.name in pods for node in own[pool].nodes)
        }
        return replace(
            record, owner={pool: name for pool, name in record.owner.items() if pool not in left}
        ), wanted

    def _without_candidates(self, run: ManagedRun, record: ManagedRecord) -> str:
        """Return why a run has no candidates."""
        if any(_is_affordable(each, run) for each in self._pools):
            held_off = [each.until for each in record.held_off.values() if each.until > record.at]
            again = datetime.fromtimestamp(min(held_off, default=record.at), UTC)
            return f"the nodes of no pool became ready; one is requested again at {again:%H:%M} UTC"
        return f"no pool has a known price of at most ${run.max_price or 0:g} a node and hour"

    def _leave(self, run: ManagedRun, kept: KeptRun, record: ManagedRecord) -> ManagedRecord | None:
        """Suspend a run and offer it to the next cluster; None if it stays: the next round resumes it."""
        turn = record.turns.get(run.name)
        if self.turns is None or turn is None or len(turn.clusters) == 1:
            return None
        if not run.is_queued:
            queue_run(self.kube, run, self.namespace)
        if pods_by_node(self.kube, self.namespace, run.name):
            # A part of the nodes came: its pods end, since the others must not meet them in another region.
            known = record.runs.get(run.name)
            leaving = {run.name: replace(kept, leaves=True)} if known is not None else {}
            return replace(record, runs={**record.runs, **leaving})
        offered = self.turns.offer(run, turn, kept, record.at)
        if offered is None:
            return None
        text = f"{kept.reason}: it is offered to cluster {offered.cluster}"
        self.report(f"run {run.name}: {text}")
        queue = tuple(name for name in record.queue if name != run.name)
        turns = {**record.turns, run.name: offered}
        return replace(record, turns=turns, queue=queue).noting(text, run=run.name)

    def _renew(self, active: Sequence[ManagedRun], record: ManagedRecord) -> ManagedRecord:
        """Write at the end of a round that this cluster still has its runs of several clusters."""
        for run in active:
            turn, kept = record.turns.get(run.name), record.runs.get(run.name)
            if self.turns is None or turn is None or kept is None or not self.turns.has(run, turn):
                continue
            renewed = self.turns.renew(run, turn, kept, record.at)
            if renewed is not None:
                record = replace(record, turns={**record.turns, run.name: renewed})
        return record

    def _measured(
        self,
        kept: KeptRun,
        record: ManagedRecord,
        pods: Mapping[str, Sequence[Mapping[str, Any]]],
        on: str | None,
    ) -> KeptRun:
        """Return a run with what it printed last, and with the time that its restart took."""
        if on is None or not kept.worked_at:
            return kept
        reported = read_progress(self.kube, self.namespace, pods, known=kept.pod)
        if reported is None:
            return kept
        if reported.saved is not None:
            kept = replace(kept, saved=reported.saved, save_s=reported.save_s)
        if reported.pod != kept.pod and on in record.complete:
            since = max(record.complete[on], kept.halted_at)
            kept = replace(kept, pod=reported.pod, restart_s=record.at - since)
        return replace(kept, step=reported.step, steps=reported.steps)

    def _situation(
        self, run: ManagedRun, record: ManagedRecord, views: Mapping[str, PoolView], on: str | None
    ) -> Situation:
        affordable = [
            each for each in self._pools if _is_affordable(each, run) and not _is_held_off(record, each.pool)
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
            if each.pool in views
        )
        held = [self._held(record, view, run.nodes) for view in views.values()]
        work_s, kept = run.work_s or 0.0, record.runs[run.name]
        return Situation(
            now=record.at,
            candidates=candidates,
            history={each.name: CapacityHistory() for each in candidates} | dict(record.history),
            held=tuple(each for each in held if each is not None),
            requested=frozenset(
                pool for pool in record.asked if pool in views and pool not in record.complete
            ),
            runs_on=on,
            progress=WorkProgress(
                begun=run.began,
                work_s=work_s,
                left_s=work_s * (1 - kept.done)
                if kept.done is not None
                else max(work_s - kept.worked_s, 0.0),
                restart_s=RESTART_S if kept.restart_s is None else kept.restart_s,
                save_s=SAVE_S if kept.save_s is None else kept.save_s,
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
            and record.at - max(record.wanted_at.get(pool, record.at), record.broken.get(pool, 0.0))
            > PARTIAL_S
        }

    def _unready(self, record: ManagedRecord, wanted: AbstractSet[str]) -> tuple[ManagedRecord, set[str]]:
        """Return the pools whose machines cost money and do not become ready nodes; they are held off."""
        lost = {pool for pool in wanted if record.at - record.unready.get(pool, record.at) > PARTIAL_S}
        for pool in sorted(lost):
            known = record.held_off.get(pool)
            length_s = PARTIAL_S if known is None else min(2 * known.length_s, LONGEST_HOLD_OFF_S)
            made = HoldOff(until=record.at + length_s, length_s=length_s)
            text = (
                f"{pool}: its machines are no ready nodes after {PARTIAL_S / 60:.0f} minutes: they are given "
                f"back, and not requested for {length_s / 60:.0f} minutes"
            )
            self.report(text)
            record = replace(record, held_off={**record.held_off, pool: made}).noting(text)
        return record, lost

    def _ask(self, pool: str, run: ManagedRun, record: ManagedRecord) -> ManagedRecord:
        """Ask for a pool's nodes for a run, if they are not asked for already."""
        is_new = record.owner.get(pool) != run.name or not record.asked.get(pool)
        wanted_at = record.at if is_new else record.wanted_at.get(pool, record.at)
        record = replace(
            record,
            owner={**record.owner, pool: run.name},
            wanted_at={**record.wanted_at, pool: wanted_at},
        )
        if record.asked.get(pool) == run.nodes:
            return record
        record = replace(
            record,
            asked={**record.asked, pool: run.nodes},
            asked_at={**record.asked_at, pool: record.at},
        )
        if is_new:  # a request that is repeated for hours is one event
            record = record.noting(f"{pool}: {run.nodes} nodes are requested", run=run.name)
        self.keep(record)
        self.report(f"{pool}: {run.nodes} nodes are requested")
        return self._resized(pool, run.nodes, record)

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
            owner = {name: run for name, run in record.owner.items() if name != pool}
            return replace(record.noting(f"{pool}: released"), asked=asked, owner=owner)
        if record.asked[pool] and (scheduling := [each for each in views[pool].nodes if not each.is_leaving]):
            # The next round sees whether a pod came before the cordon, as when a run's pods start again.
            self._cordon([each.name for each in scheduling])
            return record
        if record.asked[pool] or record.asked_at.get(pool, 0.0) + AGAIN_S <= record.at:
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
        return replace(record, asked={**record.asked, pool: UNKNOWN}).noting_once(f"{pool}: {why}")

    def _vacate(self, nodes: Sequence[str], pods: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Cordon nodes of a pool that is released, and end the run's pods on them."""
        for name in self._cordon(nodes):
            self._end(pods[name], "the run moves to other nodes")

    def _cordon(self, nodes: Sequence[str]) -> list[str]:
        """Cordon nodes, marked as the keeper's own; return those that are there."""
        change = {"metadata": {"annotations": {LEAVING: "true"}}, "spec": {"unschedulable": True}}
        found = []
        for name in nodes:
            with suppress(AbsentError, ConflictError):
                self.kube.patch("Node", name, change)
                found.append(name)
        return found

    def _take_back(self, view: PoolView) -> None:
        """Uncordon the nodes of a pool that was about to be released and is needed again."""
        change = {"metadata": {"annotations": {LEAVING: None}}, "spec": {"unschedulable": None}}
        for node in (each for each in view.nodes if each.is_leaving):
            with suppress(AbsentError, ConflictError):
                self.kube.patch("Node", node.name, change)

    def _end(self, pods: Sequence[Mapping[str, Any]], why: str) -> None:
        """End pods that do not end already."""
        for metadata in (pod["metadata"] for pod in pods):
            if not metadata.get("deletionTimestamp"):
                self.report(f"pod {metadata['name']} ends: {why}")
                self.kube.delete("Pod", metadata["name"], namespace=self.namespace, uid=metadata["uid"])


def _is_affordable(pool: Tariff, run: ManagedRun) -> bool:
    return run.max_price is None or (pool.hourly_usd is not None and pool.hourly_usd <= run.max_price)


def _is_held_off(record: ManagedRecord, pool: str) -> bool:
    known = record.held_off.get(pool)
    return known is not None and record.at < known.until


def _whereabouts(record: ManagedRecord, run: str) -> str:
    """Return what became of a run that is no longer active here."""
    turn = record.turns.get(run)
    return f"is in cluster {turn.cluster}" if turn is not None and not turn.ended else "has ended"


def _received(record: ManagedRecord, run: str) -> KeptRun:
    """Return what is known of a run that becomes active: of one from another cluster, its steps."""
    turn = record.turns.get(run)
    if turn is None or turn.step is None:
        return KeptRun()
    return KeptRun(step=turn.step, steps=turn.steps, saved=turn.step)


def _is_out_of_stock(situation: Situation) -> bool:
    """Return whether every candidate that a run may have at any time has refused it lately."""
    spot = [each.name for each in situation.candidates if each.is_spot]
    latest = [situation.history[name] for name in spot]
    return all(each.is_up is False and situation.now - each.at <= LEAVE_S for each in latest)
