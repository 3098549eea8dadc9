"""The pairwise dot products of DotInteraction as one kernel for each direction: Triton's on GPUs, C on CPUs.

(bottom [B, D], tables [B, F, D], ranks [F + 1]) -> [B, width]: bottom, the products of each pair of the F + 1
vectors, and zeros. `ranks` are the vectors' positions in the canonical order of pairs.
"""

from __future__ import annotations

import importlib.util
import logging
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from trainer.native import pairs as native

if TYPE_CHECKING:
    from collections.abc import Sequence

Context: TypeAlias = Any  # autograd's context object carries whatever forward puts on it
MOST_VECTORS = 64  # of a sample, with the bottom MLP's: the square of their products is in registers
MOST_NUMBERS = 64 * 128  # of a sample's vectors, likewise


_LOG = logging.getLogger(__name__)


@cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


@cache
def works(device: torch.device) -> bool:
    """Whether Triton makes and runs these kernels on a device; it needs a C compiler. Warns if not."""
    if not has_triton():
        return False
    try:
        bottom = torch.zeros(1, 16, dtype=torch.bfloat16, device=device)
        torch.ops.cloudrec_trainer.pairs(bottom, bottom[:, None], make_ranks([0, 1], device), 24)
    except Exception as error:  # noqa: BLE001 - whatever is missing, torch's operations run without it
        reason = " ".join(str(error).split())[:300]
        _LOG.warning(
            "Triton fails on this machine, so the interaction runs without its kernels: %s; they need a C "
            "compiler and Python's headers",
            reason,
        )
        return False
    return True


def fits(bottom: Tensor, tables: Tensor) -> bool:
    """Whether the kernels run on this device and take these sizes and types."""
    if torch.compiler.is_exporting() or torch.jit.is_tracing():
        return False
    if bottom.device.type == "cpu":
        return native.takes(bottom.dtype, tables.dtype)
    if bottom.device.type != "cuda":
        return False
    return takes(bottom.dtype, tables.shape[1] + 1, tables.shape[2]) and works(bottom.device)


def takes(dtype: torch.dtype, vectors: int, dim: int) -> bool:
    """Whether Triton's kernels take these sizes; they are for 16-bit types, whose sums they make in fp32."""
    padded = _power(vectors) * _power(dim)
    return dtype in (torch.bfloat16, torch.float16) and vectors <= MOST_VECTORS and padded <= MOST_NUMBERS


def make_ranks(order: Sequence[int], device: torch.device) -> Tensor:
    """Return the ranks; `order[i]` is the position of the i-th canonical vector in the input."""
    ranks = torch.empty(len(order), dtype=torch.int32)
    ranks[torch.tensor(order)] = torch.arange(len(order), dtype=torch.int32)
    return ranks.to(device)


class FusedInteraction(torch.autograd.Function):
    """See the module."""

    @staticmethod
    def forward(ctx: Context, bottom: Tensor, tables: Tensor, ranks: Tensor, width: int) -> Tensor:  # noqa: D102 - autograd's protocol
        ctx.save_for_backward(bottom, tables, ranks)
        return torch.ops.cloudrec_trainer.pairs(bottom, tables, ranks, width)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: D102 - autograd's protocol
        bottom, tables, ranks = ctx.saved_tensors
        return *torch.ops.cloudrec_trainer.pairs_backward(gradient, bottom, tables, ranks), None, None


# Operations of torch, so that torch.compile takes them as they are.
@torch.library.custom_op(
    "cloudrec_trainer::pairs",
    mutates_args=(),
    schema="(Tensor bottom, Tensor tables, Tensor ranks, SymInt width) -> Tensor",
)
def _pairs(bottom: Tensor, tables: Tensor, ranks: Tensor, width: int) -> Tensor:
    if bottom.device.type == "cpu":
        return native.forward(bottom, tables, ranks, width)
    from trainer.models.kernels import triton_pairs  # noqa: PLC0415 - not every machine has Triton

    return triton_pairs.forward(_rows(bottom), _rows(tables), ranks, width)


@_pairs.register_fake
def _(bottom: Tensor, tables: Tensor, ranks: Tensor, width: int) -> Tensor:
    del tables, ranks
    return bottom.new_empty(bottom.shape[0], width)


@torch.library.custom_op(
    "cloudrec_trainer::pairs_backward",
    mutates_args=(),
    schema="(Tensor gradient, Tensor bottom, Tensor tables, Tensor ranks) -> (Tensor, Tensor)",
)
def _pairs_backward(gradient: Tensor, bottom: Tensor, tables: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    if bottom.device.type == "cpu":
        return native.backward(gradient, bottom, tables, ranks)
    from trainer.models.kernels import triton_pairs  # noqa: PLC0415 - not every machine has Triton

    return triton_pairs.backward(_rows(gradient), _rows(bottom), _rows(tables), ranks)


@_pairs_backward.register_fake
def _(gradient: Tensor, bottom: Tensor, tables: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    del gradient, ranks
    return bottom.new_empty(bottom.shape), tables.new_empty(tables.shape)


def _rows(values: Tensor) -> Tensor:
    """Return values whose rows lie in one piece each."""
    return values if values.stride(-1) == 1 else values.contiguous()


def _power(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())
