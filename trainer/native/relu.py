"""The kernel of relu.c: the gradient before a ReLU, and that of the layer's bias, on CPUs."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import torch

from trainer.native.library import Library, load

if TYPE_CHECKING:
    from torch import Tensor

_INT, _POINTER = ctypes.c_int64, ctypes.c_void_p
_TILE = 64  # samples, as in relu.c
_TYPES = (torch.float32, torch.bfloat16)


class ReluJob(ctypes.Structure):
    """`struct relu` of relu.c; its items are tiles of samples."""

    _fields_: ClassVar = [
        *((name, _POINTER) for name in ("gradient", "output", "result", "sums")),
        *((name, _INT) for name in ("samples", "columns", "half")),
        *((name, _INT) for name in ("gradient_stride", "output_stride", "result_stride")),
    ]


@cache
def load_relu() -> Library | None:
    """Load the kernel; None, with a warning, if it cannot be compiled."""
    return load("relu", ("relu_backward",), otherwise="gradients of ReLUs and biases are torch's operations")


def takes(gradient: Tensor, output: Tensor) -> bool:
    """Whether the kernel takes these matrices, and can be compiled here."""
    kinds = gradient.device.type, output.device.type
    if kinds != ("cpu", "cpu") or gradient.dtype != output.dtype or gradient.dtype not in _TYPES:
        return False
    return gradient.stride(1) == output.stride(1) == 1 and load_relu() is not None


def backward(gradient: Tensor, output: Tensor, *, in_place: bool) -> tuple[Tensor, Tensor]:
    """Return the gradient before the ReLU, and its sum over samples.

    Args:
        gradient: of the ReLU's output [B, N], fp32 or bf16.
        output: of the ReLU [B, N], of the same type.
        in_place: write over the gradient, and return it.

    Returns:
        [B, N] of the gradient's type, and [N] in fp32.
    """
    library = load_relu()
    if library is None:
        raise RuntimeError("the kernel of relu.c cannot be compiled here: ask `takes` first")
    samples, columns = gradient.shape
    result = gradient if in_place else torch.empty_like(gradient, memory_format=torch.contiguous_format)
    sums = torch.empty(-(-samples // _TILE), columns, dtype=torch.float32)
    job = ReluJob(
        gradient=gradient.data_ptr(),
        output=output.data_ptr(),
        result=result.data_ptr(),
        sums=sums.data_ptr(),
        samples=samples,
        columns=columns,
        half=gradient.dtype == torch.bfloat16,
        gradient_stride=gradient.stride(0),
        output_stride=output.stride(0),
        result_stride=result.stride(0),
    )
    library.run("relu_backward", job, len(sums))
    return result, sums.sum(0)
