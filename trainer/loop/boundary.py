"""The agreement of all ranks between two steps: one exchange of a few numbers, about once a second."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import torch

from cloudrec_contract.interval import CheckpointTimer, Every, SaveCosts, StopPlan, plan_stop
from trainer.preempt import StopFlag, open_watches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer.base.config import TrainerConfig
    from trainer.base.distributed import World
    from trainer.report.ledger import GoodputLedger

POLL_S = 1.0  # between two exchanges, in steps of the slowest rank; at least one step
MOST_STEPS = 128  # between two exchanges: each one's samples are kept, in case that its loss is bad


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVerdict:
    """The decision after a step, which is the same on all ranks.

    Args:
        stop: leave the loop.
        save: save a checkpoint; at a stop, there is time for one.
        seconds_left: until the first machine ends; infinity if that is not known.
        bad_step: the first step whose loss was found to be bad since the last exchange; 0 for none.
    """

    stop: bool = False
    save: bool = False
    seconds_left: float = math.inf
    bad_step: int = 0


@dataclass(frozen=True, slots=True)
class Wish:
    """The numbers that one rank contributes to an exchange."""

    stop: float
    impatient: float  # a user or a platform waits for it to end
    announced: float  # its machine ends at a fixed time, so that no one gains by an earlier end
    seconds_left: float
    write_s: float  # of its slowest recent save; negative if there was none
    due: float  # a checkpoint, by time or by advice
    bad_step: float
    step_s: float


class Boundary:
    """Exchanges the ranks' wishes and decides; every rank calls every method at the same steps."""

    def __init__(self, world: World, stop: StopFlag, timer: CheckpointTimer, ledger: GoodputLedger) -> None:
        self.world = world
        self.stop = stop
        self.timer = timer
        self.ledger = ledger
        self._next_step = 0  # of the next exchange
        self._gap = 1  # steps from the last exchange to the next one
        self._asked_step = 0
        self._asked_at = time.monotonic()

    def begin(self, step: int) -> None:
        """Start to count the steps after `step`."""
        self._asked_step, self._asked_at = step, time.monotonic()
        self._gap = 1
        self._next_step = step + 1
        self.timer.begin(self.ledger.elapsed)

    def is_due(self, step: int, *, last: bool) -> bool:
        """Whether the ranks exchange after this step; the same on all ranks."""
        if last or step >= self._next_step or self.saves(step):
            return True
        return self.world.size == 1 and time.monotonic() - self._asked_at >= POLL_S

    def ask(self, step: int, *, last: bool, committed: bool, bad_step: int) -> StepVerdict:
        """Exchange and decide; call it only if `is_due`. Collective.

        Args:
            step: the number of steps done.
            last: whether this is the run's last step.
            committed: whether there is a committed checkpoint.
            bad_step: the first step with a bad loss on this rank; 0 for none.
        """
        wishes = self._exchange(self._wish(step, bad_step))
        # All ranks compute the next step from the slowest rank's time, so they choose the same one. A gap at
        # most doubles: a few quick steps do not show how long the next hundred will take.
        slowest_step_s = max(wish.step_s for wish in wishes)
        gap = min(max(int(POLL_S / max(slowest_step_s, 1e-9)), 1), 2 * self._gap, MOST_STEPS)
        self._gap, self._next_step = gap, step + gap
        found = min((int(wish.bad_step) for wish in wishes if wish.bad_step), default=0)
        seconds_left = min(wish.seconds_left for wish in wishes)
        if last or not any(wish.stop for wish in wishes):
            due = self.saves(step) or any(wish.due for wish in wishes)
            return StepVerdict(save=due, seconds_left=seconds_left, bad_step=found)
        patient = _is_patient(wishes, self.world.local_size)
        plan = _plan(wishes, seconds_left - gap * slowest_step_s, committed=committed, patient=patient)
        if plan.when == "later":
            return StepVerdict(save=self.saves(step), seconds_left=seconds_left, bad_step=found)
        return StepVerdict(stop=True, save=plan.save, seconds_left=seconds_left, bad_step=found)

    def _wish(self, step: int, bad_step: int) -> Wish:
        now = time.monotonic()
        step_s = (now - self._asked_at) / max(step - self._asked_step, 1)
        self._asked_step, self._asked_at = step, now
        advised = self.stop.take_advice() is not None
        now_s = self.ledger.elapsed
        by_time = self.world.is_first and (
            self.timer.retry_due(now_s) or (not self.timer.by_steps and self.timer.due(step, now_s))
        )
        costs = self.timer.costs
        return Wish(
            stop=float(self.stop.requested),
            impatient=float(not self.stop.patient),
            announced=float(self.stop.announced),
            seconds_left=self.stop.seconds_left,
            write_s=costs.write_s if costs.known else -1.0,
            due=float(advised or by_time),
            bad_step=float(bad_step),
            step_s=step_s,
        )

    def _exchange(self, wish: Wish) -> list[Wish]:
        answers = self.world.gather(torch.tensor(astuple(wish), dtype=torch.float64))
        return [Wish(*answer.tolist()) for answer in answers]

    def first_of(self, bad_step: int) -> int:
        """Return the first step with a bad loss on any rank; 0 for none. Collective."""
        return min((step for step in self.world.gather_lists([bad_step]) if step), default=0)

    def saves(self, step: int) -> bool:
        """Whether a checkpoint is due by the number of steps."""
        return self.timer.by_steps and self.timer.due(step, 0.0)


def _is_patient(wishes: list[Wish], local_size: int) -> bool:
    """Whether the ranks that must stop may train until their machines end.

    One rank of a machine reads its notices. The others have the signal alone, which a user sends as well.
    """
    announced = {rank // local_size for rank, wish in enumerate(wishes) if wish.announced}
    return not any(
        wish.stop and wish.impatient and rank // local_size not in announced
        for rank, wish in enumerate(wishes)
    )


def _plan(wishes: list[Wish], seconds_left: float, *, committed: bool, patient: bool) -> StopPlan:
    writes_s = [wish.write_s for wish in wishes if wish.write_s >= 0]
    costs = SaveCosts([0.0], [max(writes_s)]) if writes_s else SaveCosts()
    return plan_stop(seconds_left, costs, committed=committed, decided_elsewhere=patient)


@contextmanager
def watching(config: TrainerConfig, world: World) -> Iterator[StopFlag]:
    """Handle signals; on one rank per machine, also watch the cloud's notices."""
    names = config.preemption_notices if world.local_rank == 0 else ()
    lead_s = config.preemption_notice_seconds
    with open_watches(names, config.metadata_urls, lead_s=lead_s) as watches:
        stop = StopFlag(watches, grace_s=config.stop_grace_seconds)
        stop.install()
        try:
            yield stop
        finally:
            stop.uninstall()


def make_boundary(
    config: TrainerConfig, world: World, stop: StopFlag, ledger: GoodputLedger, *, resumable: bool
) -> Boundary:
    """Return the boundary for a configuration, with the costs and up-times from the ledger.

    With a dataset that is not `resumable`, `auto` saves only at the end and at a stop. Such a run is refused
    when a checkpoint exists, so a checkpoint after a crash would prevent even a restart from the first step.
    """
    every = config.checkpoint_every
    timer = CheckpointTimer(
        Every(steps=0) if every.auto and not resumable else every,
        costs=ledger.costs,
        past=ledger.uptimes,
        machines=max(world.size // world.local_size, 1),
        uptime_s=config.machine_uptime_s,
    )
    return Boundary(world, stop, timer, ledger)
