"""Whether a run fits into the memory of GPUs, by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.planning.fit.placement import TableNeed, fullest_rank, table_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.planning.fit.placement import TablePlaces
    from cloudrec.planning.fit.work import TrainingWork

GIB = 2**30
# The share of memory that the trainer's planner keeps back (STORAGE_RESERVE_PERCENT).
RESERVED = 0.15
_CONTEXT_GIB = 1.5  # of CUDA, cuBLAS and NCCL on each GPU
# Copies of the pooled embeddings beside those that leave the tables: received, and both ways backward.
_MORE_COPIES = 3
_GRADIENT_COPIES = 1  # of one GPU, which exchanges nothing
_ID_BYTES = 8  # on the GPU
_ROUNDING = 1.005  # torchrec's planner divides in whole rows, and does not try every placement


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Memory of one rank, in GiB.

    Attributes:
        tables: the tables of the fullest rank, with their optimizer's state.
        dense: the dense part: weights, gradients, optimizer state.
        activations: what the backward pass needs.
        exchange: buffers for pooled embeddings and ids.
        reserved: what CUDA takes, and the rest of what the planner keeps back beside the other parts.
        have: the memory of the GPU.
        least: what the trainer's planner counts at least, however tables are placed; None: there is none.
    """

    tables: float
    dense: float
    activations: float
    exchange: float
    reserved: float
    have: float
    least: float | None = None

    @property
    def need(self) -> float:
        """All parts."""
        return self.tables + self.dense + self.activations + self.exchange + self.reserved

    @property
    def fits(self) -> bool | None:
        """Whether the GPU has as much; None if the planner may find a place, but it may run out of memory."""
        if self.need <= self.have:
            return True
        if self.least is not None and self.least <= self.have * (1 - RESERVED):
            return None
        return False


def rank_memory(work: TrainingWork, *, ranks: int, gpu_gib: float, node: int | None = None) -> RankMemory:
    """Return the memory of the fullest of so many ranks.

    Args:
        work: what is trained. Its larger tables are divided by rows where that balances the ranks.
        ranks: the number of GPUs.
        gpu_gib: memory of a GPU.
        node: ranks of a machine; default: all.
    """
    batch = work.rank_batch(ranks)
    tables = _table_needs(work, batch * ranks)
    fullest = fullest_rank(tables, ranks, node or ranks, work.placement)
    dense = work.dense_bytes / GIB
    activations = batch * work.dense.activations * work.value_bytes * 2 / GIB
    copies = batch * work.pooled_bytes * (_MORE_COPIES if ranks > 1 else _GRADIENT_COPIES) / GIB
    # Ids that a sample has beside one for each feature; the planner may count fewer.
    ids = batch * max(work.ids - len(work.vectors), 0) * _ID_BYTES / GIB
    kept = max(RESERVED * gpu_gib, dense + activations + copies + ids + _CONTEXT_GIB)
    return RankMemory(
        tables=fullest.table_bytes / GIB * (_ROUNDING if ranks > 1 else 1.0),
        dense=dense,
        activations=activations,
        exchange=fullest.exchange_bytes / GIB + copies + ids,
        reserved=kept - dense - activations - copies - ids,
        have=gpu_gib,
        least=0.0 if work.may_use_host else _least(work, tables, ranks) / GIB,
    )


def places_of(work: TrainingWork, *, ranks: int, node: int) -> TablePlaces:
    """Return where the tables of a work are; the arguments are those of `rank_memory`."""
    return table_places(_table_needs(work, work.rank_batch(ranks) * ranks), ranks, node, work.placement)


def _least(work: TrainingWork, tables: Sequence[TableNeed], ranks: int) -> float:
    """Return the bytes that each rank has if all have the same."""
    each_rank = sum(each.all_bytes for each in tables) / ranks
    if work.placement == "replicated":
        return sum(each.table_bytes for each in tables)
    return max(each_rank, *(each.all_bytes for each in tables)) if work.placement == "whole" else each_rank


def _table_needs(work: TrainingWork, samples: int) -> tuple[TableNeed, ...]:
    """Return what each table takes, with its part of the pooled embeddings and ids of so many samples."""
    values = sum(work.dims)
    pooled = samples * (work.pooled_bytes + len(work.vectors) * _ID_BYTES)
    return tuple(
        TableNeed(table_bytes=rows * work.row_bytes(dim), exchange_bytes=pooled * dim / values)
        for rows, dim in zip(work.table_rows, work.dims, strict=True)
    )
