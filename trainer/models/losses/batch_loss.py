"""The loss of models that compare the samples of a step with one another, over all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from trainer.data.batch import DrawnItems
    from trainer.models.inputs import ModelInput
    from trainer.models.protocol import ComparingModel


class StepSamples:
    """A step's samples, of which this rank has a part: what a model's `batch_loss` may ask for."""

    def __init__(self, batch: ModelInput, outputs: Tensor, group: ProcessGroup | None) -> None:
        self._batch = batch
        self._group = group
        ranks = 1 if group is None else distributed.get_world_size(group)
        rank = 0 if group is None else distributed.get_rank(group)
        total = batch.total
        self.sizes = [total * (each + 1) // ranks - total * each // ranks for each in range(ranks)]
        self.first = sum(self.sizes[:rank])  # of this rank's samples among all
        self.drawn = None
        if batch.drawn is not None:
            own = outputs[batch.samples : batch.samples + batch.drawn.own]
            self.drawn = _DrawnOutputs(own, batch.drawn, rank, group)

    def ids(self, feature: str) -> Tensor:
        """Return the ids [B] of this rank's samples; the feature has one a sample."""
        sparse = self._batch.sparse
        start = sparse.offset_per_key()[sparse.keys().index(feature)]
        return sparse.values()[start : start + self._batch.samples].long()

    def gather(self, values: Tensor) -> Tensor:
        """Return the values of all ranks' samples, in the order of ranks; gradients flow back to each."""
        return _gather(values, self.sizes, self.first, self._group)


class _DrawnOutputs:
    """The items that a step drew; see trainer.models.protocol."""

    def __init__(self, own: Tensor, drawn: DrawnItems, rank: int, group: ProcessGroup | None) -> None:
        self.outputs = own
        self.ids = drawn.ids
        self.among = drawn.among
        self._sizes = list(drawn.sizes)
        self._first = sum(drawn.sizes[:rank])
        self._group = group

    def gather(self, values: Tensor) -> Tensor:
        """Return the values of all ranks' drawn items; gradients flow back to each."""
        return _gather(values, self._sizes, self._first, self._group)


def _gather(values: Tensor, sizes: list[int], first: int, group: ProcessGroup | None) -> Tensor:
    if group is None or len(sizes) == 1:
        return values
    gathered: Tensor = _Gather.apply(values, sizes, first, group)
    return gathered


class BatchLoss(nn.Module):
    """Calls a model's `batch_loss`, and `scores` for its logits."""

    def __init__(self, net: ComparingModel) -> None:
        super().__init__()
        self._net = (net,)  # in a tuple: its weights belong to the model
        self.group: ProcessGroup | None = None

    def forward(self, outputs: Tensor, batch: ModelInput) -> tuple[Tensor, Tensor]:
        """Return this rank's part of the loss, scaled as GlobalMeanLoss does it, and the logits [B]."""
        (net,) = self._net
        logits = net.scores(outputs)
        if not self.training:
            return outputs.new_zeros(()), logits
        samples = batch.samples
        step = StepSamples(batch, outputs, self.group)
        losses = net.batch_loss(outputs[:samples], batch.labels[:samples], step)
        if batch.weights is not None:
            losses = losses * batch.weights[:samples]
        return losses.sum() * batch.loss_scale, logits


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, sizes: list[int], first: int, group: ProcessGroup) -> Tensor:  # noqa: ANN401 - autograd's context
        ctx.sizes, ctx.first, ctx.group = sizes, first, group
        longest = max(sizes)
        padded = values.new_zeros(longest, *values.shape[1:])
        padded[: len(values)] = values
        parts = [torch.empty_like(padded) for _ in sizes]
        distributed.all_gather(parts, padded, group=group)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401 - as above
        parts = [torch.empty_like(gradient) for _ in ctx.sizes]
        distributed.all_gather(parts, gradient.contiguous(), group=ctx.group)
        size = ctx.sizes[distributed.get_rank(ctx.group)]
        total = torch.stack([part[ctx.first : ctx.first + size] for part in parts]).sum(dim=0)
        return total, None, None, None
