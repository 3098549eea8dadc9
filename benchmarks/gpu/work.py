"""The work of the measurements on a GPU, and the seconds of steps that the device itself measures."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from benchmarks.work import Work

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = 65_536
ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWork(Work):
    """MLPerf's DLRM with one id a feature: 26 tables of 1,000,000 rows, 13.3 GB of fp32."""

    rows: int = 1_000_000
    embedding_dim: int = 128
    batch_size: int = BATCH
    dense_arch_layer_sizes: tuple[int, ...] = (512, 256, 128)
    over_arch_layer_sizes: tuple[int, ...] = (1024, 1024, 512, 256, 1)
    warmup_steps: int = 15
    timed_steps: int = 60


@dataclass(frozen=True, slots=True)
class Rate:
    """Samples a second of several rounds of steps."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.rounds)

    def __str__(self) -> str:
        return f"{self.median / 1e6:.2f} M ({min(self.rounds) / 1e6:.2f} to {max(self.rounds) / 1e6:.2f})"


def rate(steps: Iterator[object], work: Work) -> Rate:
    """Return the samples a second of `timed_steps` steps after the warm-up, in ROUNDS rounds.

    Events on the device bound a round, and nothing waits within it.
    """
    for _ in range(work.warmup_steps):
        next(steps)
    ends = [_event()]
    count = max(work.timed_steps // ROUNDS, 1)
    for _ in range(ROUNDS):
        for _ in range(count):
            next(steps)
        ends.append(_event())
    torch.cuda.synchronize()
    seconds = [one.elapsed_time(other) / 1e3 for one, other in pairwise(ends)]
    return Rate(tuple(count * work.batch_size / each for each in seconds))


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
