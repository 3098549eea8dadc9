"""How each optimizer changes the rows of a table that a step has touched: the arithmetic of fbgemm's kernels.

Rows without a gradient stay as they are, their states too: Adam's moments of an id that a step did
not see do not fade.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

BETAS = (0.9, 0.999)
KINDS = ("sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam")
STATE_WIDTHS = {  # of each state: numbers a row, 0 for as many as the row has columns
    "sgd": (),
    "adagrad": (0,),
    "rowwise_adagrad": (1,),
    "adam": (0, 0),
    "partial_rowwise_adam": (0, 1),
}


def make_states(kind: str, weight: Tensor) -> tuple[Tensor, ...]:
    """Zeros for every state of a table [rows, dim]: each [rows, dim], or [rows] where it is one a row."""
    return tuple(
        weight.new_zeros(weight.shape[:1]) if width == 1 else torch.zeros_like(weight)
        for width in STATE_WIDTHS[kind]
    )


@torch.no_grad()
def update_rows(
    kind: str,
    weight: Tensor,
    states: Sequence[Tensor],
    rows: Tensor,
    gradient: Tensor,
    *,
    learning_rate: float,
    eps: float,
    steps: int,
) -> None:
    """Change `rows` [touched], each named once, of weight and states by their gradients [touched, dim].

    `steps` counts this one; Adam's bias correction needs it.
    """
    direction = gradient
    if "adagrad" in kind:
        direction = _adagrad(states[0], rows, gradient, eps)
    elif "adam" in kind:
        direction = _adam(states, rows, gradient, eps, steps)
    weight.index_add_(0, rows, direction * -learning_rate)


def _adagrad(sums: Tensor, rows: Tensor, gradient: Tensor, eps: float) -> Tensor:
    sums.index_add_(0, rows, _square(gradient, sums))
    return gradient / _column(sums.index_select(0, rows).sqrt_().add_(eps))


def _adam(states: Sequence[Tensor], rows: Tensor, gradient: Tensor, eps: float, steps: int) -> Tensor:
    first, second = states
    first[rows] = BETAS[0] * first[rows] + (1 - BETAS[0]) * gradient
    second[rows] = BETAS[1] * second[rows] + (1 - BETAS[1]) * _square(gradient, second)
    root = (second[rows] / (1 - BETAS[1] ** steps)).sqrt() + eps
    return first[rows] / (1 - BETAS[0] ** steps) / _column(root)


def _square(gradient: Tensor, state: Tensor) -> Tensor:
    """[touched, dim], or [touched] for a state that has one number a row: the mean over the row."""
    return gradient * gradient if state.dim() > 1 else (gradient * gradient).mean(dim=1)


def _column(values: Tensor) -> Tensor:
    return values[:, None] if values.dim() == 1 else values
