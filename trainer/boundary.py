"""What all ranks agree on between two steps: one exchange of a few numbers, every few steps."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import torch

from trainer.interval import CheckpointTimer, SaveCosts, StopPlan, plan_stop
from trainer.preempt import StopFlag, open_watches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer.config import TrainerConfig
    from trainer.distributed import World
    from trainer.ledger import GoodputLedger

POLL_STEPS = 5  # steps between two exchanges at most: one costs less than a step, not nothing
POLL_S = 1.0  # and about so many seconds, where steps are long


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to be done after a step, the same on all ranks.

    Args:
        stop: leave the loop.
        save: a checkpoint is due; at a stop, there is time for one.
        seconds_left: until the first machine goes; infinity where nobody knows.
        bad_step: the first step whose loss was found to be bad since the last exchange; 0 for none.
    """

    stop: bool = False
    save: bool = False
    seconds_left: float = math.inf
    bad_step: int = 0


@dataclass(frozen=True, slots=True)
class Wish:
    """What one rank brings to an exchange."""

    stop: float
    impatient: float  # somebody waits for its end
    seconds_left: float
    write_s: float  # of its slowest save lately; negative where it knows of none
    due: float  # a checkpoint, by time or by advice
    bad_step: float
    step_s: float


class Boundary:
    """Asks the other ranks; every method is called by all ranks alike, at the same steps."""

    def __init__(self, world: World, stop: StopFlag, timer: CheckpointTimer, ledger: GoodputLedger) -> None:
        self.world = world
        self.stop = stop
        self.timer = timer
        self.ledger = ledger
        self._next_step = 0  # at which to ask
        self._asked_step = 0
        self._asked_at = time.monotonic()

    def begin(self, step: int) -> None:
        """The steps after `step` begin."""
        self._asked_step, self._asked_at = step, time.monotonic()
        self._next_step = step - step % POLL_STEPS + POLL_STEPS
        self.timer.begin(self.ledger.elapsed)

    def is_due(self, step: int, *, last: bool) -> bool:
        """Whether the ranks talk after this step."""
        return last or step >= self._next_step or self._due_by_steps(step)

    def ask(self, step: int, *, last: bool, committed: bool, bad_step: int) -> Verdict:
        """Exchange and judge; only where it `is_due`.

        `committed` tells whether there is a checkpoint to go back to, `bad_step` what this rank found.
        """
        wishes = self._exchange(self._wish(step, bad_step))
        slowest_step_s = max(wish.step_s for wish in wishes)
        gap = min(max(int(POLL_S / max(slowest_step_s, 1e-9)), 1), POLL_STEPS)
        self._next_step = step - step % gap + gap
        found = min((int(wish.bad_step) for wish in wishes if wish.bad_step), default=0)
        seconds_left = min(wish.seconds_left for wish in wishes)
        if last or not any(wish.stop for wish in wishes):
            due = self._due_by_steps(step) or any(wish.due for wish in wishes)
            return Verdict(save=due, seconds_left=seconds_left, bad_step=found)
        plan = _plan(wishes, seconds_left - gap * slowest_step_s, committed=committed)
        if plan.when == "later":
            return Verdict(save=self._due_by_steps(step), seconds_left=seconds_left, bad_step=found)
        return Verdict(stop=True, save=plan.save, seconds_left=seconds_left, bad_step=found)

    def _wish(self, step: int, bad_step: int) -> Wish:
        now = time.monotonic()
        step_s = (now - self._asked_at) / max(step - self._asked_step, 1)
        self._asked_step, self._asked_at = step, now
        advised = self.stop.take_advice() is not None
        by_time = (
            self.world.is_first and not self.timer.by_steps and self.timer.due(step, self.ledger.elapsed)
        )
        costs = self.timer.costs
        return Wish(
            stop=float(self.stop.requested),
            impatient=float(not self.stop.patient),
            seconds_left=self.stop.seconds_left,
            write_s=costs.write_s if costs.known else -1.0,
            due=float(advised or by_time),
            bad_step=float(bad_step),
            step_s=step_s,
        )

    def _exchange(self, wish: Wish) -> list[Wish]:
        answers = self.world.gather(torch.tensor(astuple(wish), dtype=torch.float64))
        return [Wish(*answer.tolist()) for answer in answers]

    def _due_by_steps(self, step: int) -> bool:
        return self.timer.by_steps and self.timer.due(step, 0.0)


def _plan(wishes: list[Wish], seconds_left: float, *, committed: bool) -> StopPlan:
    writes_s = [wish.write_s for wish in wishes if wish.write_s >= 0]
    costs = SaveCosts([0.0], [max(writes_s)]) if writes_s else SaveCosts()
    patient = not any(wish.stop and wish.impatient for wish in wishes)
    return plan_stop(seconds_left, costs, committed=committed, decided_elsewhere=patient)


@contextmanager
def watching(config: TrainerConfig, world: World) -> Iterator[StopFlag]:
    """Take over the signals; on one rank a machine, listen to what its cloud announces."""
    names = config.preemption_notices if world.local_rank == 0 else ()
    urls = {
        "aws": config.aws_metadata_url,
        "azure": config.azure_metadata_url,
        "gcp": config.gcp_metadata_url,
    }
    with open_watches(names, urls) as watches:
        stop = StopFlag(watches, grace_s=config.stop_grace_seconds)
        stop.install()
        try:
            yield stop
        finally:
            stop.uninstall()


def make_boundary(config: TrainerConfig, world: World, stop: StopFlag, ledger: GoodputLedger) -> Boundary:
    """As configured, with what the ledger tells of the past."""
    timer = CheckpointTimer(
        config.checkpoint_every,
        costs=ledger.costs,
        past=ledger.uptimes,
        machines=max(world.size // world.local_size, 1),
    )
    return Boundary(world, stop, timer, ledger)
