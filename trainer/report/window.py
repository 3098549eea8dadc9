"""The figures of the steps since the last line of metrics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

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

    @property
    def loss(self) -> float:
        """The sum over the steps of this rank's loss times the step's samples."""
        return 0.0 if self._total is None else float(self._total)

    def resume(self) -> None:
        """Start the clock of the next step; time between two steps is not counted."""
        self._clock = time.perf_counter()

    def add(self, loss: Tensor, samples: int) -> float:
        """Add a step; return its seconds."""
        seconds = time.perf_counter() - self._clock
        weighted = loss * samples
        self._total = weighted if self._total is None else self._total + weighted
        self.steps, self.samples, self.seconds = (
            self.steps + 1,
            self.samples + samples,
            self.seconds + seconds,
        )
        return seconds


class LossWatch:
    """The losses and samples of the steps since the last call of `first_bad_step`."""

    def __init__(self) -> None:
        self._losses: list[Tensor] = []
        self._samples: list[Tensor] = []
        self._last: list[tuple[Tensor, Tensor]] = []  # those that the last call checked

    def add(self, loss: Tensor, sample_ids: Tensor) -> None:
        """Keep the loss and the samples of a step."""
        self._losses.append(loss)
        self._samples.append(sample_ids)

    def first_bad_step(self, step: int) -> int:
        """Return the first step since the last call whose loss is not finite; 0 if all are finite.

        `step` is the number of the newest step.
        """
        losses, self._losses = self._losses, []
        self._last, self._samples = list(zip(losses, self._samples, strict=True)), []
        if not losses:
            return 0
        finite = torch.isfinite(torch.stack(losses)).tolist()
        return 0 if all(finite) else step - len(losses) + 1 + finite.index(False)

    def samples_of(self, bad_step: int, step: int) -> list[int]:
        """Return this rank's samples of a bad step if its loss is bad here; `step` is that of the check."""
        loss, samples = self._last[bad_step - step - 1]
        return [] if bool(torch.isfinite(loss)) else samples.tolist()
