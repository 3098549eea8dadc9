"""Models of a user's own for several labels, as a file outside the trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.models.parts import DeepLayers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.models.protocol import ModelInputs


class Linear(nn.Module):
    """A linear model for each task."""

    def __init__(self, inputs: ModelInputs) -> None:
        super().__init__()
        self.top = nn.Linear(inputs.width, len(inputs.tasks))

    def forward(self, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
        """Return logits [B, tasks]."""
        logits: Tensor = self.top(torch.cat([dense, *vectors.values()], dim=1))
        return logits

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample and task."""
        return functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def build(inputs: ModelInputs) -> Linear:
    """Return a new model."""
    return Linear(inputs)


def with_summed_loss(inputs: ModelInputs) -> Linear:
    """Return a model that adds up the losses of a sample itself."""

    class Summed(Linear):
        def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
            each = super().loss(logits, labels) * (labels >= 0)
            return each[:, 0] + 0.5 * each[:, 1] + 2 * each[:, 2]

    return Summed(inputs)


def of_one_score(inputs: ModelInputs) -> Linear:
    """Return a model that gives one number a sample."""

    class OfOne(Linear):
        def forward(self, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
            return super().forward(dense, vectors)[:, 0]

    return OfOne(inputs)


def with_a_loss_of_tasks(inputs: ModelInputs) -> Linear:
    """Return a model whose loss forgets the samples."""

    class OfTasks(Linear):
        def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
            return super().loss(logits, labels).mean(dim=0)

    return OfTasks(inputs)


def of_one_opinion(inputs: ModelInputs) -> nn.Module:
    """Return a network that takes all tasks for the same."""

    class OneOpinion(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.deep = DeepLayers(inputs.width, inputs.hidden)

        def forward(self, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
            logits: Tensor = self.deep(torch.cat([dense, *vectors.values()], dim=1))
            return logits[:, None].expand(-1, len(inputs.tasks))

    return OneOpinion()
