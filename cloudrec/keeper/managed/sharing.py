"""Runs that move between the clusters of several regions: taking, keeping and offering a run.

The keepers never talk to each other. Each reads the run's turns in the storage that the clusters share (see
`launchers.kubernetes.turns`), in every round, and writes the next turn. Between two keepers the storage
decides, since only one of them can create a turn's file.

A keeper that has a run writes a turn every `RENEW_S`. Another keeper takes the run if no turn has come for
`SILENT_S`, and if the run's pods have written nothing into its folder for `QUIET_S` since then: nodes whose
control plane has failed may continue to train.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.keeper.managed.record import SilentRun
from cloudrec.launchers.kubernetes.turns import (
    ACCEPT_S,
    RENEW_S,
    STOPPED,
    Turn,
    create_turn,
    newest_turn,
)
from cloudrec_contract.layout import run_uri, turns_uri

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.keeper.managed.record import KeptRun, ManagedRecord
    from cloudrec.keeper.managed.runs import ManagedRun
    from cloudrec.launchers.base.results_store import Place

SILENT_S = 2 * RENEW_S  # since the newest turn: two more are missing
QUIET_S = 600.0
_PODS = "pods/"  # the folder below a run's where its pods copy their logs, every few seconds


@dataclass(frozen=True, kw_only=True)
class SharedRun:
    """What a keeper has seen of a run of several clusters.

    Attributes:
        turn: its newest turn; None if it is not known.
        silent: since when the run's keeper and its pods are silent; None if they are not.
        event: what is to be noted about the run; empty for nothing.
    """

    turn: Turn | None
    silent: SilentRun | None = None
    event: str = ""

    def noted_in(self, record: ManagedRecord, run: str) -> ManagedRecord:
        """Return the record with this."""
        if self.turn is not None:
            record = replace(record, turns={**record.turns, run: self.turn})
        if self.silent is not None:
            record = replace(record, silent={**record.silent, run: self.silent})
        return record.noting(self.event, run=run) if self.event else record


@dataclass(frozen=True, kw_only=True)
class TurnKeeper:
    """One cluster's part in the runs of several clusters.

    Attributes:
        cluster: the cluster's name.
        storage: URI of the storage that the clusters share.
        open: returns the folder of a URI.
        report: receives a line for each turn, and for each that cannot be read.
    """

    cluster: str
    storage: str
    open: Callable[[str], Place]
    report: Callable[[str], None]

    def see(self, run: ManagedRun, record: ManagedRecord) -> SharedRun:
        """Return a run's newest turn, after the turn that this cluster has to write.

        The cluster takes a run that is offered to it, or whose cluster has failed, and closes one that has
        ended here.
        """
        known = record.turns.get(run.name)
        if _is_over(run, known):
            return SharedRun(turn=known)
        turn = self.look(run, known, record.at)
        if turn is None:
            return SharedRun(turn=None)
        if self.has(run, turn) and run.ended:
            return SharedRun(turn=self.close(run, turn, record.at) or turn)
        silent = self.silence(run, turn, record.silent.get(run.name), record.at)
        taken = self.take_over(run, turn, silent, record.at) if silent is not None else None
        if taken is None:
            return SharedRun(turn=turn, silent=silent)
        self.report(f"run {run.name}: {taken.reason}: it is in this cluster now")
        return SharedRun(turn=taken, event=f"{taken.reason}: the run continues here")

    def look(self, run: ManagedRun, known: Turn | None, now: float) -> Turn | None:
        """Return the newest turn of a run, after taking the run if it is offered to this cluster.

        Args:
            run: the run.
            known: the turn as it was last read; counts if the storage does not answer.
            now: the time, in seconds since the epoch.
        """
        try:
            place = self._turns(run)
            turn = newest_turn(place)
            if turn is None:  # a run that has begun has one: its folder was removed
                return known
            if not self._may_take(run, turn, now):
                return turn
            taken = replace(turn, number=turn.number + 1, cluster=self.cluster, by=self.cluster, at=now)
            if not create_turn(place, taken):
                return newest_turn(place)
        except CloudrecError as error:
            self.report(f"run {run.name}: its turns cannot be used: {error.message}")
            return known
        self.report(f"run {run.name} is in this cluster now")
        return taken

    def newest(self, run: ManagedRun) -> Turn | None:
        """Return the newest turn of a run; None if there is none, or it cannot be read, which is reported."""
        try:
            return newest_turn(self._turns(run))
        except CloudrecError as error:
            self.report(f"run {run.name}: its turns cannot be used: {error.message}")
            return None

    def has(self, run: ManagedRun, turn: Turn | None) -> bool:
        """Return whether this cluster has a run: this launch of it, and it has not ended elsewhere."""
        if turn is None or turn.launch != run.launch or turn.ended:
            return False
        return turn.is_taken and turn.cluster == self.cluster

    def offer(self, run: ManagedRun, turn: Turn, kept: KeptRun, now: float) -> Turn | None:
        """Offer a run without nodes to the next cluster; return the new turn, None if that failed."""
        return self._write(
            run,
            replace(
                turn,
                number=turn.number + 1,
                cluster=turn.after(self.cluster),
                by=self.cluster,
                at=now,
                reason=kept.reason,
                step=kept.sure_step,
                steps=kept.steps,
            ),
        )

    def renew(self, run: ManagedRun, turn: Turn, kept: KeptRun, now: float) -> Turn | None:
        """Write that this cluster still has a run, if it is time; return the new turn, None for none."""
        if now - turn.at < RENEW_S:
            return None
        renewed = replace(turn, number=turn.number + 1, at=now, step=kept.sure_step, steps=kept.steps)
        return self._write(run, renewed)

    def close(self, run: ManagedRun, turn: Turn, now: float) -> Turn | None:
        """Write that a run has ended here, or is stopped; return the new turn, None if that failed."""
        why = run.ended or STOPPED
        ended = replace(turn, number=turn.number + 1, by=self.cluster, at=now, reason="", ended=why)
        return self._write(run, ended)

    def silence(self, run: ManagedRun, turn: Turn, known: SilentRun | None, now: float) -> SilentRun | None:
        """Return since when the pods of a run have been silent, None if its keeper reports.

        Args:
            run: the run.
            turn: its newest turn.
            known: the result of the round before.
            now: the time, in seconds since the epoch.
        """
        is_due = turn.is_taken and turn.cluster != self.cluster and now - turn.at > SILENT_S
        if not (is_due and self._may_have(run, turn)):
            return None
        try:
            sizes = self.open(run_uri(self.storage, run.name)).sizes(_PODS)
        except CloudrecError as error:  # without an answer, the pods may write
            self.report(f"run {run.name}: what its pods write is not known: {error.message}")
            return None
        files = hashlib.sha256(repr(sorted(sizes.items())).encode()).hexdigest()
        if known is not None and (known.number, known.files) == (turn.number, files):
            return known
        return SilentRun(number=turn.number, files=files, since=now)

    def take_over(self, run: ManagedRun, turn: Turn, silent: SilentRun, now: float) -> Turn | None:
        """Take a run of a cluster that has failed; return the new turn, None if it is too soon."""
        # The clusters after the next one give it time to take the run.
        if now - silent.since <= QUIET_S + (self._distance(turn) - 1) * ACCEPT_S:
            return None
        why = f"cluster {turn.cluster} has not reported for {(now - turn.at) / 60:.0f} minutes"
        taken = replace(
            turn, number=turn.number + 1, cluster=self.cluster, by=self.cluster, at=now, reason=why
        )
        return self._write(run, taken)

    def _may_take(self, run: ManagedRun, turn: Turn, now: float) -> bool:
        """Return whether this cluster is offered a run, or another one has not taken it in time."""
        if turn.is_taken or not self._may_have(run, turn):
            return False
        # Each cluster that takes no offer gives the next one its chance.
        later = self._distance(turn)
        return later == 0 or now - turn.at > later * ACCEPT_S

    def _may_have(self, run: ManagedRun, turn: Turn) -> bool:
        """Return whether this cluster can train this launch of a run."""
        is_alive = turn.launch == run.launch and not turn.ended and run.is_wanted
        return is_alive and self.cluster in turn.clusters

    def _distance(self, turn: Turn) -> int:
        """Return how many places after the turn's cluster this one has in the list."""
        order = turn.clusters
        return (order.index(self.cluster) - order.index(turn.cluster)) % len(order)

    def _turns(self, run: ManagedRun) -> Place:
        return self.open(turns_uri(self.storage, run.name))

    def _write(self, run: ManagedRun, turn: Turn) -> Turn | None:
        try:
            if create_turn(self._turns(run), turn):
                return turn
        except CloudrecError as error:
            self.report(f"run {run.name}: its turn is not written: {error.message}")
        return None


def _is_over(run: ManagedRun, turn: Turn | None) -> bool:
    """Return whether a run's turns need not be read again: this launch has ended, as they say already."""
    return turn is not None and bool(turn.ended) and turn.launch == run.launch and not run.is_queued
