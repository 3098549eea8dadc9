"""Whether a run fits into the memory of GPUs, by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudrec.planning.fit.work import TrainingWork

GIB = 2**30
# The share of memory that the trainer's planner keeps back (STORAGE_RESERVE_PERCENT).
RESERVED = 0.15
_CONTEXT_GIB = 1.5  # of CUDA, cuBLAS and NCCL on each GPU
_EXCHANGE_COPIES = 4  # of the pooled embeddings: sent and received, forward and backward
_UNEVEN = 1.02  # tables are not divided exactly evenly


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Memory of one rank, in GiB.

    Attributes:
        tables: its part of the tables, with their optimizer's state.
        dense: the dense part: weights, gradients, optimizer state.
        activations: what the backward pass needs.
        exchange: buffers for pooled embeddings and ids.
        reserved: what CUDA takes, and the rest of what the planner keeps back beside the dense part.
        have: the memory of the GPU.
    """

    tables: float
    dense: float
    activations: float
    exchange: float
    reserved: float
    have: float

    @property
    def need(self) -> float:
        """All parts."""
        return self.tables + self.dense + self.activations + self.exchange + self.reserved

    @property
    def fits(self) -> bool:
        """Whether the GPU has as much."""
        return self.need <= self.have


def rank_memory(work: TrainingWork, *, ranks: int, gpu_gib: float) -> RankMemory:
    """Return the memory of each rank of so many, whose tables are divided by rows where one is too large."""
    batch = work.rank_batch(ranks)
    # A batch of all ranks passes through each rank's tables.
    exchange = batch * (work.pooled_bytes * _EXCHANGE_COPIES + 2 * 8 * work.ids)
    dense = work.dense_bytes / GIB
    activations = batch * work.dense.activations * work.value_bytes * 2 / GIB
    return RankMemory(
        tables=work.table_bytes / ranks * (_UNEVEN if ranks > 1 else 1.0) / GIB,
        dense=dense,
        activations=activations,
        exchange=exchange / GIB,
        reserved=max(RESERVED * gpu_gib - dense - activations, _CONTEXT_GIB),
        have=gpu_gib,
    )
