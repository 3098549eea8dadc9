"""What this machine could do at best: a step's matrix products and its tables' rows moved, and nothing else.

Every product of a step (forward, weight gradients, input gradients, the interaction) is timed alone by
torch's fastest way here, MKL or oneDNN; so are the gather of the rows that a step looks up and the
scatter-add of as many. Their sum is the roofline: no activation, loss, optimizer state, id or Python.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.work import Work

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
REPETITIONS = 25
ID_SETS = 10  # more rows than caches hold


@dataclass(frozen=True, slots=True)
class Roofline:
    """Seconds of a step's parts."""

    products: float
    gather: float
    scatter: float

    @property
    def rows(self) -> float:
        """Seconds to move the rows of a step."""
        return self.gather + self.scatter

    @property
    def step(self) -> float:
        """Seconds of a step that does nothing else."""
        return self.products + self.rows


def measure(work: Work, precision: str) -> Roofline:
    """Time everything with as many threads as torch now has."""
    before = torch.get_float32_matmul_precision()
    products = []
    for setting in ("highest", "medium"):  # MKL, and oneDNN where it is exact
        torch.set_float32_matmul_precision(setting)
        products.append([_median(product) for product in _products(work, TYPES[precision])])
    torch.set_float32_matmul_precision(before)
    gather, scatter = _rows(work)
    return Roofline(sum(min(pair) for pair in zip(*products, strict=True)), gather, scatter)


def _products(work: Work, dtype: torch.dtype) -> Iterator[Callable[[], Tensor]]:
    vectors = work.tables + 1
    width = work.embedding_dim + vectors * (vectors - 1) // 2
    bottom = list(pairwise((work.num_dense, *work.dense_arch_layer_sizes)))
    top = list(pairwise((width, *work.over_arch_layer_sizes)))
    for index, (wide, narrow) in enumerate([*bottom, *top]):
        inputs = torch.randn(work.batch_size, wide).to(dtype)
        weight = torch.randn(narrow, wide).to(dtype)
        gradient = torch.randn(work.batch_size, narrow).to(dtype)
        yield partial(torch.matmul, inputs, weight.t())
        yield partial(torch.matmul, gradient.t(), inputs)
        if index:  # no one asks for the gradient of the dense features
            yield partial(torch.matmul, gradient, weight)
    stacked = torch.randn(work.batch_size, vectors, work.embedding_dim).to(dtype)
    square = torch.randn(work.batch_size, vectors, vectors).to(dtype)
    yield partial(torch.bmm, stacked, stacked.transpose(1, 2))
    yield partial(torch.bmm, square, stacked)


def _rows(work: Work) -> tuple[float, float]:
    table = torch.empty(work.tables * work.rows, work.embedding_dim).uniform_(-0.01, 0.01)
    starts = torch.arange(work.tables) * work.rows
    ids = [
        (torch.randint(0, work.rows, (work.batch_size, work.tables)) + starts).view(-1)
        for _ in range(ID_SETS)
    ]
    out = torch.empty(len(ids[0]), work.embedding_dim)
    changes = torch.randn(out.shape) * 1e-6
    turn = iter(range(10**9))
    gather = _median(lambda: torch.index_select(table, 0, ids[next(turn) % ID_SETS], out=out))
    adds = (
        lambda: table.index_add_(0, ids[next(turn) % ID_SETS], changes),
        lambda: table.scatter_add_(0, ids[next(turn) % ID_SETS][:, None].expand(out.shape), changes),
    )
    return gather, min(_median(add) for add in adds)


def _median(work: Callable[[], object]) -> float:
    for _ in range(3):
        work()
    seconds = []
    for _ in range(REPETITIONS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
