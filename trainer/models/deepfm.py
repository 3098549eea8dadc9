"""DeepFM: a factorisation machine (ids' own weights, products of pairs of vectors) plus an MLP.

Guo et al. 2017, "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction". Dense values are
in the linear part and the MLP; the pairs are those of the sparse features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainer.base.errors import ConfigError
from trainer.models.parts import OWN_COLUMNS, DeepLayers, WideLayer, split_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.models.protocol import ModelInputs


class DeepFM(nn.Module):
    """The sum of the linear part, the products of pairs, and the MLP."""

    def __init__(self, inputs: ModelInputs) -> None:
        super().__init__()
        self.linear = WideLayer(inputs)
        self.deep = DeepLayers(inputs.width - OWN_COLUMNS * len(inputs.sparse), inputs.hidden)

    def forward(self, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
        """Return logits [B]."""
        rows, own = split_rows(vectors)
        stacked = torch.stack(rows, dim=1)
        # The sum over pairs is half of (square of the sum - sum of the squares).
        pairs = 0.5 * (stacked.sum(dim=1).square() - stacked.square().sum(dim=1)).sum(dim=1)
        deep: Tensor = self.deep(torch.cat([dense, *rows], dim=1))
        return self.linear(dense, own) + pairs + deep


def build(inputs: ModelInputs) -> DeepFM:
    """Return a new model; ConfigError if vectors have different widths, which have no products."""
    if len(set(inputs.sparse.values())) > 1:
        widths = ", ".join(f"{name} {width - OWN_COLUMNS}" for name, width in inputs.sparse.items())
        raise ConfigError(
            f"model deepfm multiplies vectors of equal dimensions, but the features have {widths}; give them "
            "equal dims in the feature schema, or take wide_deep"
        )
    return DeepFM(inputs)


build.columns = lambda dim: dim + OWN_COLUMNS  # type: ignore[attr-defined] # the protocol's
