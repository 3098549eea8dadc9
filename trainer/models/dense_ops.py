"""The dense part's building blocks, with hand-written gradients: most of a CPU step is spent here.

By measurement, these choices are faster on CPUs: fewer passes over activations, oneDNN's products with a
fused ReLU, one pass for a ReLU's and a bias's gradient, and no index_select on 16-bit values, for which torch
has no vectorised kernel there.

On GPUs, cuBLAS adds bias and ReLU in the product; the last layer's gradients are no products. Libraries have
fast kernels for aligned rows only, so other widths are padded with zeros: on CPUs, the gradient of 415
columns takes 1.4 times as long as that of 416. The interaction uses trainer.models.kernels where they run.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.models.kernels import pairs
from trainer.native import relu as relu_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

Context: TypeAlias = Any  # autograd's context object carries whatever forward puts on it
PairIndices: TypeAlias = tuple[Tensor, Tensor, Tensor]  # of DotInteraction, and ranks of FusedInteraction
ALIGNED_BYTES = {"cuda": 16, "cpu": 64}  # of a row: cuBLAS's requirement, and a line of a CPU's cache


class _Forgetful:
    """A context that keeps nothing for backward."""

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Forget them."""


def applied(function: type[torch.autograd.Function], *inputs: Any) -> Tensor:  # noqa: ANN401 - each function's own
    """Return what a function computes. TorchScript cannot keep gradients, so it gets the operations alone."""
    if torch.jit.is_tracing():
        return function.forward(_Forgetful(), *inputs)
    return function.apply(*inputs)


class DotInteraction(torch.autograd.Function):
    """Pairwise dot products of F+1 vectors per sample, after the bottom MLP's output.

    (bottom [B, D], tables [B, F, D]) -> [B, D + (F+1)F/2]. Forward multiplies the whole square and selects
    the upper triangle. Backward restores the triangle on both sides by one index_select (the diagonal selects
    a column of zeros) and multiplies once, because the square of gradients is symmetric. Runs in the
    precision of `bottom`. Columns of zeros follow up to a width that the top MLP multiplies fast.
    """

    @staticmethod
    def make_indices(order: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the indices for forward and backward.

        forward_index [pairs]: the position of each canonical pair in the flat square. backward_index
        [(F+1)^2]: the pair of each entry of the square, counted from 1; 0 for the diagonal. `order[i]` is the
        position of the i-th canonical vector in the input.
        """
        size = len(order)
        places = torch.tensor(order)
        rows, columns = torch.triu_indices(size, size, offset=1)
        forward_index = places[rows] * size + places[columns]
        backward_index = torch.zeros(size * size, dtype=torch.int64)
        numbers = torch.arange(1, len(forward_index) + 1)
        backward_index[forward_index] = numbers
        backward_index[places[columns] * size + places[rows]] = numbers
        return forward_index.to(device), backward_index.to(device)

    @staticmethod
    def forward(  # noqa: D102 - autograd's protocol
        ctx: Context, bottom: Tensor, tables: Tensor, forward_index: Tensor, backward_index: Tensor
    ) -> Tensor:
        batch, count, dim = tables.shape
        stacked = bottom.new_empty(batch, count + 1, dim)
        stacked[:, 0] = bottom
        stacked[:, 1:] = tables
        square = torch.bmm(stacked, stacked.transpose(1, 2)).view(batch, (count + 1) ** 2)
        ctx.save_for_backward(stacked, backward_index)
        ctx.table_dtype = tables.dtype
        width = dim + len(forward_index)
        rest = aligned(width, bottom) - width
        ends = [bottom.new_zeros(batch, rest)] if rest else []  # TorchScript's graphs have no empty part
        return torch.cat([bottom, _pick(square, forward_index), *ends], dim=1)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: D102 - autograd's protocol
        stacked, backward_index = ctx.saved_tensors
        batch, count, dim = stacked.shape
        padded = gradient[:, dim - 1 :]
        padded = padded.float() if gradient.device.type == "cpu" else padded
        if padded.data_ptr() == gradient[:, dim - 1 :].data_ptr():
            padded = padded.clone()  # a view of the gradient, which must not change
        padded[:, 0] = 0  # the column before the pairs, to which the diagonal's indices point
        square = padded.index_select(1, backward_index).view(batch, count, count).to(stacked.dtype)
        grad_stacked = torch.bmm(square, stacked)
        grad_bottom = grad_stacked[:, 0] + gradient[:, :dim]
        return grad_bottom, grad_stacked[:, 1:].to(ctx.table_dtype), None, None


def interaction(bottom: Tensor, tables: Tensor, indices: PairIndices) -> Tensor:
    """Return DotInteraction's output, by the kernels of `pairs` where they take the input."""
    forward_index, backward_index, ranks = indices
    if pairs.fits(bottom, tables):
        width = aligned(bottom.shape[1] + len(forward_index), bottom)
        return pairs.FusedInteraction.apply(bottom, tables, ranks, width)
    return applied(DotInteraction, bottom, tables, forward_index, backward_index)


def pair_indices(order: Sequence[int], device: torch.device) -> PairIndices:
    """Return what `interaction` needs; `order[i]` is the position of the i-th canonical vector."""
    return *DotInteraction.make_indices(order, device), pairs.make_ranks(order, device)


class FusedMLP(nn.Module):
    """Linear layers with ReLU between them: [B, in] -> [B, sizes[-1]]; weights are fp32 in any precision."""

    def __init__(
        self, in_features: int, sizes: Sequence[int], *, relu_last: bool, device: torch.device
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(wide, narrow, device=device) for wide, narrow in pairwise([in_features, *sizes])
        )
        self.relu_last = relu_last

    def forward(self, inputs: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Run in this precision."""
        weights = [layer.weight for layer in self.layers]
        biases = [layer.bias for layer in self.layers]
        inputs = inputs.to(dtype)
        inputs = widened(inputs, aligned(inputs.shape[1], inputs))
        return applied(_MLPFunction, inputs, self.relu_last, *weights, *biases)


class CrossNet(nn.Module):
    """DCN-v2's low-rank crosses: x <- x0 * (W (V x) + b) + x, [B, N] -> [B, N]; weights are fp32."""

    def __init__(self, width: int, layers: int, rank: int, *, device: torch.device) -> None:
        super().__init__()
        self.narrow = nn.ModuleList(nn.Linear(width, rank, bias=False, device=device) for _ in range(layers))
        self.widen = nn.ModuleList(nn.Linear(rank, width, device=device) for _ in range(layers))

    def forward(self, inputs: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Run in this precision."""
        start = crossed = inputs.to(dtype)
        for narrow, widen in zip(self.narrow, self.widen, strict=True):
            projected = functional.linear(crossed, narrow.weight.to(dtype))
            change = functional.linear(projected, widen.weight.to(dtype), widen.bias.to(dtype))
            crossed = torch.addcmul(crossed, start, change)
        return crossed


class _MLPFunction(torch.autograd.Function):
    """All layers as one node of the autograd graph, which keeps only each layer's input and the output."""

    @staticmethod
    def forward(ctx: Context, inputs: Tensor, relu_last: bool, *parameters: Tensor) -> Tensor:  # noqa: FBT001 - apply() takes no keywords
        layers = len(parameters) // 2
        weights = [weight.to(inputs.dtype) for weight in parameters[:layers]]
        ctx.columns = weights[0].shape[1]
        weights[0] = widened(weights[0], inputs.shape[1])
        biases = [bias.to(inputs.dtype) for bias in parameters[layers:]]
        hidden = [inputs]
        for index in range(layers):
            relu = relu_last or index + 1 < layers
            hidden.append(_linear(hidden[-1], weights[index], biases[index], relu=relu))
        ctx.save_for_backward(*hidden, *weights)
        ctx.layers, ctx.relu_last = layers, relu_last
        return hidden[-1]

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # read once: under activation checkpointing, a second read fails
        hidden, weights = saved[: ctx.layers + 1], saved[ctx.layers + 1 :]
        weight_gradients: list[Tensor] = []
        bias_gradients: list[Tensor] = []
        for index in reversed(range(ctx.layers)):
            if ctx.relu_last or index + 1 < ctx.layers:
                is_ours = index + 1 < ctx.layers
                gradient, bias_gradient = _before_relu(gradient, hidden[index + 1], in_place=is_ours)
            else:
                bias_gradient = gradient.sum(0, dtype=torch.float32)
            weight_gradients.append(_weight_gradient(gradient, hidden[index]))
            bias_gradients.append(bias_gradient)
            if index > 0 or ctx.needs_input_grad[0]:
                gradient = _input_gradient(gradient, weights[index])
        weight_gradients[-1] = weight_gradients[-1][:, : ctx.columns]
        inputs_gradient = gradient if ctx.needs_input_grad[0] else None
        return inputs_gradient, None, *reversed(weight_gradients), *reversed(bias_gradients)


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor, *, relu: bool) -> Tensor:
    kind = inputs.device.type
    if kind == "cpu" and inputs.shape[0] and _has_fused_linear(inputs.dtype) and not _is_graph():
        return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "relu" if relu else "none", [], "")  # noqa: SLF001 - the ReLU inside the product, as torch.compile makes it
    if relu and kind == "cuda" and not _is_graph():
        return torch._addmm_activation(bias, inputs, weight.t())  # noqa: SLF001 - the ReLU inside the product, as above
    output = functional.linear(inputs, weight, bias)
    return output.relu_() if relu else output


def _before_relu(gradient: Tensor, output: Tensor, *, in_place: bool) -> tuple[Tensor, Tensor]:
    """Return the gradient before a ReLU [B, N], perhaps written over the other, and its sum, fp32 [N]."""
    if not torch.compiler.is_compiling() and relu_kernel.takes(gradient, output):
        return relu_kernel.backward(gradient, output, in_place=in_place)
    gradient = torch.ops.aten.threshold_backward(gradient, output, 0)
    return gradient, gradient.sum(0, dtype=torch.float32)


def _weight_gradient(gradient: Tensor, inputs: Tensor) -> Tensor:
    """Return the gradient of a weight, fp32 [out, in]."""
    if gradient.device.type == "cuda" and gradient.shape[1] == 1:
        return (gradient.float() * inputs).sum(0, keepdim=True)
    return (gradient.t() @ inputs).float()


def _input_gradient(gradient: Tensor, weight: Tensor) -> Tensor:
    if gradient.device.type == "cuda" and gradient.shape[1] == 1:
        return gradient * weight
    return gradient @ weight


def aligned(width: int, values: Tensor) -> int:
    """Return the width to which rows of these values are padded."""
    if _is_graph() or values.device.type not in ALIGNED_BYTES:
        return width
    columns = ALIGNED_BYTES[values.device.type] // values.element_size()
    return -(-width // columns) * columns


def widened(values: Tensor, width: int) -> Tensor:
    """Return rows with zeros behind them, up to a width."""
    return values if values.shape[1] >= width else functional.pad(values, (0, width - values.shape[1]))


def _is_graph() -> bool:
    """Whether a graph for serving is made, which has torch's own operations alone."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()


@cache
def _has_fused_linear(dtype: torch.dtype) -> bool:
    """Whether oneDNN has the fused product for this type on this CPU; for bf16 it needs AVX-512 or newer."""
    if not torch.backends.mkldnn.is_available() or dtype == torch.float16:
        return False
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001 - torch.compile asks the same


def _pick(square: Tensor, index: Tensor) -> Tensor:
    """Select columns of a matrix [B, N], on CPUs in fp32: three times as fast there as in bf16."""
    if square.device.type != "cpu":
        return square.index_select(1, index)
    return square.float().index_select(1, index).to(square.dtype)
