"""The kernels of pairs.c: dot products of a sample's vectors, and their gradients, on CPUs."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import torch

from trainer.native.library import Library, load

if TYPE_CHECKING:
    from torch import Tensor

_INT, _POINTER = ctypes.c_int64, ctypes.c_void_p
_TYPES = (torch.float32, torch.bfloat16)


class PairsJob(ctypes.Structure):
    """`struct pairs` of pairs.c; its items are samples."""

    _fields_: ClassVar = [
        *((name, _POINTER) for name in ("bottom", "gradient", "tables", "ranks")),
        *((name, _POINTER) for name in ("products", "bottom_gradient", "table_gradient")),
        *((name, _INT) for name in ("count", "dim", "width", "half")),
        *((name, _INT) for name in ("bottom_stride", "table_stride", "stride")),
    ]


@cache
def load_pairs() -> Library | None:
    """Load the kernels; None, with a warning, if they cannot be compiled."""
    otherwise = "the interaction runs as torch's operations, at half the speed"
    return load("pairs", ("pairs_forward", "pairs_backward"), otherwise=otherwise)


def takes(bottom: torch.dtype, tables: torch.dtype) -> bool:
    """Whether the kernels take these types, and can be compiled here."""
    return bottom in _TYPES and tables == torch.float32 and load_pairs() is not None


def forward(bottom: Tensor, tables: Tensor, ranks: Tensor, width: int) -> Tensor:
    """Return [B, width]: see trainer.models.kernels.pairs, whose arguments these are."""
    bottom, tables = bottom.contiguous(), _in_rows(tables)
    products = bottom.new_empty(len(bottom), width)
    _run("pairs_forward", bottom, tables, ranks, products, products=products.data_ptr())
    return products


def backward(gradient: Tensor, bottom: Tensor, tables: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of bottom [B, D] and of the tables' vectors [B, F, D]."""
    bottom, tables = bottom.contiguous(), _in_rows(tables)
    gradient = gradient if gradient.stride(1) == 1 else gradient.contiguous()
    results = torch.empty_like(bottom), tables.new_empty(tables.shape)
    of_bottom, of_tables = (result.data_ptr() for result in results)
    pointers = {"bottom_gradient": of_bottom, "table_gradient": of_tables, "gradient": gradient.data_ptr()}
    _run("pairs_backward", bottom, tables, ranks, gradient, **pointers)
    return results


def _run(kernel: str, bottom: Tensor, tables: Tensor, ranks: Tensor, rows: Tensor, **pointers: int) -> None:
    """Run a kernel; `rows` are the products or their gradient."""
    library = load_pairs()
    if library is None:
        raise RuntimeError("the kernels of pairs.c cannot be compiled here: ask `takes` first")
    job = PairsJob(
        bottom=bottom.data_ptr(),
        tables=tables.data_ptr(),
        ranks=ranks.data_ptr(),
        count=tables.shape[1] + 1,
        dim=bottom.shape[1],
        width=rows.shape[1],
        half=bottom.dtype == torch.bfloat16,
        bottom_stride=bottom.stride(0),
        table_stride=tables.stride(0),
        stride=rows.stride(0),
        **pointers,
    )
    library.run(kernel, job, len(bottom))


def _in_rows(tables: Tensor) -> Tensor:
    """Return vectors that lie in one piece a sample."""
    return tables if tables.stride()[1:] == (tables.shape[2], 1) else tables.contiguous()
