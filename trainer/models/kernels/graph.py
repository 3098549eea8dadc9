"""The dense part as two CUDA graphs: its some 150 kernels take the host two launches instead of one each.

The kernels and their order are those of the eager or compiled part, so the numbers are the same bits. A graph
has fixed sizes and addresses: it is captured for full batches; the others run as before.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

Part: TypeAlias = "Callable[[tuple[str, ...], Tensor, Tensor], Tensor]"  # of the tables' keys, too
Context: TypeAlias = Any  # autograd's context object carries whatever forward puts on it
WARM_UPS = 3  # runs before the capture: libraries and compilers choose kernels and allocate in the first ones

_LOG = logging.getLogger(__name__)


class DenseGraph:
    """(features, dense [B, num_dense], tables [B, F, D]) -> logits [B], replayed for batches of one size.

    The memory of the logits and of the gradients is that of the graph, and the next step overwrites it.
    """

    def __init__(self, part: Part, parameters: Sequence[nn.Parameter], batch_size: int) -> None:
        """`part` computes on the current stream, without reading a value on the host."""
        self._part = part
        self._parameters = tuple(parameters)
        self._batch_size = batch_size
        self._captured: _Captured | None = None
        self._works = True

    @property
    def is_captured(self) -> bool:
        """Whether batches are replayed."""
        return self._captured is not None

    def __call__(self, keys: tuple[str, ...], dense: Tensor, tables: Tensor) -> Tensor | None:
        """Return the logits; None where the graph does not fit: other sizes, no gradients, or no capture."""
        if not (self._works and torch.is_grad_enabled() and len(dense) == self._batch_size):
            return None
        if self._captured is None:
            try:
                self._captured = _Captured(self._part, self._parameters, keys, dense, tables)
            except RuntimeError as error:
                self._works = False
                reason = " ".join(str(error).split())[:300]
                _LOG.warning("the dense part cannot be captured as a CUDA graph and runs without: %s", reason)
                return None
        if not self._captured.fits(keys, dense, tables):
            return None
        logits: Tensor = _Replay.apply(self._captured, dense, tables, *self._parameters)
        return logits


class _Captured:
    """Both graphs and their memory."""

    def __init__(
        self,
        part: Part,
        parameters: Sequence[nn.Parameter],
        keys: tuple[str, ...],
        dense: Tensor,
        tables: Tensor,
    ) -> None:
        self.keys = keys
        self.dense = dense.detach().clone()
        self.tables = tables.detach().clone().requires_grad_()
        inputs = (self.tables, *parameters)
        stream = torch.cuda.Stream(dense.device)
        stream.wait_stream(torch.cuda.current_stream(dense.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                logits = part(keys, self.dense, self.tables)
                torch.autograd.grad(logits, inputs, torch.zeros_like(logits), allow_unused=True)
        torch.cuda.current_stream(dense.device).wait_stream(stream)
        del logits
        pool = torch.cuda.graph_pool_handle()
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        # Other threads read data and write checkpoints meanwhile: their calls must not end the capture.
        with torch.cuda.graph(self.forward, pool=pool, capture_error_mode="thread_local"):
            self.logits = part(keys, self.dense, self.tables)
        self.gradient = torch.zeros_like(self.logits)
        with torch.cuda.graph(self.backward, pool=pool, capture_error_mode="thread_local"):
            # None for weights that work outside of the part, such as those of places.
            self.gradients = torch.autograd.grad(self.logits, inputs, self.gradient, allow_unused=True)
        self.logits = self.logits.detach()

    def fits(self, keys: tuple[str, ...], dense: Tensor, tables: Tensor) -> bool:
        return (
            keys == self.keys
            and dense.shape == self.dense.shape
            and (tables.shape, tables.dtype)
            == (
                self.tables.shape,
                self.tables.dtype,
            )
        )


class _Replay(torch.autograd.Function):
    """Copies the inputs to the graphs' memory and replays them."""

    @staticmethod
    def forward(
        ctx: Context, captured: _Captured, dense: Tensor, tables: Tensor, *parameters: Tensor
    ) -> Tensor:
        del parameters
        ctx.captured = captured
        captured.dense.copy_(dense)
        captured.tables.detach().copy_(tables)
        captured.forward.replay()
        return captured.logits.detach()

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        captured: _Captured = ctx.captured
        captured.gradient.copy_(gradient)
        captured.backward.replay()
        return None, None, *(None if each is None else each.detach() for each in captured.gradients)
