"""Marking the rows that training touches, for differential checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer.base.row_stamps import Intervals, RowStamps
from trainer.tables.kernels import table_kernels, table_pieces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from trainer.tables.kernels import Piece


class TouchTracker:
    """Stamps the rows that a model's kernels look up in training: backward changes exactly those.

    The rows of replicated tables are stamped by their optimizer (trainer.tables.replicas).
    """

    def __init__(self, model: nn.Module) -> None:
        self.intervals = Intervals()
        self._stamps: dict[tuple[str, tuple[int, int]], RowStamps] = {}
        for kernel, tables in table_kernels(model):
            weights = kernel.split_embedding_weights()
            if weights:
                self._track(kernel, tables, weights)

    def of(self, piece: Piece) -> RowStamps:
        """Return the stamps of a piece's rows."""
        return self._stamps[piece.table, piece.offsets]

    def stamps_of_replicas(self, model: nn.Module) -> Mapping[str, RowStamps]:
        """Return the stamps of replicated tables, by table."""
        return {piece.table: self.of(piece) for piece in table_pieces(model) if piece.replicated}

    def _track(self, kernel: Any, tables: list[Any], weights: list[Tensor]) -> None:  # noqa: ANN401 - torchrec's
        sizes = [len(weight) for weight in weights]
        values = self.intervals.add(sum(sizes), weights[0].device)
        is_sharded = hasattr(kernel, "split_optimizer_states")
        start = 0
        for table, part in zip(tables, values.split(sizes), strict=True):
            first, left = table.local_metadata.shard_offsets if is_sharded else (0, 0)
            self._stamps[table.name, (first, left)] = RowStamps(part, self.intervals, values, start)
            start += len(part)
        if is_sharded:
            starts = torch.tensor([sum(sizes[:index]) for index in range(len(sizes))])
            features = list(getattr(kernel, "feature_table_map", range(len(sizes))))
            stamp = _Stamp(RowStamps(values, self.intervals), starts[features])
            kernel.register_forward_pre_hook(stamp, with_kwargs=True)


class _Stamp:
    """A forward hook that stamps rows; `first_rows` is the first stamp of each feature's table."""

    def __init__(self, stamps: RowStamps, first_rows: Tensor) -> None:
        self._stamps = stamps
        self._first_rows = first_rows.to(stamps.values.device)
        self._last: tuple[Tensor, Tensor] | None = None  # offsets, and the first row of each id's table

    def __call__(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Stamp the rows of a call with (indices, offsets): ids feature by feature, and the bags' offsets."""
        if not (module.training or torch.is_grad_enabled()):
            return
        values = dict(zip(("indices", "offsets"), given, strict=False)) | named
        indices, offsets = values["indices"], values["offsets"]
        bags = (len(offsets) - 1) // len(self._first_rows)
        if bags == 0 or len(indices) == 0:
            return
        ids = indices.to(device=self._first_rows.device, dtype=torch.int64)
        self._stamps.touch(ids + self._first_rows_of(offsets, bags, len(ids)))

    def _first_rows_of(self, offsets: Tensor, bags: int, ids: int) -> Tensor:
        """Return the first row of each id's table; with one id a sample, all steps have the same offsets."""
        if self._last is None or self._last[0] is not offsets:
            lengths = offsets[::bags].diff().to(self._first_rows.device)
            self._last = (
                offsets,
                torch.repeat_interleave(self._first_rows, lengths, output_size=ids),
            )
        return self._last[1]
