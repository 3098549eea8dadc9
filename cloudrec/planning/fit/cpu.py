"""The time of a step and the memory of a rank on this machine's CPU, from steps that were measured on it.

A step is a sum of parts, each an amount of work times a constant of the machine. The amounts are the counts
that estimates for GPUs use; the constants are the non-negative ones that fit the measured steps best, in
relative terms. Ranks share cores, caches and memory, so each number of ranks has separate constants.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.planning.fit.memory import GIB, RankMemory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.planning.fit.work import TrainingWork

PARTS = (
    *("fixed", "tables", "products", "activations", "pairs", "ids", "near_rows", "far_rows", "samples"),
    *("parameters", "exchange"),
)
_KEPT = 2  # activations and their gradients
_DENSE_COPIES = 3  # of weights, gradients and state: themselves, what oneDNN packs, a checkpoint's snapshot
_SAVING_BYTES = 20 << 20  # of writing a checkpoint
_EVALUATED = 4  # batches that the trainer scores at once, unless eval_batch_size says another number
_BATCHES_AHEAD = 4  # read ahead, and in work
_ID_BYTES, _DENSE_BYTES = 8, 128
_STATE_BYTES = 64  # the optimizer's state of a row, which is in another line of the caches
_MOST_TIMES = 3.0  # the median; a step that took longer had to wait for something else
_ROUNDS = 20_000
_EXACT = 1e-12
_PRIOR = 1e-4  # a weak pull to 0, which decides where measured steps do not


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """Steps of one model that were timed.

    Attributes:
        work: the model.
        seconds: of each step.
    """

    work: TrainingWork
    seconds: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class CpuRates:
    """What was measured on this machine for one number of ranks.

    Attributes:
        ranks: the number of ranks.
        cache_bytes: of the processor's largest cache; 0 if unknown.
        constants: seconds for each unit of a part.
        misfit: the largest relative error of the fit on the steps that it was made from.
    """

    ranks: int
    cache_bytes: int
    constants: Mapping[str, float]
    misfit: float


@dataclass(frozen=True, kw_only=True)
class CpuStep:
    """Seconds of one step, by part.

    Attributes:
        batch: samples of one rank.
        ranks: the number of ranks.
        parts: seconds by part.
    """

    batch: int
    ranks: int
    parts: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return sum(self.parts.values())

    @property
    def samples_per_s(self) -> float:
        """Samples a second over all ranks."""
        return self.batch * self.ranks / self.seconds

    @property
    def limited_by(self) -> str:
        """The part that takes longest."""
        return max(self.parts, key=lambda name: self.parts[name])


def amounts(work: TrainingWork, ranks: int, cache_bytes: int) -> dict[str, float]:
    """Return the work of a rank's step by part, in units of 1e9 where a part has many."""
    batch = work.rank_batch(ranks)
    read = batch * work.read_bytes / 1e9
    outside = _share_outside(work, cache_bytes)
    return {
        "fixed": 1.0,
        "tables": len(work.table_rows) / 1e3,  # each has operations, however few its rows
        "products": work.dense.step_flops(batch, ranks) / 1e9,
        "activations": batch * work.dense.activations * 4 / 1e9,
        # To read the vectors and write their gradients takes as long as the small products.
        "pairs": batch * work.dense.paired * 4 / 1e9,
        "ids": batch * work.ids / 1e6,
        "near_rows": read * (1.0 - outside),
        "far_rows": (read + batch * work.ids * _STATE_BYTES / 1e9) * outside,
        "samples": batch / 1e6,
        "parameters": work.dense.params * 4 / 1e9,
        "exchange": batch * work.pooled_bytes / 1e9 if ranks > 1 else 0.0,
    }


def fit_rates(steps: Sequence[MeasuredStep], ranks: int, cache_bytes: int) -> CpuRates:
    """Return the constants for which the measured steps are explained best."""
    rows, names = [], PARTS
    for each in steps:
        seconds = typical(each.seconds)
        found = amounts(each.work, ranks, cache_bytes)
        rows.append([found[name] / seconds for name in names])
    values = non_negative(rows, [1.0] * len(rows))
    misfit = max(abs(sum(a * b for a, b in zip(row, values, strict=True)) - 1.0) for row in rows)
    constants = dict(zip(names, values, strict=True))
    return CpuRates(ranks=ranks, cache_bytes=cache_bytes, constants=constants, misfit=misfit)


def cpu_step(work: TrainingWork, rates: CpuRates) -> CpuStep:
    """Return the time of a step by part."""
    found = amounts(work, rates.ranks, rates.cache_bytes)
    parts = {name: rates.constants.get(name, 0.0) * amount for name, amount in found.items()}
    return CpuStep(batch=work.rank_batch(rates.ranks), ranks=rates.ranks, parts=parts)


def typical(seconds: Sequence[float]) -> float:
    """Return the mean of the measured seconds, without what other load added to a few of them.

    A run's samples/s are over all its steps, and some steps of each run wait for its reader. A median of
    steps of some milliseconds is 5 to 30 % shorter.
    """
    most = _MOST_TIMES * statistics.median(seconds)
    return statistics.fmean(min(each, most) for each in seconds)


def non_negative(rows: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """Return the non-negative x with the least squares of `rows` x - `wanted`, by coordinate descent."""
    size = len(rows[0])
    scale = [math.sqrt(sum(row[column] ** 2 for row in rows)) or 1.0 for column in range(size)]
    scaled = [[row[column] / scale[column] for column in range(size)] for row in rows]
    square = [
        [sum(row[a] * row[b] for row in scaled) + (_PRIOR if a == b else 0.0) for b in range(size)]
        for a in range(size)
    ]
    right = [
        sum(row[column] * want for row, want in zip(scaled, wanted, strict=True)) for column in range(size)
    ]
    x = [0.0] * size
    for _ in range(_ROUNDS):
        most = 0.0
        for column in range(size):
            slope = right[column] - sum(square[column][other] * x[other] for other in range(size))
            value = max(x[column] + slope / square[column][column], 0.0)
            most = max(most, abs(value - x[column]))
            x[column] = value
        if most < _EXACT:
            break
    return [value / scale[column] for column, value in enumerate(x)]


def _share_outside(work: TrainingWork, cache_bytes: int) -> float:
    """Return the share of rows that caches do not hold; ids of a table are as frequent as 1 / (id + 1)."""
    if not cache_bytes:
        return 1.0
    each = cache_bytes / len(work.table_rows) / 2  # the rest holds activations
    outside = 0.0
    for rows, dim in zip(work.table_rows, work.dims, strict=True):
        held = each / (dim * work.weight_bytes)
        miss = 0.0 if held >= rows else 1.0 - math.log(held + 1.0) / math.log(rows + 1.0)
        outside += miss / len(work.table_rows)
    return outside


def cpu_memory(work: TrainingWork, *, ranks: int, baseline_bytes: int, memory_bytes: int) -> RankMemory:
    """Return the resident memory of a rank on a CPU at its peak; ranks share the machine's memory."""
    batch = work.rank_batch(ranks)
    scored = batch * _EVALUATED  # freed memory is kept, so what training and evaluation need adds up
    read_ahead = _BATCHES_AHEAD * (batch + scored) * (work.ids * _ID_BYTES + _DENSE_BYTES)
    copies = 3 if ranks > 1 else 1  # what is sent and what is received, and what gloo holds meanwhile
    exchange = (batch * 2 + scored) * work.pooled_bytes * copies
    return RankMemory(
        tables=work.table_bytes / ranks / GIB,
        dense=work.dense_bytes * _DENSE_COPIES / GIB,
        activations=(batch * _KEPT + scored) * (work.dense.activations + work.dense.pairs) * 4 / GIB,
        exchange=(exchange + read_ahead) / GIB,
        reserved=(baseline_bytes + _SAVING_BYTES) / GIB,
        have=memory_bytes / ranks / GIB,
    )
