"""The use of a run's time over all its attempts, summed up from its ledger."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Self

from cloudrec_contract.interval import Uptime

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(slots=True)
class Spent:
    """The use of an attempt's time since its first step, in seconds."""

    steps: float = 0.0  # including waits for data
    data_wait: float = 0.0
    checkpoint: float = 0.0
    evaluation: float = 0.0


@dataclass(slots=True, kw_only=True)
class GoodputParts:
    """All time since the first start of the run, by its use, in seconds.

    Args:
        productive: steps whose results were kept, without waits for data.
        lost: from the checkpoint that was resumed from to the last ledger entry: steps that were repeated.
        checkpoint: pauses of training for checkpoints.
        restart: from a process's start to its first step, and while a launcher restarts the process.
        data_wait: waits of steps for data.
        evaluation: scoring the test split.
        idle: the rest: the run was not running, or ranks waited for each other between steps.
    """

    productive: float = 0.0
    lost: float = 0.0
    checkpoint: float = 0.0
    restart: float = 0.0
    data_wait: float = 0.0
    evaluation: float = 0.0
    idle: float = 0.0

    def __add__(self, other: Self) -> GoodputParts:
        """Return the sums of both."""
        return GoodputParts(
            **{part.name: getattr(self, part.name) + getattr(other, part.name) for part in fields(self)}
        )

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return sum(asdict(self).values())

    @property
    def fraction(self) -> float:
        """The productive part, from 0 to 1."""
        return self.productive / max(self.total, 1e-9)

    def to_json(self) -> dict[str, float]:
        """Return the parts by name, with the suffix `_s` for seconds."""
        return {f"{name}_s": round(seconds, 3) for name, seconds in asdict(self).items()}


@dataclass(slots=True)
class Mark:
    """The progress of an attempt at some moment."""

    elapsed: float
    step: int
    spent: Spent


@dataclass(slots=True, kw_only=True)
class AttemptRecord:
    """One start of the run, from its ledger."""

    restarted: bool
    boot: str
    boot_s: float
    time: float
    elapsed: float = 0.0  # at its last entry
    begun: float | None = None  # elapsed when its first step began
    first_step: int = 0
    marks: list[Mark] = field(default_factory=list)
    status: str | None = None
    saved: bool = False  # at its end

    def gap_to(self, later: AttemptRecord) -> float:
        """Return the seconds from this attempt's last entry to the later attempt's start; never negative.

        Uses the boot clock if both ran on one machine since the same boot, otherwise the times of day.
        """
        if self.boot and self.boot == later.boot:
            return max(later.boot_s - self.boot_s - self.elapsed, 0.0)
        return max(later.time - self.time - self.elapsed, 0.0)

    def split(self, kept_step: float) -> GoodputParts:
        """Return the use of this attempt's time if its steps up to `kept_step` were kept."""
        if self.begun is None:
            return GoodputParts(restart=self.elapsed)
        kept = Mark(self.begun, self.first_step, Spent())
        for mark in self.marks:
            if mark.step <= kept_step:
                kept = mark
        all_kept = not self.marks or self.marks[-1].step <= kept_step
        until = self.elapsed if all_kept else kept.elapsed
        spent = kept.spent
        busy = spent.steps + spent.checkpoint + spent.evaluation
        return GoodputParts(
            productive=max(spent.steps - spent.data_wait, 0.0),
            lost=self.elapsed - until,
            checkpoint=spent.checkpoint,
            restart=self.begun,
            data_wait=spent.data_wait,
            evaluation=spent.evaluation,
            idle=max(until - self.begun - busy, 0.0),
        )


def account(attempts: Sequence[AttemptRecord]) -> GoodputParts:
    """Return the sum over all attempts, given oldest first."""
    # From the newest attempt back: a step was kept if no later attempt started before it.
    total, kept_step = GoodputParts(), math.inf
    for number in reversed(range(len(attempts))):
        attempt = attempts[number]
        total += attempt.split(kept_step)
        if attempt.begun is not None:
            kept_step = min(kept_step, attempt.first_step)
        if number:
            gap = attempts[number - 1].gap_to(attempt)
            total += GoodputParts(restart=gap) if attempt.restarted else GoodputParts(idle=gap)
    return total


def uptimes(attempts: Iterable[AttemptRecord]) -> list[Uptime]:
    """Return the up-time of each attempt that reached a step, and whether it ended without saving."""
    return [
        Uptime(
            attempt.elapsed,
            lost=attempt.status is None or (attempt.status == "stopped" and not attempt.saved),
        )
        for attempt in attempts
        if attempt.begun is not None
    ]
