"""Parts of models in plain torch operations."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trainer.models.protocol import ModelInputs

OWN_COLUMNS = 4  # of a row, behind its vector: the first is the id's own weight; kernels need a multiple of 4


class DeepLayers(nn.Sequential):
    """Linear layers with ReLU between them, to one number: [B, width] -> [B]."""

    def __init__(self, width: int, hidden: Sequence[int]) -> None:
        layers: list[nn.Module] = []
        for wide, narrow in pairwise([width, *hidden]):
            layers += [nn.Linear(wide, narrow), nn.ReLU()]
        super().__init__(*layers, nn.Linear([width, *hidden][-1], 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one number a sample."""
        output: Tensor = super().forward(inputs)
        return output.squeeze(1)


class TaskHeads(nn.ModuleList):
    """A network for each task on one input: [B, width] -> [B, tasks]."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return a number for each task of each sample."""
        return torch.stack([head(inputs) for head in self], dim=1)


def head_of(tasks: Sequence[str], make: Callable[[], nn.Module]) -> nn.Module:
    """Return a new network for one task, whose output is [B], or one for each of several, [B, tasks]."""
    return make() if len(tasks) == 1 else TaskHeads(make() for _ in tasks)


class WideLayer(nn.Module):
    """A linear model: a weight of each dense value, and the own weight of each id, from its row."""

    def __init__(self, inputs: ModelInputs) -> None:
        super().__init__()
        self.dense = nn.Linear(len(inputs.dense), 1) if inputs.dense else None
        self.bias = None if inputs.dense else nn.Parameter(torch.zeros(1))

    def forward(self, dense: Tensor, own: Tensor) -> Tensor:
        """Return one number a sample; `own` are the ids' weights [B, features]."""
        total = own.sum(dim=1)
        return total + (self.bias if self.dense is None else self.dense(dense).squeeze(1))


def split_rows(vectors: Mapping[str, Tensor]) -> tuple[list[Tensor], Tensor]:
    """Return each feature's vector, and the ids' own weights [B, features]."""
    rows = list(vectors.values())
    own = torch.stack([row[:, -OWN_COLUMNS] for row in rows], dim=1)
    return [row[:, :-OWN_COLUMNS] for row in rows], own
