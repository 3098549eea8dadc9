"""Where a run's time went, over all its attempts: added up from what its ledger tells."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Self

from trainer.interval import Uptime

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(slots=True)
class Spent:
    """What the time since the first step of an attempt was spent on, in seconds."""

    steps: float = 0.0  # with their waits for data
    data_wait: float = 0.0
    checkpoint: float = 0.0
    evaluation: float = 0.0


@dataclass(slots=True, kw_only=True)
class Goodput:
    """All time since the run was first started, split, in seconds.

    Args:
        productive: in steps whose results were kept, waits for data left out.
        lost: from the checkpoint gone on from to the last sign of life: what had to be done again.
        checkpoint: the steps stood still for a checkpoint.
        restart: from a process's start to its first step, and until then while a launcher starts it again.
        data_wait: steps waited for data.
        evaluation: scoring the test split.
        idle: the rest: nobody was running it, or ranks waited for one another between steps.
    """

    productive: float = 0.0
    lost: float = 0.0
    checkpoint: float = 0.0
    restart: float = 0.0
    data_wait: float = 0.0
    evaluation: float = 0.0
    idle: float = 0.0

    def __add__(self, other: Self) -> Goodput:
        """Both together."""
        return Goodput(
            **{part.name: getattr(self, part.name) + getattr(other, part.name) for part in fields(self)}
        )

    @property
    def total(self) -> float:
        """All of it."""
        return sum(asdict(self).values())

    @property
    def fraction(self) -> float:
        """The part that was productive."""
        return self.productive / max(self.total, 1e-9)

    def to_json(self) -> dict[str, float]:
        """The parts by name, with `_s` for the unit."""
        return {f"{name}_s": round(seconds, 3) for name, seconds in asdict(self).items()}


@dataclass(slots=True)
class Mark:
    """How far an attempt was at some moment."""

    elapsed: float
    step: int
    spent: Spent


@dataclass(slots=True, kw_only=True)
class Attempt:
    """What the ledger tells of one start of the run."""

    restarted: bool
    boot: str
    boot_s: float
    time: float
    elapsed: float = 0.0  # at its last sign of life
    begun: float | None = None  # elapsed when its first step began
    first_step: int = 0
    marks: list[Mark] = field(default_factory=list)
    status: str | None = None
    saved: bool = False  # at its end

    def gap_to(self, later: Attempt) -> float:
        """Seconds from this one's last sign of life to the later one's start, whatever the clocks did.

        On one machine since one boot, a clock tells that nobody can set; else the times of day must do.
        """
        if self.boot and self.boot == later.boot:
            return max(later.boot_s - self.boot_s - self.elapsed, 0.0)
        return max(later.time - self.time - self.elapsed, 0.0)

    def split(self, kept_step: float) -> Goodput:
        """This attempt's time, if of its steps those up to `kept_step` were kept."""
        if self.begun is None:
            return Goodput(restart=self.elapsed)
        kept = Mark(self.begun, self.first_step, Spent())
        for mark in self.marks:
            if mark.step <= kept_step:
                kept = mark
        all_kept = not self.marks or self.marks[-1].step <= kept_step
        until = self.elapsed if all_kept else kept.elapsed
        spent = kept.spent
        busy = spent.steps + spent.checkpoint + spent.evaluation
        return Goodput(
            productive=max(spent.steps - spent.data_wait, 0.0),
            lost=self.elapsed - until,
            checkpoint=spent.checkpoint,
            restart=self.begun,
            data_wait=spent.data_wait,
            evaluation=spent.evaluation,
            idle=max(until - self.begun - busy, 0.0),
        )


def account(attempts: Sequence[Attempt]) -> Goodput:
    """Add up all attempts, oldest first."""
    total, kept_step = Goodput(), math.inf
    for number in reversed(range(len(attempts))):
        attempt = attempts[number]
        total += attempt.split(kept_step)
        if attempt.begun is not None:
            kept_step = min(kept_step, attempt.first_step)
        if number:
            gap = attempts[number - 1].gap_to(attempt)
            total += Goodput(restart=gap) if attempt.restarted else Goodput(idle=gap)
    return total


def uptimes(attempts: Iterable[Attempt]) -> list[Uptime]:
    """How long each attempt that came to work lived, and whether it ended without word."""
    return [
        Uptime(
            attempt.elapsed,
            lost=attempt.status is None or (attempt.status == "stopped" and not attempt.saved),
        )
        for attempt in attempts
        if attempt.begun is not None
    ]
