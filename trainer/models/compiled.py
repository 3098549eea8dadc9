"""The dense part under torch.compile: the arithmetic of dense_ops, in operations that it can fuse.

dense_ops calls oneDNN's products with a fused ReLU. The compiler generates these itself and does not accept
them as input, so compiled models have a separate forward pass over the same weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer.models.dense_ops import CrossNet, FusedMLP

Context: TypeAlias = Any  # autograd's context object carries whatever forward puts on it


class Pairs(torch.autograd.Function):
    """Pairwise dot products: (stacked [B, N, D], indices of DotInteraction.make_indices) -> [B, pairs].

    The gradient is written by hand: it is one product with a symmetric square, where autograd would make two,
    and it needs no atomic additions.
    """

    @staticmethod
    def forward(ctx: Context, stacked: Tensor, forward_index: Tensor, backward_index: Tensor) -> Tensor:  # noqa: D102 - autograd's protocol
        ctx.save_for_backward(stacked, backward_index)
        square = torch.bmm(stacked, stacked.transpose(1, 2)).flatten(1)
        return square.index_select(1, forward_index)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: D102 - autograd's protocol
        stacked, backward_index = ctx.saved_tensors
        count = stacked.shape[1]
        padded = functional.pad(gradient, (1, 0))  # a column of zeros, to which the diagonal's indices point
        square = padded.index_select(1, backward_index).view(-1, count, count)
        return torch.bmm(square, stacked), None, None


class CompiledDense:
    """(dense [B, num_dense], tables [B, F, D]) -> logits [B], compiled once for batches of any size."""

    def __init__(self, bottom: FusedMLP, crosses: CrossNet | None, top: FusedMLP, dtype: torch.dtype) -> None:
        self.bottom = bottom
        self.crosses = crosses
        self.top = top
        self.dtype = dtype
        self._run = torch.compile(self._logits)

    def __call__(
        self, dense: Tensor, tables: Tensor, indices: tuple[Tensor, Tensor] | None, *, recompute: bool
    ) -> Tensor:
        """Return logits [B] in the precision of the arithmetic; `indices` is None for a model with crosses.

        Raises:
            ConfigError: this machine cannot compile.
        """
        # Without the mark, torch.compile compiles for the first batch size, and again for every other one.
        for inputs in (dense, tables):
            torch._dynamo.maybe_mark_dynamic(inputs, 0)  # noqa: SLF001 - torch.compiler has no public name for it
        try:
            return self._run(dense, tables, indices, recompute)
        except torch._dynamo.exc.BackendCompilerFailed as error:  # noqa: SLF001 - as above
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(
                f"compile is on, but torch.compile fails on this machine: {reason}; it needs a C++ compiler "
                "(g++, or what CXX names) and Python's headers, on GPUs Triton too: install them, or leave "
                "compile out"
            ) from error

    def _logits(
        self,
        dense: Tensor,
        tables: Tensor,
        indices: tuple[Tensor, Tensor] | None,
        recompute: bool,  # noqa: FBT001 - one way for the compiler's guards
    ) -> Tensor:
        run = _recomputed if recompute else _kept
        bottom = run(_layers, self.bottom, dense, self.dtype)
        tables = tables.to(self.dtype)
        if indices is not None:
            stacked = torch.cat([bottom.unsqueeze(1), tables], dim=1)
            crossed = torch.cat([bottom, Pairs.apply(stacked, *indices)], dim=1)
        else:
            crossed = run(_crosses, self.crosses, torch.cat([bottom, tables.flatten(1)], dim=1), self.dtype)
        return run(_layers, self.top, crossed, self.dtype).view(-1)


def _layers(mlp: FusedMLP, inputs: Tensor, dtype: torch.dtype) -> Tensor:
    hidden = inputs.to(dtype)
    for index, layer in enumerate(mlp.layers, 1):
        hidden = functional.linear(hidden, layer.weight.to(dtype), layer.bias.to(dtype))
        if mlp.relu_last or index < len(mlp.layers):
            hidden = torch.relu(hidden)
    return hidden


def _crosses(crosses: CrossNet, inputs: Tensor, dtype: torch.dtype) -> Tensor:
    return crosses(inputs, dtype=dtype)


def _kept(part: Callable[..., Tensor], *arguments: object) -> Tensor:
    return part(*arguments)


def _recomputed(part: Callable[..., Tensor], *arguments: object) -> Tensor:
    return checkpoint(part, *arguments, use_reentrant=False)
