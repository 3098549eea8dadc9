"""What a model is: a factory that makes a module from the sizes of its inputs.

    def build(inputs: ModelInputs) -> torch.nn.Module

The module's forward gets the dense values [B, dense features] and each sparse feature's vector [B, width]
by name, and returns one logit a sample, [B]. If the data has several labels, it returns a logit for each,
[B, tasks], in the order of `inputs.tasks`. The tables, their sharding, optimizers and checkpoints are
not its concern. These attributes are optional:

    build.columns(dim) -> int           the width of the tables, if a row keeps more than the vector
    build.sequences = True              sequence features come as Sequence, not as the mean of their vectors
    module.loss(logits, labels) -> [B]  the loss of each sample, instead of binary cross-entropy

With several labels, `loss` gets [B, tasks] of both, where the label -1 means that a sample has none. It
returns [B, tasks], of which the trainer leaves out the missing ones and adds up the others by the tasks'
weights; or [B], as the module itself adds them up.

A model may instead compare the samples of a step with one another. Its forward then returns any numbers a
sample, [B, N], and it has these methods:

    module.batch_loss(outputs, labels, step) -> [B]  the losses of this rank's samples; `step.gather(values)`
                                        gives those of all ranks with their gradients, `step.first` the place
                                        of this rank's first one, `step.ids(feature)` the ids of a feature,
                                        and `step.drawn` the items that the step drew
    module.scores(outputs) -> [B]       the logit of each sample

A model for retrieval also has the method `towers(outputs)`, which returns the vectors of users and of items,
whose products rank items, and `learn_counts(counts)`, which gets the positive training rows of each id.

These three kinds are RankingModel, ComparingModel and RetrievalModel below. A module's methods say which it
is (`trainer.models.kinds`); it need not import anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn


class Sequence(NamedTuple):
    """A sequence feature of a batch, the oldest value first; behind a sample's last value, vectors are 0."""

    vectors: Tensor  # [B, length, width]
    lengths: Tensor  # int64 [B], the values of each sample

    @property
    def mask(self) -> Tensor:
        """Which places hold a value: bool [B, length]."""
        places = torch.arange(self.vectors.shape[1], device=self.lengths.device)
        return places < self.lengths[:, None]


class SequenceSize(NamedTuple):
    """The sizes of a sequence feature."""

    length: int  # the most values of a sample
    width: int  # of each one's vector


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInputs:
    """The inputs of a model, and the sizes that the configuration gives for its layers.

    Attributes:
        dense: the names of the dense features, in the order of their columns.
        sparse: the width of each sparse feature's vector; not those in `sequences`.
        hidden: the widths of the hidden layers (`over_arch_layer_sizes` without the last).
        cross_layers: `dcn_num_layers`.
        cross_rank: `dcn_low_rank_dim`.
        tasks: the names of the labels, one or several.
        experts: `num_experts`.
        extraction_layers: `num_extraction_layers`.
        sequences: the sizes of each sequence feature, if the model takes sequences.
        tables: the table of each sparse feature; features with the same one have equal vectors for equal ids.
        attention_sizes: the hidden layers of din's attention (`attention_layer_sizes`).
        attention_layers: `attention_num_layers`.
        attention_heads: `attention_num_heads`.
        item: the features of the item that a sample is about; the first one identifies it.
        temperature: `temperature`.
        negatives: `negatives`, from which a model of retrieval takes other items.
    """

    dense: tuple[str, ...]
    sparse: Mapping[str, int]
    hidden: tuple[int, ...]
    cross_layers: int
    cross_rank: int
    tasks: tuple[str, ...] = ("label",)
    experts: int = 4
    extraction_layers: int = 2
    sequences: Mapping[str, SequenceSize] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    attention_sizes: tuple[int, ...] = (80, 40)
    attention_layers: int = 2
    attention_heads: int = 2
    item: tuple[str, ...] = ()
    temperature: float = 0.1
    negatives: str = "in_batch"

    @property
    def width(self) -> int:
        """The width of all dense values and vectors side by side, without sequences."""
        return len(self.dense) + sum(self.sparse.values())


class ModelFactory(Protocol):
    """Makes a model; see the module."""

    def __call__(self, inputs: ModelInputs, /) -> nn.Module:
        """Return a module with new weights, drawn by torch's default generator."""
        ...


class RankingModel(Protocol):
    """Gives each sample logits."""

    def __call__(self, dense: Tensor, vectors: Mapping[str, Tensor | Sequence], /) -> Tensor:
        """Return logits [B], or [B, tasks]."""
        ...


@runtime_checkable
class OwnLoss(RankingModel, Protocol):
    """A model with its own loss of each sample."""

    def loss(self, logits: Tensor, labels: Tensor, /) -> Tensor:
        """Return losses [B], or [B, tasks]."""
        ...


class DrawnNegatives(Protocol):
    """The items that a step drew with equal chances (`--negatives`), of which this rank has a part."""

    outputs: Tensor  # [D, N], what forward returned for this rank's; the items have no features of a user
    ids: Tensor  # of all ranks' items, in the order of ranks
    among: int  # the number of items that were drawn from

    def gather(self, values: Tensor, /) -> Tensor:
        """Return the values of all ranks' items, in the order of ranks; gradients flow back to each."""
        ...


class WholeStep(Protocol):
    """The samples of a step over all ranks, of which this rank has a part."""

    first: int  # of this rank's samples among all

    @property
    def drawn(self) -> DrawnNegatives | None:
        """The items that the step drew; None without `--negatives`."""
        ...

    def ids(self, feature: str, /) -> Tensor:
        """Return the ids [B] of this rank's samples; the feature has one a sample."""
        ...

    def gather(self, values: Tensor, /) -> Tensor:
        """Return the values of all ranks' samples, in the order of ranks; gradients flow back to each."""
        ...


@runtime_checkable
class ComparingModel(Protocol):
    """Compares the samples of a step with one another."""

    def __call__(self, dense: Tensor, vectors: Mapping[str, Tensor | Sequence], /) -> Tensor:
        """Return any numbers a sample [B, N]."""
        ...

    def batch_loss(self, outputs: Tensor, labels: Tensor, step: WholeStep, /) -> Tensor:
        """Return the losses [B] of this rank's samples."""
        ...

    def scores(self, outputs: Tensor, /) -> Tensor:
        """Return logits [B]."""
        ...


@runtime_checkable
class RetrievalModel(ComparingModel, Protocol):
    """Finds the items that fit a user."""

    def towers(self, outputs: Tensor, /) -> tuple[Tensor, Tensor]:
        """Return the vectors of users and of items."""
        ...

    def learn_counts(self, counts: Tensor, /) -> None:
        """Take the numbers of positive training rows of each item's id."""
        ...
