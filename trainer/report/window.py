"""The figures of the steps since the last line of metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from trainer.report.late import LateCopy

if TYPE_CHECKING:
    from torch import Tensor


class Window:
    """Sums over the steps since the last line, and the clock of the current step."""

    def __init__(self, data_wait_start_s: float) -> None:
        self.data_wait_start_s = data_wait_start_s
        self.steps = 0
        self.samples = 0
        self.seconds = 0.0
        self.checkpoint_s = 0.0
        self._total: Tensor | None = None
        self._clock = time.perf_counter()

    def loss(self) -> LateCopy:
        """Return the sum over the steps of this rank's loss times the step's samples."""
        return LateCopy(torch.zeros(()) if self._total is None else self._total)

    def resume(self) -> None:
        """Start the clock of the next step; time between two steps is not counted."""
        self._clock = time.perf_counter()

    def add(self, loss: Tensor, samples: int) -> float:
        """Add a step; return its seconds."""
        seconds = time.perf_counter() - self._clock
        self._total = loss * samples if self._total is None else self._total.add_(loss, alpha=samples)
        self.steps, self.samples, self.seconds = (
            self.steps + 1,
            self.samples + samples,
            self.seconds + seconds,
        )
        return seconds


@dataclass(frozen=True, slots=True)
class WatchedStep:
    """What the message on a step with a bad loss names.

    Args:
        sample_ids: this rank's samples.
        learning_rate: the tables'.
    """

    sample_ids: Tensor
    learning_rate: float


@dataclass(frozen=True, slots=True)
class _Check:
    """Which losses of some steps are finite, on its way from the device."""

    first_step: int
    finite: LateCopy
    steps: list[WatchedStep]

    def bad_step(self) -> int:
        finite = self.finite.wait().tolist()
        return 0 if all(finite) else self.first_step + finite.index(False)


class LossWatch:
    """Finds the first step whose loss is not finite.

    Args:
        late: each call of `first_bad_step` reads what the call before has asked a GPU for, so that it does
            not wait until the GPU has nothing to do.
    """

    def __init__(self, *, late: bool) -> None:
        self.late = late
        self._losses: list[Tensor] = []
        self._steps: list[WatchedStep] = []
        self._asked: list[_Check] = []  # not read yet
        self._read: list[_Check] = []  # by the last call

    def add(self, loss: Tensor, step: WatchedStep) -> None:
        """Keep the loss of a step."""
        self._losses.append(loss)
        self._steps.append(step)

    def first_bad_step(self, step: int, *, now: bool) -> int:
        """Return the first step found whose loss is not finite; 0 for none.

        Args:
            step: the number of the newest step.
            now: find it among all steps, whatever that waits for. Otherwise, if `late`, the steps since the
                last call are left for the next one.
        """
        if self._losses:
            finite = torch.isfinite(torch.stack(self._losses))
            self._asked.append(_Check(step - len(self._losses) + 1, LateCopy(finite), self._steps))
            self._losses, self._steps = [], []
            left = 0 if now or not self.late else 1
        else:
            left = 0
        split = len(self._asked) - left
        self._read, self._asked = self._asked[:split], self._asked[split:]
        return next((bad for check in self._read if (bad := check.bad_step())), 0)

    def what_was(self, bad_step: int) -> tuple[WatchedStep, bool]:
        """Return a step that the last call read, and whether its loss is bad on this rank."""
        for check in self._read:
            place = bad_step - check.first_step
            if 0 <= place < len(check.steps):
                return check.steps[place], not bool(check.finite.wait()[place])
        raise LookupError(f"step {bad_step} was not read by the last call")
