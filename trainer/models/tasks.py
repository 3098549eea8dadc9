"""The loss of each sample where a sample has several labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class TaskLosses:
    """The sum over the tasks of a task's weight times its loss; a label that is missing (-1) counts 0."""

    def __init__(
        self, weights: Sequence[float], own: Callable[[Tensor, Tensor], Tensor] | None, *, model: str
    ) -> None:
        """`own` is a model's own loss [B, tasks], or [B], which then has the weights of tasks in it."""
        self._weights = torch.tensor(weights)
        self._own = own
        self._model = model

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the losses [B] of logits [B, tasks] and labels [B, tasks].

        Raises:
            ConfigError: the model's own loss has another shape.
        """
        if self._own is None:
            each = functional.binary_cross_entropy_with_logits(logits, labels.clamp_min(0), reduction="none")
        else:
            each = self._own(logits, labels)
        if each.shape == labels.shape[:1]:
            return each
        if each.shape != labels.shape:
            raise ConfigError(
                f"model {self._model}: its loss returned {list(each.shape)} for labels {list(labels.shape)}; "
                "it must return a loss for each sample and label, or one for each sample"
            )
        self._weights = self._weights.to(each.device)  # a copy only once
        return (torch.where(labels >= 0, each, 0.0) * self._weights).sum(dim=1)
