"""Experts and gates: what models of several tasks mix."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainer.base.errors import ConfigError
from trainer.models.parts import DeepLayers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.models.protocol import ModelInputs


class Experts(nn.ModuleList):
    """Networks of equal sizes: [B, width] -> [B, experts, sizes[-1]]."""

    def __init__(self, count: int, width: int, sizes: Sequence[int]) -> None:
        super().__init__(_layers(width, sizes) for _ in range(count))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the output of each."""
        return torch.stack([expert(inputs) for expert in self], dim=1)


class Gate(nn.Module):
    """Mixes experts by weights that add up to 1: their softmax is a linear function of an input."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.scores = nn.Linear(width, experts, bias=False)

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Return [B, size] of inputs [B, width] and the experts' outputs [B, experts, size]."""
        weights = torch.softmax(self.scores(inputs), dim=1)
        return torch.bmm(weights.unsqueeze(1), outputs).squeeze(1)


class Towers(nn.ModuleList):
    """A network for each task, to its logit."""

    def __init__(self, tasks: int, width: int, hidden: Sequence[int]) -> None:
        super().__init__(DeepLayers(width, hidden) for _ in range(tasks))

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return logits [B, tasks] of each task's input."""
        return torch.stack([tower(each) for tower, each in zip(self, inputs, strict=True)], dim=1)


def split_hidden(inputs: ModelInputs, model: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the widths of an expert's layers and of a tower's hidden layers.

    A tower has the last of the hidden layers, and an expert those before; of a single one, the expert has it.

    Raises:
        ConfigError: there are no hidden layers.
    """
    hidden = inputs.hidden
    if not hidden:
        raise ConfigError(
            f"over_arch_layer_sizes has one size, so the experts of model {model} have no layer; give them "
            "one before it, as in 256,64,1"
        )
    return (hidden[:-1], hidden[-1:]) if len(hidden) > 1 else (hidden, ())


def _layers(width: int, sizes: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for wide, narrow in pairwise([width, *sizes]):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers)
