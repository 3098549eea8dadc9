"""Updates of replicated tables: the arithmetic of the fused kernels, on gradients that DDP has averaged.

Only rows with a gradient are touched, as the kernels do: Adam's moments of an id that a step did not
see stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from trainer.kernels import Piece

BETAS = (0.9, 0.999)


class ReplicaOptimizer:
    """One optimizer for all replicated tables; its states start at 0, and are the same on every rank."""

    def __init__(self, pieces: Sequence[Piece], *, kind: str, learning_rate: float, eps: float) -> None:
        self.pieces = pieces
        self.kind = kind
        self.learning_rate = learning_rate
        self.eps = eps
        self.steps = 0
        self.states = {piece.table: self._make_states(piece.weight) for piece in pieces}

    @torch.no_grad()
    def step(self) -> None:
        """Update every table from the gradients of this step, and forget those."""
        self.steps += 1
        for piece in self.pieces:
            flat = piece.gradient_of
            if flat is None or flat.grad is None:
                continue
            stop = piece.gradient_start + piece.weight.numel()
            gradient = flat.grad.view(-1)[piece.gradient_start : stop].view(piece.weight.shape)
            rows = gradient.any(dim=1).nonzero().view(-1)
            piece.weight.index_add_(
                0, rows, -self.learning_rate * self._direction(piece.table, rows, gradient[rows])
            )
        for flat in {id(piece.gradient_of): piece.gradient_of for piece in self.pieces}.values():
            if flat is not None and flat.grad is not None:
                flat.grad.zero_()

    def _make_states(self, weight: Tensor) -> tuple[Tensor, ...]:
        whole, row = torch.zeros_like(weight), weight.new_zeros(weight.shape[0])
        return {
            "sgd": (),
            "adagrad": (whole,),
            "rowwise_adagrad": (row,),
            "adam": (whole, whole.clone()),
            "partial_rowwise_adam": (whole, row),
        }[self.kind]

    def _direction(self, table: str, rows: Tensor, gradient: Tensor) -> Tensor:
        """[touched rows, columns]: what is subtracted, but for the learning rate."""
        if self.kind == "sgd":
            return gradient
        square = gradient * gradient
        if "row" in self.kind:
            square = square.mean(dim=1)
        if "adagrad" in self.kind:
            (sums,) = self.states[table]
            sums[rows] += square
            root = sums[rows].sqrt() + self.eps
            return gradient / (root[:, None] if root.dim() == 1 else root)
        first, second = self.states[table]
        first[rows] = BETAS[0] * first[rows] + (1 - BETAS[0]) * gradient
        second[rows] = BETAS[1] * second[rows] + (1 - BETAS[1]) * square
        root = (second[rows] / (1 - BETAS[1] ** self.steps)).sqrt() + self.eps
        return first[rows] / (1 - BETAS[0] ** self.steps) / (root[:, None] if root.dim() == 1 else root)
