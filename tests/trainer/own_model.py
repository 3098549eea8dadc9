"""A model of a user's own, as a file outside the trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.models.protocol import ModelInputs


class Gated(nn.Module):
    """Vectors gated by the dense values, with a loss that weighs positives twice."""

    def __init__(self, inputs: ModelInputs) -> None:
        super().__init__()
        width = sum(inputs.sparse.values())
        self.gate = nn.Linear(len(inputs.dense), width)
        self.norm = nn.LayerNorm(width)
        self.top = nn.Linear(width, 1)

    def forward(self, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
        """Return logits [B, 1]."""
        gated = torch.cat(list(vectors.values()), dim=1) * torch.sigmoid(self.gate(dense))
        logits: Tensor = self.top(self.norm(gated))
        return logits

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample."""
        each = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        return each * (1 + labels)


def build(inputs: ModelInputs) -> Gated:
    """Return a new model."""
    return Gated(inputs)


def with_batch_norm(inputs: ModelInputs) -> nn.Module:
    """Return a model with running statistics, which checkpoints do not keep."""
    return nn.BatchNorm1d(inputs.width)


def of_wrong_shape(inputs: ModelInputs) -> nn.Module:
    """Return a model that gives two numbers a sample."""

    class Wrong(Gated):
        def forward(self, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
            return super().forward(dense, vectors).repeat(1, 2)

    return Wrong(inputs)


def no_module(inputs: ModelInputs) -> str:
    """Return no model."""
    return str(inputs)
