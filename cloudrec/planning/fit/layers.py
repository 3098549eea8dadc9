"""The dense part of each model, counted: parameters, operations and activations of a sample.

The counts follow trainer/models. A test compares them with torch's own counts of the same modules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OWN_COLUMNS = 4  # of a row of deepfm and wide_deep, behind its vector
_IN_ORDER = frozenset({"din", "hstu"})  # models that read the places of a sequence, not their mean
_WITH_OWN_COLUMNS = frozenset({"deepfm", "wide_deep"})
_BOTH_PASSES = 3  # a product and its two gradients


@dataclass(frozen=True, kw_only=True)
class HistorySize:
    """Sequences of the same events that are compared with candidates of the same tables.

    Attributes:
        length: the most events.
        width: of an event's vectors side by side.
    """

    length: int
    width: int


@dataclass(frozen=True, kw_only=True)
class LayerSizes:
    """The inputs of a model's dense part, and the sizes that the settings give for its layers.

    Attributes:
        num_dense: dense values of a sample.
        vectors: the widths of the features' vectors; with din and hstu not those of sequences.
        bottom: `dense_arch_layer_sizes`.
        top: `over_arch_layer_sizes`.
        interaction: dot or dcn.
        cross_layers: `dcn_num_layers`.
        cross_rank: `dcn_low_rank_dim`.
        tasks: the number of labels.
        experts: `num_experts`.
        extraction_layers: `num_extraction_layers`.
        attention_sizes: `attention_layer_sizes`.
        attention_layers: `attention_num_layers`.
        attention_heads: `attention_num_heads`.
        histories: of din and hstu.
        unpaired: the widths of the sequences that are in no history.
        item_width: of the item's vectors together.
        negatives: `negatives`.
        drawn: `num_negatives`.
    """

    num_dense: int
    vectors: Sequence[int]
    bottom: Sequence[int] = ()
    top: Sequence[int] = (1,)
    interaction: str = "dot"
    cross_layers: int = 3
    cross_rank: int = 512
    tasks: int = 1
    experts: int = 4
    extraction_layers: int = 2
    attention_sizes: Sequence[int] = (80, 40)
    attention_layers: int = 2
    attention_heads: int = 2
    histories: Sequence[HistorySize] = ()
    unpaired: Sequence[int] = ()
    item_width: int = 0
    negatives: str = "in_batch"
    drawn: int = 0

    @property
    def width(self) -> int:
        """All inputs side by side, without histories."""
        return self.num_dense + sum(self.vectors) + sum(self.unpaired)

    @property
    def hidden(self) -> Sequence[int]:
        """The hidden layers of the top."""
        return self.top[:-1]


@dataclass(frozen=True, kw_only=True)
class DenseWork:
    """What the dense part costs.

    Attributes:
        params: weights and biases.
        flops: floating-point operations of the matrix products of a sample, forward and backward.
        activations: values of a sample that are kept for the backward pass.
        compared: the width of the vectors by which a sample is compared with items; 0 if it is not.
        compares_rows: whether these are the items of every sample of the step, on all ranks.
        drawn: items that a step draws over all ranks, which every sample is compared with.
        drawn_flops: operations for each drawn item.
        pairs: products of two vectors of a sample, of which dlrm selects half.
        paired: values of the vectors that are multiplied with one another.
    """

    params: int = 0
    flops: float = 0.0
    activations: int = 0
    compared: int = 0
    compares_rows: bool = False
    drawn: int = 0
    drawn_flops: float = 0.0
    pairs: int = 0
    paired: int = 0

    def __add__(self, other: DenseWork) -> DenseWork:
        """Return both together, of parts that compare nothing."""
        return DenseWork(
            params=self.params + other.params,
            flops=self.flops + other.flops,
            activations=self.activations + other.activations,
            pairs=self.pairs + other.pairs,
            paired=self.paired + other.paired,
        )

    def times(self, count: int) -> DenseWork:
        """Return so many of it, each with separate parameters."""
        return DenseWork(
            params=self.params * count,
            flops=self.flops * count,
            activations=self.activations * count,
            pairs=self.pairs * count,
            paired=self.paired * count,
        )

    def step_flops(self, batch: int, ranks: int) -> float:
        """Return the operations of a rank's step of so many samples."""
        items = (batch * ranks if self.compares_rows else 0) + self.drawn
        compared = 2 * _BOTH_PASSES * self.compared * items
        return batch * (self.flops + compared) + self.drawn_flops * self.drawn / ranks


def is_known(model: str) -> bool:
    """Whether `model` is one whose layers can be counted, and not a user's own."""
    return model in _MODELS


def reads_in_order(model: str) -> bool:
    """Whether a model gets every place of a sequence."""
    return model in _IN_ORDER


def table_width(model: str, dim: int) -> int:
    """Return the values of a table's row for vectors of this width."""
    return dim + OWN_COLUMNS if model in _WITH_OWN_COLUMNS else dim


def dense_work(model: str, sizes: LayerSizes) -> DenseWork:
    """Return what the dense part of a model costs; a user's own is counted as dlrm."""
    return _MODELS.get(model, _dlrm)(sizes)


def _product(rows: int, inner: int, columns: int) -> DenseWork:
    """Count a product of two matrices of one sample, whose result is an activation."""
    return DenseWork(flops=2.0 * _BOTH_PASSES * rows * inner * columns, activations=rows * columns)


def _linear(inputs: int, outputs: int, *, applied: int = 1, bias: bool = True) -> DenseWork:
    """Count a linear layer that is applied so many times a sample."""
    work = _product(applied, inputs, outputs)
    return DenseWork(params=inputs * outputs + (outputs if bias else 0)) + work


def _mlp(sizes: Sequence[int], *, applied: int = 1) -> DenseWork:
    """Count linear layers one upon another; the first size is the input's."""
    return sum((_linear(a, b, applied=applied) for a, b in pairwise(sizes)), DenseWork())


def _prelus(hidden: Sequence[int]) -> DenseWork:
    """Count the slopes of PReLU, one a layer."""
    return DenseWork(params=len(hidden))


def _values(count: int) -> DenseWork:
    return DenseWork(activations=count)


def _dlrm(sizes: LayerSizes) -> DenseWork:
    if sizes.interaction == "dcn":
        return _dcn(sizes)
    vectors = len(sizes.vectors) + 1
    dim = sizes.bottom[-1] if sizes.bottom else sizes.num_dense
    width = dim + math.comb(vectors, 2)
    # The matrix of products is symmetric, so one product gives the gradients of both factors.
    pairs = DenseWork(flops=2.0 * 2 * vectors * vectors * dim, pairs=vectors * vectors, paired=vectors * dim)
    return (
        _values(sizes.num_dense + sum(sizes.vectors) + dim + width)
        + _mlp([sizes.num_dense, *sizes.bottom])
        + pairs
        + _mlp([width, *sizes.top])
    )


def _dcn(sizes: LayerSizes) -> DenseWork:
    width = (sizes.bottom[-1] if sizes.bottom else sizes.num_dense) + sum(sizes.vectors)
    cross = _linear(width, sizes.cross_rank, bias=False) + _linear(sizes.cross_rank, width)
    return (
        _values(sizes.num_dense + width)
        + _mlp([sizes.num_dense, *sizes.bottom])
        + cross.times(sizes.cross_layers)
        + _values(sizes.cross_layers * width)
        + _mlp([width, *sizes.top])
    )


def _wide_deep(sizes: LayerSizes) -> DenseWork:
    wide = _linear(sizes.num_dense, 1) if sizes.num_dense else DenseWork(params=1)
    return _values(sizes.width) + wide + _mlp([sizes.width, *sizes.hidden, 1])


def _towers(sizes: LayerSizes, width: int, hidden: Sequence[int]) -> DenseWork:
    return _mlp([width, *hidden, 1]).times(sizes.tasks)


def _split(sizes: LayerSizes) -> tuple[Sequence[int], Sequence[int]]:
    """Return the layers of an expert and those of a tower; see trainer.models.multi_task.experts."""
    hidden = sizes.hidden
    return (hidden[:-1], hidden[-1:]) if len(hidden) > 1 else (hidden, ())


def _gate(width: int, experts: int, size: int) -> DenseWork:
    return _linear(width, experts, bias=False) + _values(experts) + _product(1, experts, size)


def _mmoe(sizes: LayerSizes) -> DenseWork:
    expert, tower = _split(sizes)
    out = expert[-1] if expert else sizes.width
    return (
        _values(sizes.width)
        + _mlp([sizes.width, *expert]).times(sizes.experts)
        + _gate(sizes.width, sizes.experts, out).times(sizes.tasks)
        + _towers(sizes, out, tower)
    )


def _ple(sizes: LayerSizes) -> DenseWork:
    expert, tower = _split(sizes)
    width = sizes.width
    out = expert[-1] if expert else width
    found = _values(width)
    for layer in range(sizes.extraction_layers):
        found += _mlp([width, *expert]).times(sizes.experts * (1 + sizes.tasks))
        found += _gate(width, 2 * sizes.experts, out).times(sizes.tasks)
        if layer < sizes.extraction_layers - 1:
            found += _gate(width, (sizes.tasks + 1) * sizes.experts, out)
        width = out
    return found + _towers(sizes, width, tower)


def _din(sizes: LayerSizes) -> DenseWork:
    found = DenseWork()
    for each in sizes.histories:
        found += _values(4 * each.width * each.length)
        found += _mlp([4 * each.width, *sizes.attention_sizes, 1], applied=each.length)
        found += _prelus(sizes.attention_sizes)
        found += _product(1, each.length, each.width)
    width = sizes.width + sum(each.width for each in sizes.histories)
    top = _mlp([width, *sizes.hidden, 1]) + _prelus(sizes.hidden)
    return found + _values(width) + top.times(sizes.tasks)


def _hstu(sizes: LayerSizes) -> DenseWork:
    found = DenseWork()
    for each in sizes.histories:
        events, width = each.length + 1, each.width
        layer = (
            DenseWork(params=4 * width + events * sizes.attention_heads)  # two norms, the bias by distance
            + _values(4 * events * width)  # of both norms, the gate and the sum
            + _linear(width, 4 * width, applied=events)
            + _product(events, width, events)  # all heads together
            + _product(events, events, width)
            + _values((2 * sizes.attention_heads - 1) * events * events)  # of the scores of each head
            + _linear(width, width, applied=events)
        )
        found += _values(events * width) + layer.times(sizes.attention_layers)
    width = sizes.width + sum(each.width for each in sizes.histories)
    return found + _values(width) + _mlp([width, *sizes.hidden, 1]).times(sizes.tasks)


def _two_tower(sizes: LayerSizes) -> DenseWork:
    item = _mlp([sizes.item_width, *sizes.hidden])
    user = _mlp([sizes.width - sizes.item_width, *sizes.hidden])
    is_drawn = sizes.negatives != "in_batch"
    return DenseWork(
        params=item.params + user.params,
        flops=item.flops + user.flops,
        activations=sizes.width + item.activations + user.activations,
        compared=sizes.hidden[-1] if sizes.hidden else 0,
        compares_rows=sizes.negatives != "uniform",
        drawn=sizes.drawn if is_drawn else 0,
        drawn_flops=item.flops if is_drawn else 0.0,
    )


_MODELS: Mapping[str, Callable[[LayerSizes], DenseWork]] = {
    "dlrm": _dlrm,
    "dcn_v2": _dcn,
    "deepfm": _wide_deep,  # its pairs are sums of squares, which are no products
    "wide_deep": _wide_deep,
    "two_tower": _two_tower,
    "mmoe": _mmoe,
    "ple": _ple,
    "din": _din,
    "hstu": _hstu,
}
