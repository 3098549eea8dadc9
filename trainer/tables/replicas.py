"""The optimizer of replicated tables, whose gradients DDP has averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer.tables.row_rules import make_states, update_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer.base.row_stamps import RowStamps
    from trainer.tables.kernels import Piece


class ReplicaOptimizer:
    """One optimizer for all replicated tables; its states start at 0 and are equal on all ranks."""

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
            rows = gradient.any(dim=1).nonzero().view(-1)
            if piece.table in self.stamps:
                self.stamps[piece.table].touch(rows)
            update_rows(
                self.kind,
                piece.weight,
                self.states[piece.table],
                rows,
                gradient[rows],
                learning_rate=self.learning_rate,
                eps=self.eps,
                steps=self.steps,
            )
        for flat in {id(piece.gradient_of): piece.gradient_of for piece in self.pieces}.values():
            if flat is not None and flat.grad is not None:
                flat.grad.zero_()
