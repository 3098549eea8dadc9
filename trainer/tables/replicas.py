"""The optimizer of replicated tables, whose gradients DDP has averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer.tables.row_rules import make_states, update_rows, update_where

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from trainer.base.row_stamps import RowStamps
    from trainer.tables.kernels import Piece


class ReplicaOptimizer:
    """One optimizer for all replicated tables; its states start at 0 and are equal on all ranks.

    On CPUs it updates the rows that have a gradient. On a GPU it reads all rows (replicated tables are
    small): to list them, the host would have to wait for the GPU, once a table and step.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        *,
        kind: str,
        learning_rate: float,
        eps: float,
        stamps: Mapping[str, RowStamps] | None = None,  # by table: marks touched rows for checkpoints
    ) -> None:
        self.pieces = pieces
        self.stamps = stamps or {}
        self.kind = kind
        self.learning_rate = learning_rate
        self.eps = eps
        self.steps = 0
        self.by_mask = any(piece.weight.device.type != "cpu" for piece in pieces)
        self.states = {piece.table: make_states(kind, piece.weight) for piece in pieces}

    @torch.no_grad()
    def step(self) -> None:
        """Update every table from the gradients of this step, and clear them."""
        self.steps += 1
        for piece in self.pieces:
            flat = piece.gradient_of
            if flat is None or flat.grad is None:
                continue
            stop = piece.gradient_start + piece.weight.numel()
            gradient = flat.grad.view(-1)[piece.gradient_start : stop].view(piece.weight.shape)
            self._update(piece, gradient)
        for flat in {id(piece.gradient_of): piece.gradient_of for piece in self.pieces}.values():
            if flat is not None and flat.grad is not None:
                flat.grad.zero_()

    def _update(self, piece: Piece, gradient: Tensor) -> None:
        touched, stamps = gradient.any(dim=1), self.stamps.get(piece.table)
        settings = {"learning_rate": self.learning_rate, "eps": self.eps, "steps": self.steps}
        states = self.states[piece.table]
        if self.by_mask:
            if stamps is not None:
                stamps.touch_where(touched)
            update_where(self.kind, piece.weight, states, touched, gradient, **settings)
            return
        rows = touched.nonzero().view(-1)
        if stamps is not None:
            stamps.touch(rows)
        update_rows(self.kind, piece.weight, states, rows, gradient[rows], **settings)
