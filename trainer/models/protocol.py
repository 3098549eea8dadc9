"""What a model is: a factory that makes a module from the sizes of its inputs.

    def build(inputs: ModelInputs) -> torch.nn.Module

The module's forward gets the dense values [B, dense features] and each sparse feature's vector [B, width]
by name, and returns one logit a sample, [B]. The tables, their sharding, optimizers and checkpoints are
not its concern. Two attributes are optional:

    build.columns(dim) -> int           the width of the tables, if a row keeps more than the vector
    module.loss(logits, labels) -> [B]  the loss of each sample, instead of binary cross-entropy
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInputs:
    """The inputs of a model, and the sizes that the configuration gives for its layers.

    Attributes:
        dense: the names of the dense features, in the order of their columns.
        sparse: the width of each sparse feature's vector.
        hidden: the widths of the hidden layers (`over_arch_layer_sizes` without the last).
        cross_layers: `dcn_num_layers`.
        cross_rank: `dcn_low_rank_dim`.
    """

    dense: tuple[str, ...]
    sparse: Mapping[str, int]
    hidden: tuple[int, ...]
    cross_layers: int
    cross_rank: int

    @property
    def width(self) -> int:
        """The width of all dense values and vectors side by side."""
        return len(self.dense) + sum(self.sparse.values())


class ModelFactory(Protocol):
    """Makes a model; see the module."""

    def __call__(self, inputs: ModelInputs, /) -> nn.Module:
        """Return a module with new weights, drawn by torch's default generator."""
        ...
