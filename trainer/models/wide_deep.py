"""Wide & Deep: a linear model of the ids and dense values, plus an MLP of their vectors.

Cheng et al. 2016, "Wide & Deep Learning for Recommender Systems".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainer.models.parts import OWN_COLUMNS, DeepLayers, WideLayer, split_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.models.protocol import ModelInputs


class WideAndDeep(nn.Module):
    """The sum of both parts."""

    def __init__(self, inputs: ModelInputs) -> None:
        super().__init__()
        self.wide = WideLayer(inputs)
        self.deep = DeepLayers(inputs.width - OWN_COLUMNS * len(inputs.sparse), inputs.hidden)

    def forward(self, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
        """Return logits [B]."""
        rows, own = split_rows(vectors)
        deep: Tensor = self.deep(torch.cat([dense, *rows], dim=1))
        return deep + self.wide(dense, own)


def build(inputs: ModelInputs) -> WideAndDeep:
    """Return a new model."""
    return WideAndDeep(inputs)


build.columns = lambda dim: dim + OWN_COLUMNS  # type: ignore[attr-defined] # the protocol's
