"""The update of the rows that a step has touched, for each optimizer: the arithmetic of fbgemm's kernels.

Rows without a gradient do not change, and neither do their states: Adam's moments of an id decay only in
steps that contain the id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer.base.table_optimizers import TABLE_STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

BETAS = (0.9, 0.999)
KINDS = ("sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam")
STATE_WIDTHS = {  # of each state: 1 for one number per row, 0 for one per element
    kind: tuple(int(state.one_a_row) for state in TABLE_STATES[kind]) for kind in KINDS
}


def make_states(kind: str, weight: Tensor) -> tuple[Tensor, ...]:
    """Return zeros for every state of a table [rows, dim]: [rows, dim], or [rows] for one number per row."""
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
    """Update `rows` [touched], without repeats, of weight and states by their gradients [touched, dim].

    `steps` includes this step; Adam's bias correction needs it.
    """
    direction = gradient
    if "adagrad" in kind:
        direction = _adagrad(states[0], rows, gradient, eps)
    elif "adam" in kind:
        direction = _adam(states, rows, gradient, eps, steps)
    weight.index_add_(0, rows, direction * -learning_rate)


@torch.no_grad()
def update_where(
    kind: str,
    weight: Tensor,
    states: Sequence[Tensor],
    touched: Tensor,
    gradient: Tensor,
    *,
    learning_rate: float,
    eps: float,
    steps: int,
) -> None:
    """Update the rows that `touched` (bool [rows]) marks by the gradient of the whole table [rows, dim].

    It has the values of `update_rows` and reads every row, so that a GPU need not pass to the host which rows
    they are.
    """
    direction, newer = gradient, list(states)
    if "adagrad" in kind:
        newer = [states[0] + _square(gradient, states[0])]
        direction = gradient / _column(newer[0].sqrt().add_(eps))
    elif "adam" in kind:
        first, second = states
        newer = [
            BETAS[0] * first + (1 - BETAS[0]) * gradient,
            BETAS[1] * second + (1 - BETAS[1]) * _square(gradient, second),
        ]
        root = (newer[1] / (1 - BETAS[1] ** steps)).sqrt() + eps
        direction = newer[0] / (1 - BETAS[0] ** steps) / _column(root)
    for old, new in ((weight, weight + direction * -learning_rate), *zip(states, newer, strict=True)):
        old.copy_(torch.where(touched[:, None] if old.dim() > 1 else touched, new, old))


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
    """Return squares [touched, dim]; for a state with one number per row, the rows' means [touched]."""
    return gradient * gradient if state.dim() > 1 else (gradient * gradient).mean(dim=1)


def _column(values: Tensor) -> Tensor:
    return values[:, None] if values.dim() == 1 else values
