"""Functions that change gradients only: those between the tables and the dense part."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class ScaledGradient(torch.autograd.Function):
    """Identity in forward; in backward, multiplies gradients by a factor, and may clear NaN and inf."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, factor: Tensor, cleaned: bool) -> Tensor:  # noqa: ANN401, D102, FBT001 - autograd's protocol
        ctx.save_for_backward(factor)
        ctx.cleaned = cleaned
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401, D102 - as above
        (factor,) = ctx.saved_tensors
        scaled = gradient * factor
        if ctx.cleaned:
            scaled = torch.nan_to_num(scaled, nan=0.0, posinf=0.0, neginf=0.0)
        return scaled, None, None


class ClippedGradient(torch.autograd.Function):
    """Identity on vectors [..., dim] in forward; in backward, clips the norm of each vector's gradient."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, limit: float) -> Tensor:  # noqa: ANN401, D102 - autograd's protocol
        ctx.limit = limit
        return vectors.view_as(vectors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401, D102 - as above
        lengths = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
        return gradient * (ctx.limit / lengths.clamp_min(ctx.limit)), None
