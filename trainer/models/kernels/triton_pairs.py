"""The Triton kernels of trainer.models.kernels.pairs; import it only where Triton can run.

A program is one sample. Its vectors stay in registers, so neither the stack of vectors [N, D] nor the square
of products [N, N] is ever in memory: without these kernels, both are written and read several times a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

WARPS = 2  # a sample's vectors are a few KB: more programs at a time hide the memory's latency better


@triton.jit
def _stacked(bottom, tables, sample, bottom_stride, sample_stride, row_stride, row, column, COUNT, DIM):  # type: ignore[no-untyped-def]
    """Return the first vector [D], and all vectors [N, D] in its type."""
    in_dim = column < DIM
    first = tl.load(bottom + sample * bottom_stride + column, mask=in_dim, other=0.0)
    others = tl.load(
        tables + sample * sample_stride + (row[:, None] - 1) * row_stride + column[None, :],
        mask=((row > 0) & (row < COUNT))[:, None] & in_dim[None, :],
        other=0.0,
    )
    return first, tl.where(row[:, None] == 0, first[None, :], others.to(first.dtype))


@triton.jit
def _places(ranks, row, COUNT, DIM):  # type: ignore[no-untyped-def]
    """Return where each product [N, N] is in the output: after the first vector, in the canonical order."""
    rank = tl.load(ranks + row, mask=row < COUNT, other=0)
    low = tl.minimum(rank[:, None], rank[None, :])
    high = tl.maximum(rank[:, None], rank[None, :])
    return DIM + low * COUNT - (low * (low + 1)) // 2 + high - low - 1


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    bottom,
    tables,
    ranks,
    out,
    bottom_stride,
    sample_stride,
    row_stride,
    COUNT: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    sample = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    first, stacked = _stacked(
        bottom, tables, sample, bottom_stride, sample_stride, row_stride, row, column, COUNT, DIM
    )
    square = tl.dot(stacked, tl.trans(stacked))
    start = out + sample * WIDTH
    tl.store(start + column, first, mask=column < DIM)
    tl.store(
        start + _places(ranks, row, COUNT, DIM),
        square.to(first.dtype),
        mask=(row[:, None] < row[None, :]) & (row[None, :] < COUNT),
    )
    used = DIM + (COUNT * (COUNT - 1)) // 2
    tail = used + tl.arange(0, 8)
    tl.store(start + tail, tl.zeros((8,), dtype=first.dtype), mask=tail < WIDTH)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    gradient,
    bottom,
    tables,
    ranks,
    bottom_gradient,
    tables_gradient,
    gradient_stride,
    bottom_stride,
    sample_stride,
    row_stride,
    COUNT: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    sample = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    first, stacked = _stacked(
        bottom, tables, sample, bottom_stride, sample_stride, row_stride, row, column, COUNT, DIM
    )
    start = gradient + sample * gradient_stride
    square = tl.load(  # symmetric, with zeros on the diagonal
        start + _places(ranks, row, COUNT, DIM),
        mask=(row[:, None] != row[None, :]) & (row[:, None] < COUNT) & (row[None, :] < COUNT),
        other=0.0,
    )
    found = tl.dot(square.to(first.dtype), stacked)
    in_dim = column < DIM
    direct = tl.load(start + column, mask=in_dim, other=0.0)
    tl.store(
        bottom_gradient + sample * DIM + row[:, None] * 0 + column[None, :],
        (found + direct[None, :].to(tl.float32)).to(first.dtype),
        mask=(row == 0)[:, None] & in_dim[None, :],
    )
    tl.store(
        tables_gradient + sample * ((COUNT - 1) * DIM) + (row[:, None] - 1) * DIM + column[None, :],
        found.to(tables_gradient.dtype.element_ty),
        mask=((row > 0) & (row < COUNT))[:, None] & in_dim[None, :],
    )


def forward(bottom: Tensor, tables: Tensor, ranks: Tensor, width: int) -> Tensor:
    """See trainer.models.kernels.pairs."""
    samples, count, dim = tables.shape
    out = bottom.new_empty(samples, width)
    if samples:
        _forward[(samples,)](
            bottom,
            tables,
            ranks,
            out,
            bottom.stride(0),
            tables.stride(0),
            tables.stride(1),
            WIDTH=width,
            **_sizes(count + 1, dim),
        )
    return out


def backward(gradient: Tensor, bottom: Tensor, tables: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    """See trainer.models.kernels.pairs."""
    samples, count, dim = tables.shape
    bottom_gradient = bottom.new_empty(samples, dim)
    tables_gradient = tables.new_empty(samples, count, dim)
    if samples:
        _backward[(samples,)](
            gradient,
            bottom,
            tables,
            ranks,
            bottom_gradient,
            tables_gradient,
            gradient.stride(0),
            bottom.stride(0),
            tables.stride(0),
            tables.stride(1),
            **_sizes(count + 1, dim),
        )
    return bottom_gradient, tables_gradient


def _sizes(count: int, dim: int) -> dict[str, Any]:
    smallest = 16  # of a product of tensor cores
    return {
        "COUNT": count,
        "DIM": dim,
        "ROWS": max(smallest, triton.next_power_of_2(count)),
        "COLUMNS": max(smallest, triton.next_power_of_2(dim)),
        "num_warps": WARPS,
    }
