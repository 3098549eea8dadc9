"""The guard enforces a cluster's end from inside: runs write a checkpoint, and GPU nodes scale to zero.

A CronJob starts one round at a time. A round reads the end from the guard's ConfigMap, where `up` wrote it.
After the end it suspends each run, so that the trainers write a checkpoint within their grace period; then it
scales the GPU nodes to zero, if the provider can. It records in the ConfigMap what it did, and for which end;
the record of an earlier end is ignored. Later rounds repeat this until `up` renews the end, because a user
may start another run or scale nodes up again, and a call of the cloud may have failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from cloudrec import providers
from cloudrec.errors import CloudrecError, PreflightError, UsageError
from cloudrec.home import Home
from cloudrec.keeper import in_cluster
from cloudrec.keeper.census import live_nodes
from cloudrec.keeper.ends import ENDING, Metered, MovedEnd, is_movable, moved
from cloudrec.keeper.idle import IDLE, IdleRecord, gpu_nodes, idleness
from cloudrec.keeper.managed.duty import forget_nodes, manage, stop_shared
from cloudrec.keeper.managed.sharing import TurnKeeper
from cloudrec.keeper.meter import CostLedger, LiveNode, advance, most, rate
from cloudrec.keeper.note import METER, NAME, NOTE, RECORD, Note
from cloudrec.keeper.notices.detect import ClusterSight
from cloudrec.keeper.notices.gauges import KeeperGauges, serve
from cloudrec.keeper.notices.notifier import Notifier, secrets_from
from cloudrec.keeper.spot import EVERY_S, SPOT_PRICES, SpotRecord
from cloudrec.keeper.tending import tend
from cloudrec.kubernetes import topology
from cloudrec.kubernetes.client.errors import AbsentError, KubeError
from cloudrec.kubernetes.manifests.guard import MARK
from cloudrec.launchers import launchers
from cloudrec.launchers.base.results_store import open_place
from cloudrec.launchers.kubernetes.launcher import KubeLauncher
from cloudrec.providers.base.prices import KnowsSpotPrices
from cloudrec.providers.base.protocol import CanScaleToZero, Halt, MovesEnd, SizesPools
from cloudrec.spec.durations import seconds_of
from cloudrec.spec.models import NotifySpec
from cloudrec_contract.objectstore.retries import Patience
from cloudrec_contract.safe_json import aware_time, record_of, safe_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.launchers.base.results_store import Place
    from cloudrec.spec.models import ClusterSpec

_RUNS = "app.kubernetes.io/managed-by=cloudrec,cloudrec/run"
_LONGEST_WAIT_S = 480.0  # for checkpoints: one round has ten minutes
_SPARE_S = 15.0  # beyond a pod's grace period
# No pool is scaled again for so long after a scaling: a cloud that does not report a pool's size would get
# the same call in every round.
_SETTLE_S = 300.0
_POLL_S = 1.0


@dataclass(frozen=True, kw_only=True)
class GuardRecord:
    """The result of a round after the cluster's end.

    Attributes:
        end: the end that was enforced, ISO 8601.
        budget_usd: the budget at that time.
        halted: whether all GPU nodes were scaled to zero.
        at: the time of the round, ISO 8601.
        pools: the pools that were scaled.
        left: the pools that still cost money, each with the reason.
    """

    end: str = ""
    budget_usd: float | None = None
    halted: bool = False
    at: str = ""
    pools: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> GuardRecord:
        """Return the record from the ConfigMap's text; an empty record if it is invalid."""
        try:
            record = record_of(cls, safe_object(text))
            for moment in (record.at, *([record.end] if record.end else [])):
                aware_time(moment)
        except ValueError:
            return cls()
        return record

    def has_just_scaled(self, note: Note, end: datetime, now: datetime) -> bool:
        """Return whether the pools were scaled for this end in the last five minutes.

        The end of a budget that is spent is the time of the round. A record from the future is of a keeper
        whose clock was ahead: it says nothing about when that was.
        """
        if not (self.halted and self.pools and self.end and self.budget_usd == note.cluster.budget_usd):
            return False
        if not timedelta() <= end - datetime.fromisoformat(self.end) < timedelta(seconds=_SETTLE_S):
            return False
        return timedelta() <= now - datetime.fromisoformat(self.at) < timedelta(seconds=_SETTLE_S)


def _open(uri: str) -> Place:
    # What fails is done again in the next round, and a round must not wait for it.
    return open_place(uri, patience=Patience(answer_s=10.0, attempts=2, rounds=1))


@dataclass(frozen=True, kw_only=True)
class Guard:
    """One round of the guard.

    Attributes:
        kube: a client of the cluster's API server.
        namespace: the namespace of the runs and the guard.
        halt: scales the GPU nodes to zero.
        pricer: returns what knows current spot prices; None if the provider does not.
        mover: returns what moves the end that the cloud keeps; None if the provider cannot.
        sizer: returns what sizes the pools; None if the provider cannot.
        identity: the name of this process, unique in the cluster.
        secrets: the values of the secrets of notifications, by their keys in `notify`.
        gauges: receives what each round has seen, for /metrics; None if nothing reads it.
        open: returns a folder of the runs' storage by its URI.
        now: returns the time.
        report: receives each log line.
    """

    kube: Kube
    namespace: str
    halt: Callable[[ClusterSpec], Halt]
    mover: Callable[[ClusterSpec], MovesEnd | None] = field(default=lambda _: None)
    pricer: Callable[[ClusterSpec], KnowsSpotPrices | None] = field(default=lambda _: None)
    sizer: Callable[[ClusterSpec], SizesPools | None] = field(default=lambda _: None)
    identity: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)
    gauges: KeeperGauges | None = None
    # A process has one client of the store for each folder, for hours.
    open: Callable[[str], Place] = field(default_factory=lambda: cache(_open))
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    report: Callable[[str], None] = field(default=lambda line: print(line, flush=True))

    def round(self) -> bool:
        """Tend the pods, and enforce the end if it has passed; return whether all that was due is done."""
        try:
            tend(self.kube, self.namespace, self.report)
        except KubeError as error:  # the end is enforced even so
            self.report(f"pods are not tended: {error.message}")
        found = self.kube.get("ConfigMap", NAME, namespace=self.namespace)
        if found is None:
            raise PreflightError(
                f"there is no ConfigMap {self.namespace}/{NAME}", remedy="`cloudrec up` writes it"
            )
        data = found.get("data") or {}
        note = Note.of(data.get(NOTE, ""))
        nodes = self._nodes(note)
        if nodes is not None:
            self._refresh_topology()
        note = self._repriced(note, data.get(SPOT_PRICES, ""), nodes or ())
        kept = MovedEnd.of(data.get(ENDING, ""), note.cluster.expires or "")
        metered = self._meter(note, data.get(METER, ""), nodes, kept)
        mover = self._mover(note)
        end = note.end(metered, kept=kept.expires, moves=mover is not None)
        if end is None or self.now() < end:
            if mover is not None and metered is not None:
                self._move_end(mover, note, metered, kept)
            self.report(f"{note.cluster.title} ends {end.isoformat()}" if end else "there is no end")
            if note.cluster.managed:
                manage(
                    self.kube,
                    self.namespace,
                    note.cluster,
                    pool_label=note.pool_label,
                    tariffs=note.tariffs,
                    sizer=self.sizer,
                    identity=self.identity,
                    turns=self._turns(note),
                    report=self.report,
                )
            is_done = self._stop_idle(note, IdleRecord.of(data.get(IDLE, "")), nodes)
        else:
            are_ended = self._end_runs()
            is_done = self._halt(note, end, GuardRecord.of(data.get(RECORD, ""))) and are_ended
            is_done = self._stop_shared(note) and is_done  # the nodes do not wait for the storage
            if note.cluster.managed:
                forget_nodes(self.kube, self.namespace, identity=self.identity, report=self.report)
        self._tell(note, metered, nodes, end)
        return is_done

    def _tell(
        self, note: Note, metered: Metered | None, nodes: list[LiveNode] | None, end: datetime | None
    ) -> None:
        """Send notifications, and keep what /metrics shows. No error of it ends a round."""
        if note.notify is None and self.gauges is None:
            return
        sight = ClusterSight(
            now=self.now().timestamp(),
            cluster=note.cluster.title,
            pools={},
            spent_usd=metered.spent_usd if metered is not None else None,
            budget_usd=note.cluster.budget_usd,
            end=end.timestamp() if end is not None else None,
        )
        notifier = Notifier(
            kube=self.kube,
            namespace=self.namespace,
            notify=note.notify or NotifySpec(),
            secrets=self.secrets,
            report=self.report,
        )
        outbox = None
        try:
            outbox = notifier.send(sight, nodes or ())
        except Exception as error:  # noqa: BLE001 - the end and the nodes matter more
            self.report(f"no one is notified in this round: {type(error).__name__}: {error}")
        if self.gauges is not None:
            self.gauges.see(note, sight, metered, nodes, outbox)

    def _nodes(self, note: Note) -> list[LiveNode] | None:
        """Return the nodes; None if they are not metered or cannot be listed, which is reported."""
        if not note.pool_label:
            return None
        try:
            return live_nodes(self.kube, self.namespace, note.pool_label)
        except KubeError as error:
            self.report(f"the nodes cannot be listed: {error.message}")
            return None

    def _refresh_topology(self) -> None:
        """Write new nodes into the table by which runs order their ranks."""
        try:
            if topology.refresh(self.kube, self.namespace):
                self.report("the table of the network's topology has the present nodes")
        except KubeError as error:  # ranks on new nodes come last until the next round
            self.report(f"the network's topology is not written: {error.message}")

    def _meter(self, note: Note, text: str, nodes: list[LiveNode] | None, kept: MovedEnd) -> Metered | None:
        """Add the time since the last round to the ledger; return None if the cost is not known.

        An error is reported: the end by the clock is enforced even so.
        """
        if nodes is None:
            return None
        now = self.now()
        try:
            ledger = CostLedger.of(text) if text else CostLedger.begun(_epoch(note.began, now))
            ended_at = _epoch(kept.expires, now) if kept.expires else None
            ledger = advance(ledger, nodes, note.tariffs, now.timestamp(), ended_at=ended_at)
            change = {"data": {METER: ledger.to_json()}}
            self.kube.patch("ConfigMap", NAME, change, namespace=self.namespace)
        except CloudrecError as error:
            self.report(f"the cost is not metered: {error.message}")
            return None
        hourly_usd = rate(nodes, note.tariffs)
        if ledger.usd is None or hourly_usd is None:
            self.report("the cost is not known: a pool has no price")
            return None
        self.report(f"{note.cluster.title} has cost ${ledger.usd:,.2f}, and costs ${hourly_usd:.2f}/h now")
        return Metered(
            at=now,
            spent_usd=ledger.usd,
            hourly_usd=hourly_usd,
            most_usd=most(ledger, nodes, note.tariffs, note.cluster.nodes),
        )

    def _repriced(self, note: Note, text: str, nodes: Sequence[LiveNode]) -> Note:
        """Return the orders with current spot prices, which it reads every 15 minutes, if it can."""
        record, now = SpotRecord.of(text), self.now().timestamp()
        record = record.located(nodes, note.tariffs)
        types = record.types(note.tariffs)
        if types and not 0 <= now - record.at < EVERY_S:  # a record may be of a clock that was ahead
            # After an error too, it asks again in 15 minutes only: the end must not wait for a price list.
            record = replace(record, at=now)
            try:
                pricer = self.pricer(note.cluster)
                if pricer is None:
                    return note
                prices = record.prices(note.tariffs, pricer.spot_now(note.cluster, types))
                record = replace(record, hourly_usd={**record.hourly_usd, **prices})
            except CloudrecError as error:
                self.report(f"the spot prices are those of before: {error.message}")
            self._keep(SPOT_PRICES, record.to_json())
        return replace(note, tariffs=record.applied(note.tariffs))

    def _mover(self, note: Note) -> MovesEnd | None:
        """Return what moves the end in the cloud; None if it stays there. An error is reported."""
        try:
            return self.mover(note.cluster) if is_movable(note.cluster) else None
        except CloudrecError as error:
            self.report(f"the end in the cloud stays: {error.message}")
            return None

    def _keep(self, key: str, text: str) -> None:
        """Write a key of the ConfigMap; an error is reported, since the next round writes it again."""
        try:
            self.kube.patch("ConfigMap", NAME, {"data": {key: text}}, namespace=self.namespace)
        except KubeError as error:
            self.report(f"{key} is not written: {error.message}")

    def _move_end(self, mover: MovesEnd, note: Note, metered: Metered, kept: MovedEnd) -> None:
        """Move the cloud's end to where the budget lasts at the highest price; an error is reported."""
        expires = moved(note.cluster, metered, kept) if kept.expires else ""
        if not expires:
            return
        try:
            pools = [tariff.pool for tariff in note.tariffs if tariff.gpus]
            mover.move_end(note.cluster.model_copy(update={"expires": expires}), pools)
        except CloudrecError as error:
            self.report(f"the cloud still ends the nodes at {kept.expires}: {error.message}")
            return
        self.report(f"the cloud ends the nodes at {expires}, no longer at {kept.expires}")
        self._keep(ENDING, replace(kept, expires=expires).to_json())

    def _stop_idle(self, note: Note, before: IdleRecord, nodes: list[LiveNode] | None) -> bool:
        """Scale the GPU nodes to zero if no run was active for the time that the user gave."""
        if note.cluster.autostop is None or nodes is None:
            return True
        now = self.now().timestamp()
        is_active = any(
            self._under_way(each) for each in launchers().values() if isinstance(each, KubeLauncher)
        )
        found = idleness(before, gpu_nodes(nodes, note.tariffs), is_active=is_active, now=now)
        record, is_done = found.record, True
        if found.idle_s is not None and found.idle_s >= seconds_of(note.cluster.autostop):
            self.report(
                f"no run was active for {found.idle_s / 60:.0f} minutes: the GPU nodes are scaled to zero"
            )
            done = self.halt(note.cluster)
            for left in done.left:
                self.report(f"left: {left}")
            is_done = not done.left or done.is_final
            record = replace(record, stopped=record.stopped or now)
        if record != before:
            change = {"data": {IDLE: record.to_json()}}
            self.kube.patch("ConfigMap", NAME, change, namespace=self.namespace)
        return is_done

    def _turns(self, note: Note) -> TurnKeeper | None:
        """Return this cluster's part in runs of several clusters; None for a cluster that has none."""
        if not (note.cluster.managed and note.storage):
            return None
        return TurnKeeper(
            cluster=note.cluster.title, storage=note.storage, open=self.open, report=self.report
        )

    def _stop_shared(self, note: Note) -> bool:
        """Write that the runs of several clusters which are here are stopped; return whether that is done."""
        turns = self._turns(note)
        if turns is None:
            return True
        try:
            stop_shared(self.kube, self.namespace, turns, self.now().timestamp())
        except KubeError as error:
            self.report(f"runs may move to another cluster: {error.message}")
            return False
        return True

    def _end_runs(self) -> bool:
        """Suspend every run and wait until its pods have ended; return False if a launcher's runs failed.

        The round scales the nodes down even if a run cannot be suspended.
        """
        began, asked, are_ended = time.monotonic(), False, True
        for launcher in launchers().values():
            if isinstance(launcher, KubeLauncher):
                try:
                    asked |= self._suspend(launcher)
                except KubeError as error:
                    are_ended = False
                    self.report(f"runs of {launcher.name} are not suspended: {error.message}")
        grace_s = self._grace_s() if asked else 0.0
        while asked and self._pods():
            if time.monotonic() - began > min(grace_s + _SPARE_S, _LONGEST_WAIT_S):
                self.report(f"{len(self._pods())} pods do not end; what they committed before is kept")
                break
            time.sleep(_POLL_S)
        return are_ended

    def _suspend(self, launcher: KubeLauncher) -> bool:
        """Suspend a launcher's runs in progress; return whether there were any."""
        under_way = self._under_way(launcher)
        for job in under_way:
            name = job["metadata"]["name"]
            self.report(f"run {name}: its cluster's end has come; it is suspended")
            engine = launcher.engine
            self.kube.patch(engine.kind, name, engine.suspension(), namespace=self.namespace)
        return bool(under_way)

    def _under_way(self, launcher: KubeLauncher) -> list[dict[str, Any]]:
        """Return a launcher's runs that have not ended and are not suspended."""
        engine = launcher.engine
        try:
            jobs = self.kube.list(engine.kind, namespace=self.namespace, labels=_RUNS)
        except (AbsentError, UsageError):  # the kind of an operator that is not installed
            return []
        return [
            job
            for job in jobs
            if engine.phase(job).state not in ("succeeded", "failed") and not engine.is_suspended(job)
        ]

    def _pods(self) -> list[dict[str, Any]]:
        """Return the trainer pods that have not ended; ended ones stay for their logs."""
        pods = self.kube.list("Pod", namespace=self.namespace, labels=f"{_RUNS},cloudrec/role=trainer")
        return [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]

    def _grace_s(self) -> float:
        return max(
            (pod["spec"].get("terminationGracePeriodSeconds") or 30 for pod in self._pods()), default=0
        )

    def _halt(self, note: Note, end: datetime, record: GuardRecord) -> bool:
        """Scale the GPU nodes to zero and record the result; return whether it is done."""
        now = self.now()
        if record.has_just_scaled(note, end, now):
            return True
        done = self.halt(note.cluster)
        for pool in done.pools:
            self.report(f"{pool}: its nodes go")
        for left in done.left:
            self.report(f"left: {left}")
        made = GuardRecord(
            end=end.isoformat(),
            budget_usd=note.cluster.budget_usd,
            halted=not done.left or done.is_final,
            at=now.isoformat(),
            pools=tuple(done.pools),
            left=tuple(done.left),
        )
        # A round that changed nothing writes nothing: its record would differ in the time only.
        if made.pools or replace(made, at=record.at) != record:
            change = {"data": {RECORD: json.dumps(asdict(made))}}
            self.kube.patch("ConfigMap", NAME, change, namespace=self.namespace)
        return made.halted


def halting(home: Path, environment: Mapping[str, str]) -> Callable[[ClusterSpec], Halt]:
    """Return a function that scales a cluster's GPU nodes to zero, with any provider.

    Args:
        home: a folder for the provider's files.
        environment: the credentials of the guard's identity.
    """

    def halt(cluster: ClusterSpec) -> Halt:
        provider = providers.load(cluster.provider, home=Home(root=home), environment=environment)
        return provider.halt(cluster) if isinstance(provider, CanScaleToZero) else Halt()

    return halt


def pricing(home: Path, environment: Mapping[str, str]) -> Callable[[ClusterSpec], KnowsSpotPrices | None]:
    """Return a function that returns a cluster's provider if it knows spot prices. See `halting`."""

    def pricer(cluster: ClusterSpec) -> KnowsSpotPrices | None:
        provider = providers.load(cluster.provider, home=Home(root=home), environment=environment)
        return provider if isinstance(provider, KnowsSpotPrices) else None

    return pricer


def moving(home: Path, environment: Mapping[str, str]) -> Callable[[ClusterSpec], MovesEnd | None]:
    """Return a function that returns a cluster's provider if it moves ends. The arguments are `halting`'s."""

    def mover(cluster: ClusterSpec) -> MovesEnd | None:
        provider = providers.load(cluster.provider, home=Home(root=home), environment=environment)
        return provider if isinstance(provider, MovesEnd) else None

    return mover


def sizing(home: Path, environment: Mapping[str, str]) -> Callable[[ClusterSpec], SizesPools | None]:
    """Return a function that returns a cluster's provider if it sizes pools. See `halting`."""

    def sizer(cluster: ClusterSpec) -> SizesPools | None:
        provider = providers.load(cluster.provider, home=Home(root=home), environment=environment)
        return provider if isinstance(provider, SizesPools) else None

    return sizer


def main(arguments: Sequence[str]) -> int:
    """Make one round, or rounds for some time; return 0 if the last did all that was due, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m cloudrec.agent guard", allow_abbrev=False)
    parser.add_argument("--for", dest="shift_s", type=float, default=0.0, help="seconds until the last round")
    parser.add_argument(
        "--every", dest="pause_s", type=float, default=120.0, help="seconds between two rounds"
    )
    options = parser.parse_args(arguments)
    if options.shift_s:  # the first process of a container ignores SIGTERM unless it handles it
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    gauges = serve(os.environ) if options.shift_s else None
    began = time.monotonic()
    while True:
        code = _one_round(gauges)
        # The next pod would come too late for a pause that reaches beyond the end.
        if time.monotonic() - began + options.pause_s > options.shift_s:
            return code
        time.sleep(options.pause_s)


def _epoch(text: str, otherwise: datetime) -> float:
    return (datetime.fromisoformat(text) if text else otherwise).timestamp()


def _one_round(gauges: KeeperGauges | None) -> int:
    with TemporaryDirectory(prefix="cloudrec-guard-") as folder:
        place = in_cluster.place(os.environ, folder)
        environment = {**os.environ, "KUBECONFIG": str(place.kubeconfig)}
        with place.connect() as kube:
            home = place.kubeconfig.parent
            guard = Guard(
                kube=kube,
                namespace=place.namespace,
                halt=halting(home, environment),
                mover=moving(home, environment),
                pricer=pricing(home, environment),
                sizer=sizing(home, environment),
                identity=f"{os.environ.get('HOSTNAME', 'keeper')}-{os.getpid()}",
                secrets=secrets_from(os.environ),
                gauges=gauges,
            )
            try:
                is_done = guard.round()
            except CloudrecError as error:
                print(f"error: {error.message}\n{error.remedy or ''}".rstrip(), flush=True)
                if gauges is not None:
                    gauges.failed()
                return 1
    Path(MARK).touch()  # for the pod's readiness probe: this guard could read its orders
    return 0 if is_done else 1
