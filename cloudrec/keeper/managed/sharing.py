"""Runs that move between the clusters of several regions: taking, keeping and offering a run.

The keepers never talk to each other. Each reads the run's turns in the storage that the clusters share (see
`launchers.kubernetes.turns`), in every round, and writes the next turn. Between two keepers the storage
decides, since only one of them can create a turn's file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.launchers.kubernetes.turns import ACCEPT_S, Turn, create_turn, newest_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.keeper.managed.record import KeptRun
    from cloudrec.keeper.managed.runs import ManagedRun
    from cloudrec.launchers.base.results_store import Place


@dataclass(frozen=True, kw_only=True)
class TurnKeeper:
    """One cluster's part in the runs of several clusters.

    Attributes:
        cluster: the cluster's name.
        open: returns the folder of a run's turns.
        report: receives a line for each turn, and for each that cannot be read.
    """

    cluster: str
    open: Callable[[str], Place]
    report: Callable[[str], None]

    def look(self, run: ManagedRun, known: Turn | None, now: float) -> Turn | None:
        """Return the newest turn of a run, after taking the run if it is offered to this cluster.

        Args:
            run: the run.
            known: the turn as it was last read; counts if the storage does not answer.
            now: the time, in seconds since the epoch.
        """
        try:
            place = self.open(run.name)
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
                step=kept.step if kept.saved is None else kept.saved,
                steps=kept.steps,
            ),
        )

    def close(self, run: ManagedRun, turn: Turn, now: float) -> Turn | None:
        """Write that a run has ended here; return the new turn, None if that failed."""
        ended = replace(turn, number=turn.number + 1, by=self.cluster, at=now, reason="", ended=run.ended)
        return self._write(run, ended)

    def _may_take(self, run: ManagedRun, turn: Turn, now: float) -> bool:
        """Return whether this cluster is offered a run, or another one has not taken it in time."""
        if turn.is_taken or turn.ended or turn.launch != run.launch or not run.is_wanted:
            return False
        if self.cluster not in turn.clusters:
            return False
        # Each cluster that takes no offer gives the next one its chance.
        order = turn.clusters
        later = (order.index(self.cluster) - order.index(turn.cluster)) % len(order)
        return later == 0 or now - turn.at > later * ACCEPT_S

    def _write(self, run: ManagedRun, turn: Turn) -> Turn | None:
        try:
            if create_turn(self.open(run.name), turn):
                return turn
        except CloudrecError as error:
            self.report(f"run {run.name}: its turn is not written: {error.message}")
        return None
