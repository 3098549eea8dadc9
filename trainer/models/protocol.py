"""What a model is: a factory that makes a module from the sizes of its inputs.

    def build(inputs: ModelInputs) -> torch.nn.Module

The module's forward gets the dense values [B, dense features] and each sparse feature's vector [B, width]
by name, and returns one logit a sample, [B]. If the data has several labels, it returns a logit for each,
[B, tasks], in the order of `inputs.tasks`. The tables, their sharding, optimizers and checkpoints are
not its concern. Two attributes are optional:

    build.columns(dim) -> int           the width of the tables, if a row keeps more than the vector
    module.loss(logits, labels) -> [B]  the loss of each sample, instead of binary cross-entropy

With several labels, `loss` gets [B, tasks] of both, where the label -1 means that a sample has none. It
returns [B, tasks], of which the trainer leaves out the missing ones and adds up the others by the tasks'
weights; or [B], as the module itself adds them up.
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
        tasks: the names of the labels, one or several.
        experts: `num_experts`.
        extraction_layers: `num_extraction_layers`.
    """

    dense: tuple[str, ...]
    sparse: Mapping[str, int]
    hidden: tuple[int, ...]
    cross_layers: int
    cross_rank: int
    tasks: tuple[str, ...] = ("label",)
    experts: int = 4
    extraction_layers: int = 2

    @property
    def width(self) -> int:
        """The width of all dense values and vectors side by side."""
        return len(self.dense) + sum(self.sparse.values())


class ModelFactory(Protocol):
    """Makes a model; see the module."""

    def __call__(self, inputs: ModelInputs, /) -> nn.Module:
        """Return a module with new weights, drawn by torch's default generator."""
        ...
