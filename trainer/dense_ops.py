"""The dense part's building blocks, with hand-written gradients: on a CPU they are what a step's time goes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence


class DotInteraction(torch.autograd.Function):
    """Pairwise dot products of F+1 vectors a sample, behind the bottom MLP's own output.

    (bottom [B, D], tables [B, F, D]) -> [B, D + (F+1)F/2]. Forward multiplies the whole square and
    picks the upper triangle; backward puts the triangle back on both sides by one index_select (the
    diagonal points at a column of zeros) and multiplies once, as the square of gradients is symmetric.
    """

    @staticmethod
    def make_indices(order: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
        """Index [pairs] of each canonical pair in the flat square, and [(F+1)^2] of each square's entry back.

        `order[i]` is the place at which the i-th canonical vector arrives.
        """
        size = len(order)
        places = torch.tensor(order)
        rows, columns = torch.triu_indices(size, size, offset=1)
        forward_index = places[rows] * size + places[columns]
        backward_index = torch.zeros(size * size, dtype=torch.int64)
        pairs = torch.arange(1, len(forward_index) + 1)
        backward_index[forward_index] = pairs
        backward_index[places[columns] * size + places[rows]] = pairs
        return forward_index.to(device), backward_index.to(device)

    @staticmethod
    def forward(
        ctx: Any, bottom: Tensor, tables: Tensor, forward_index: Tensor, backward_index: Tensor
    ) -> Tensor:  # noqa: ANN401
        batch, count, dim = tables.shape
        stacked = bottom.new_empty(batch, count + 1, dim)
        stacked[:, 0] = bottom
        stacked[:, 1:] = tables
        square = torch.bmm(stacked, stacked.transpose(1, 2)).view(batch, -1)
        ctx.save_for_backward(stacked, backward_index)
        ctx.table_dtype = tables.dtype
        return torch.cat([bottom, square.index_select(1, forward_index)], dim=1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: ANN401
        stacked, backward_index = ctx.saved_tensors
        batch, count, dim = stacked.shape
        padded = gradient[:, dim - 1 :].clone()
        padded[:, 0] = 0
        square = padded.index_select(1, backward_index).view(batch, count, count)
        grad_stacked = torch.bmm(square, stacked)
        grad_bottom = grad_stacked[:, 0] + gradient[:, :dim]
        return grad_bottom, grad_stacked[:, 1:].to(ctx.table_dtype), None, None


class FusedMLP(nn.Module):
    """Linear layers with ReLU between them: [B, in] -> [B, sizes[-1]]; weights stay fp32."""

    def __init__(
        self, in_features: int, sizes: Sequence[int], *, relu_last: bool, device: torch.device
    ) -> None:
        super().__init__()
        widths = [in_features, *sizes]
        self.layers = nn.ModuleList(
            nn.Linear(wide, narrow, device=device) for wide, narrow in zip(widths, widths[1:], strict=False)
        )
        self.relu_last = relu_last

    def forward(self, inputs: Tensor, *, bf16: bool) -> Tensor:
        """Run in bf16 or in the inputs' own precision."""
        hidden = inputs.bfloat16() if bf16 else inputs
        for position, layer in enumerate(self.layers):
            weight, bias = (layer.weight, layer.bias)
            if bf16:
                weight, bias = weight.bfloat16(), bias.bfloat16()
            hidden = nn.functional.linear(hidden, weight, bias)
            if position + 1 < len(self.layers) or self.relu_last:
                hidden = torch.relu(hidden)
        return hidden
