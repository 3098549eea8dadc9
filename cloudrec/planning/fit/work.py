"""What is to be trained: tables, layers, batch and number of samples, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.planning.fit.layers import DenseWork

# How tables may be placed: whole or divided by rows, each one whole, each one divided, or all on every rank.
Placement = Literal["any", "whole", "divided", "replicated"]
_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
# Bytes of optimizer state for one row of D values, beside its weights.
_TABLE_STATE = {"sgd": (0, 0), "rowwise_adagrad": (4, 0), "adagrad": (0, 4), "adam": (0, 8)}
_DENSE_STATE = {"sgd": 0, "adagrad": 4, "adam": 8, "adamw": 8}

_ID_BYTES, _OTHER_BYTES = 4, 64  # of a sample as it is stored; the others are dense features and the label
_CHECKPOINTS = 2  # that a run keeps


@dataclass(frozen=True, kw_only=True)
class TrainingWork:
    """One training run, whatever it runs on.

    Attributes:
        table_rows: the rows of each table.
        dim: the values of a row, where `table_dims` does not give them.
        table_dims: the values of a row of each table; empty for `dim`.
        vector_dims: the width of each feature's vector, since features may share a table; empty for one
            feature a table.
        exchanged: values of a sample that ranks exchange, where that is not all vectors: a model may read
            every place of a sequence.
        ids: ids of a sample, over all tables.
        dense: the dense part (cloudrec.planning.fit.layers).
        batch: samples of a rank and step; None if `global_batch` is given.
        global_batch: samples of a step over all ranks; None if `batch` is given.
        precision: of the dense part: fp32, tf32 or bf16.
        weights: of the tables: fp32 or fp16.
        table_optimizer: sgd, rowwise_adagrad, adagrad or adam.
        dense_optimizer: sgd, adagrad, adam or adamw.
        samples: the samples of one epoch; None if unknown.
        epochs: the number of epochs.
        scored: the test samples that each evaluation scores; 0 without a dataset.
        eval_interval: steps between evaluations; 0: one at the end.
        placement: how tables may be placed.
        may_use_host: whether rows may be in the host's memory, too.
    """

    table_rows: Sequence[int]
    dim: int
    ids: float
    dense: DenseWork
    batch: int | None = None
    global_batch: int | None = None
    precision: str = "fp32"
    weights: str = "fp32"
    table_optimizer: str = "rowwise_adagrad"
    dense_optimizer: str = "adam"
    samples: int | None = None
    epochs: int = 1
    scored: int = 0
    eval_interval: int = 0
    table_dims: Sequence[int] = ()
    vector_dims: Sequence[int] = ()
    exchanged: int | None = None
    placement: Placement = "any"
    may_use_host: bool = False

    @property
    def dims(self) -> Sequence[int]:
        """The values of a row of each table."""
        return self.table_dims or (self.dim,) * len(self.table_rows)

    @property
    def vectors(self) -> Sequence[int]:
        """The width of each feature's vector."""
        return self.vector_dims or self.dims

    @property
    def samples_in_all(self) -> int | None:
        """The samples of all epochs; None if unknown."""
        return None if self.samples is None else self.samples * self.epochs

    def scored_in_all(self, step: int) -> int:
        """Return the samples of all evaluations of a run whose steps have so many samples."""
        if not self.eval_interval:
            return self.scored
        return self.scored * max(-(-(self.samples_in_all or 0) // (step * self.eval_interval)), 1)

    @property
    def stored_bytes(self) -> float | None:
        """Bytes in the bucket: the dataset and two checkpoints; None if the samples are unknown."""
        if self.samples is None:
            return None
        checkpoint = self.table_bytes + self.dense_bytes
        return self.samples * self.sample_bytes + _CHECKPOINTS * checkpoint

    @property
    def sample_bytes(self) -> float:
        """Bytes of a sample as it is stored."""
        return self.ids * _ID_BYTES + _OTHER_BYTES

    def rank_batch(self, ranks: int) -> int:
        """Return the samples of a step on one rank."""
        if self.global_batch is not None:
            return max(self.global_batch // ranks, 1)
        return self.batch or 1

    @property
    def value_bytes(self) -> int:
        """Bytes of one activation."""
        return _BYTES[self.precision]

    @property
    def weight_bytes(self) -> int:
        """Bytes of one value of a table."""
        return _BYTES[self.weights]

    def row_bytes(self, dim: int) -> int:
        """Return the bytes of a row of so many values, with its optimizer's state."""
        each_row, each_value = _TABLE_STATE.get(self.table_optimizer, (0, 4))
        return dim * (self.weight_bytes + each_value) + each_row

    @property
    def table_bytes(self) -> int:
        """Bytes of all tables with their optimizer's state, over all ranks."""
        return sum(rows * self.row_bytes(dim) for rows, dim in zip(self.table_rows, self.dims, strict=True))

    @property
    def read_bytes(self) -> float:
        """Bytes of the rows of a sample."""
        return self.ids * sum(self.vectors) / max(len(self.vectors), 1) * self.weight_bytes

    @property
    def dense_bytes(self) -> int:
        """Bytes of the dense part on each rank: weights, gradients and optimizer state."""
        return self.dense.params * (8 + _DENSE_STATE.get(self.dense_optimizer, 8))

    @property
    def pooled_bytes(self) -> int:
        """Bytes of a sample's pooled embeddings, which ranks exchange in fp32."""
        return (sum(self.vectors) if self.exchanged is None else self.exchanged) * 4
