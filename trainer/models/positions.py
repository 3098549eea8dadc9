"""Pooling by position: the vectors of a sequence, each multiplied by a weight of its place, are summed.

The weights are learned, begin at 1, and are those of torchrec's PositionWeightedModule: one for each place,
the same for all samples. Tables deliver the vector of each place, so every sharding plan gives the same sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainer.models.inputs import keys_of

if TYPE_CHECKING:
    from collections.abc import Mapping


class PositionPooling(nn.Module):
    """The sums of vectors that are weighed by their places."""

    def __init__(self, lengths: Mapping[str, int], device: torch.device) -> None:
        """`lengths` are the places of each feature."""
        super().__init__()
        self.lengths = dict(lengths)
        for feature, length in self.lengths.items():
            # A prefix, since a feature may have the name of a module's attribute.
            self.register_parameter(f"of_{feature}", nn.Parameter(torch.ones(length, device=device)))

    def pool(self, feature: str, places: Tensor) -> Tensor:
        """Return the sums [B, width] of a feature's places [B, length, width]."""
        weights = self.get_parameter(f"of_{feature}")
        return torch.einsum("blw,l->bw", places, weights.to(places.dtype))

    def pooled(self, vectors: Tensor, keys: tuple[str, ...]) -> tuple[Tensor, tuple[str, ...]]:
        """Return the vectors [B, features, width] of keys of equal widths, and the features' names."""
        columns = {key: column for column, key in enumerate(keys)}
        taken = {
            key for feature, length in self.lengths.items() for key in keys_of([feature], {feature: length})
        }
        single = [key for key in keys if key not in taken]
        parts = [vectors[:, [columns[key] for key in single]]]
        for feature, length in self.lengths.items():
            places = [columns[key] for key in keys_of([feature], {feature: length})]
            parts.append(self.pool(feature, vectors[:, places])[:, None])
        return torch.cat(parts, dim=1), (*single, *self.lengths)
