"""The dense part under torch.compile: the arithmetic of dense_ops, in operations that it can fuse.

dense_ops calls oneDNN's products with a fused ReLU. The compiler generates these itself and does not accept
them as input, so compiled models have a separate forward pass over the same weights. It is for training
alone: evaluations run eagerly, so that none begins with a compilation.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainer.base.errors import ConfigError
from trainer.models.dense_ops import aligned, widened
from trainer.models.kernels import pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer.models.dense_ops import CrossNet, FusedMLP, PairIndices

Context: TypeAlias = Any  # autograd's context object carries whatever forward puts on it

FEWEST = 2  # samples: a single one would be compiled for

_LOG = logging.getLogger(__name__)


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

    def __init__(
        self,
        bottom: FusedMLP,
        crosses: CrossNet | None,
        top: FusedMLP,
        dtype: torch.dtype,
        *,
        required: bool,
    ) -> None:
        """With `required`, a machine that cannot compile is an error."""
        self.bottom = bottom
        self.crosses = crosses
        self.top = top
        self.dtype = dtype
        self.required = required
        self._run = torch.compile(self._logits)
        self._is_tried = False
        self._works = True

    @property
    def is_used(self) -> bool:
        """Whether batches ran compiled."""
        return self._is_tried and self._works

    def __call__(
        self, dense: Tensor, tables: Tensor, indices: PairIndices | None, *, recompute: bool
    ) -> Tensor | None:
        """Return logits [B] in the precision of the arithmetic, or None where the eager model is to run.

        `indices` is None for a model with crosses. One sample is left to the eager model, because
        torch.compile would compile for it alone, and so is everything if this machine cannot compile.

        Raises:
            ConfigError: this machine cannot compile, and it is required.
        """
        if not torch.is_grad_enabled() or len(dense) < FEWEST:
            return None
        if not self._can_run(dense, tables, indices, recompute):
            return None
        return self._compiled(dense, tables, indices, recompute)

    def _compiled(
        self,
        dense: Tensor,
        tables: Tensor,
        indices: PairIndices | None,
        recompute: bool,  # noqa: FBT001 - one way for the compiler's guards
    ) -> Tensor:
        # Without the mark, torch.compile compiles for the first batch size, and again for every other one.
        for inputs in (dense, tables):
            torch._dynamo.maybe_mark_dynamic(inputs, 0)  # noqa: SLF001 - torch.compiler has no public name for it
        is_fused = indices is not None and pairs.fits(tables.new_empty(0, dtype=self.dtype), tables)
        return self._run(dense, tables, indices, recompute, is_fused)

    def _can_run(
        self,
        dense: Tensor,
        tables: Tensor,
        indices: PairIndices | None,
        recompute: bool,  # noqa: FBT001 - as above
    ) -> bool:
        """Try both directions with the first batch: a failure in the middle of a step could not be undone.

        It is the whole batch, because the compiler chooses kernels for its size.
        """
        if self._is_tried:
            return self._works
        self._is_tried = True
        try:
            tried = tables.detach().requires_grad_(tables.requires_grad)
            logits = self._compiled(dense.detach(), tried, indices, recompute)
            weights = [each for part in (self.bottom, self.crosses, self.top) for each in _weights(part)]
            torch.autograd.grad(logits.float().sum(), weights)
        except Exception as error:
            if self.required and not _is_of_compiler(error):
                raise
            reason = " ".join(str(error).split())[:300]
            if self.required:
                raise ConfigError(
                    f"compile is on, but torch.compile fails on this machine: {reason}; it needs a C++ "
                    "compiler (g++, or what CXX names) and Python's headers, on GPUs Triton too: install "
                    "them, or leave compile out"
                ) from error
            _LOG.warning(
                "torch.compile fails on this machine, so the dense part runs without it: %s; it needs a C++ "
                "compiler and Python's headers; set compile to off to leave this out",
                reason,
            )
            self._works = False
        return self._works

    def _logits(
        self,
        dense: Tensor,
        tables: Tensor,
        indices: PairIndices | None,
        recompute: bool,  # noqa: FBT001 - one way for the compiler's guards
        is_fused: bool,  # noqa: FBT001 - as above
    ) -> Tensor:
        run = _recomputed if recompute else _kept
        bottom = run(_layers, self.bottom, dense, self.dtype)
        if indices is not None and is_fused:
            width = aligned(bottom.shape[1] + len(indices[0]), bottom)
            crossed = pairs.FusedInteraction.apply(bottom, tables, indices[2], width)
        elif indices is not None:
            stacked = torch.cat([bottom.unsqueeze(1), tables.to(self.dtype)], dim=1)
            crossed = torch.cat([bottom, Pairs.apply(stacked, indices[0], indices[1])], dim=1)
        else:
            joined = torch.cat([bottom, tables.to(self.dtype).flatten(1)], dim=1)
            crossed = run(_crosses, self.crosses, joined, self.dtype)
        return run(_layers, self.top, crossed, self.dtype).view(-1)


def _is_of_compiler(error: Exception) -> bool:
    return isinstance(error, torch._dynamo.exc.BackendCompilerFailed)  # noqa: SLF001 - torch.compiler has no public name for it


def _weights(part: nn.Module | None) -> list[nn.Parameter]:
    return [] if part is None else list(part.parameters())


def _layers(mlp: FusedMLP, inputs: Tensor, dtype: torch.dtype) -> Tensor:
    hidden = inputs.to(dtype)
    for index, layer in enumerate(mlp.layers, 1):
        weight = layer.weight.to(dtype)
        if index == 1:  # see dense_ops
            width = aligned(hidden.shape[1], hidden)
            hidden, weight = widened(hidden, width), widened(weight, width)
        hidden = functional.linear(hidden, weight, layer.bias.to(dtype))
        if mlp.relu_last or index < len(mlp.layers):
            hidden = torch.relu(hidden)
    return hidden


def _crosses(crosses: CrossNet, inputs: Tensor, dtype: torch.dtype) -> Tensor:
    return crosses(inputs, dtype=dtype)


def _kept(part: Callable[..., Tensor], *arguments: object) -> Tensor:
    return part(*arguments)


def _recomputed(part: Callable[..., Tensor], *arguments: object) -> Tensor:
    return checkpoint(part, *arguments, use_reentrant=False)
