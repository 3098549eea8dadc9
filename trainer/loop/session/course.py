"""The course of an attempt: its progress, the samples seen, and the steps left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trainer.loop.elastic import StepCount
from trainer.sharding.digest import SampleDigest

if TYPE_CHECKING:
    from trainer.base.config import TrainerConfig
    from trainer.data.batch import Batch
    from trainer.loop.progress import Progress


class AttemptClock:
    """The times of this attempt, which begins at `progress`."""

    def __init__(self, started: float, progress: Progress) -> None:
        self._started = started
        self._training_before_s = progress.training_s
        self._samples_before = progress.samples
        self._productive_before_s = progress.productive_s
        self._first_step = time.perf_counter()

    def begin_steps(self) -> None:
        """Start the clock of the steps."""
        self._first_step = time.perf_counter()

    @property
    def wall_s(self) -> float:
        """Seconds since this attempt began."""
        return time.perf_counter() - self._started

    @property
    def training_s(self) -> float:
        """Wall time from the first step on; of earlier attempts, up to the checkpoint resumed from."""
        return self._training_before_s + time.perf_counter() - self._first_step

    def samples_per_s(self, progress: Progress) -> float:
        """Return the throughput of this attempt's steps."""
        samples = progress.samples - self._samples_before
        return samples / max(progress.productive_s - self._productive_before_s, 1e-9)


class Course:
    """The steps of this attempt, from `progress` on; the same on all ranks except for `seen`.

    Args:
        config: has the samples per step and the length of the run.
        progress: of the attempts before; this attempt continues to count in it.
        seen: the samples of the attempts before, on rank 0.
        rows: the number of training rows.
        ranks: the number of ranks that share a step.
        started: when this attempt began, by `time.perf_counter`.
    """

    def __init__(
        self,
        config: TrainerConfig,
        progress: Progress,
        seen: SampleDigest | None = None,
        *,
        rows: int,
        ranks: int,
        started: float,
    ) -> None:
        count = StepCount(config, progress, rows=rows, ranks=ranks)
        self.progress = progress
        self.seen = SampleDigest() if seen is None else seen
        self.clock = AttemptClock(started, progress)
        self.done = count.done
        self.left = count.left
        self.total_steps = progress.step + count.left
        self._rows = rows

    def see(self, batch: Batch) -> None:
        """Add this rank's samples of a step to `seen`."""
        if batch.sums is None:
            self.seen.update(self.progress.epoch, batch.sample_ids)
        else:
            self.seen.add_sums(batch.sums, len(batch))

    def advance(self, batch: Batch, seconds: float) -> None:
        """Count the completed step of this batch, which took this many seconds."""
        self.progress.advance(batch.global_size, self._rows, seconds)

    def is_due(self, interval: int) -> bool:
        """Whether an action with this interval in steps is due now; 0 means never."""
        return interval > 0 and self.progress.step % interval == 0

    @property
    def is_over(self) -> bool:
        """Whether the last step is done."""
        return self.progress.step >= self.total_steps
