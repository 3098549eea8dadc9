"""Exact evaluation metrics over all ranks: AUC with ties, logloss, normalized entropy, calibration.

The AUC is the Mann-Whitney statistic with ties counted half, in integers: it is not binned, and equal in all
bits on every rank and every world size. Ranks exchange scores by ranges of values, so that each rank sorts
its share and no rank needs memory for all of them.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, distributed
from torch.nn import functional

from trainer.base.errors import NonFiniteLossError

_LOG = logging.getLogger(__name__)
_BUCKET_BITS = 16  # scores are split between ranks by the upper half of their bits
_BUCKETS = 1 << _BUCKET_BITS

Metrics: TypeAlias = dict[str, float | int | None]
Group: TypeAlias = "distributed.ProcessGroup | None"


class BinaryMetrics:
    """Collects logits and labels (5 bytes a sample), and computes the metrics over all ranks.

    `device` is where the collectives of `group` work: "cpu" for gloo, the GPU for nccl.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._device = torch.device(device)
        self._logits: list[Tensor] = []
        self._labels: list[Tensor] = []

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch: logits [B] (or [B, 1]) and labels [B] of 0 and 1."""
        self._logits.append(logits.detach().reshape(-1).to(self._device, torch.float32, copy=True))
        self._labels.append(labels.detach().reshape(-1).to(self._device, torch.uint8, copy=True))

    def reset(self) -> None:
        """Forget all samples."""
        self._logits.clear()
        self._labels.clear()

    def compute(self, group: Group = None) -> Metrics:
        """Return the metrics over the samples of all ranks; collective, and equal on all ranks.

        Keys: auc, logloss, ne, calibration, samples, positives. Undefined values are None: the AUC and the
        normalized entropy if one class is missing; auc, logloss, ne and calibration if there are no samples.

        Raises:
            NonFiniteLossError: on all ranks, if a score on any rank is NaN or infinite.
        """
        logits = torch.cat([torch.empty(0, device=self._device), *self._logits])
        labels = torch.cat([torch.empty(0, device=self._device, dtype=torch.uint8), *self._labels])
        totals = _totals(logits, labels, group)
        if totals.invalid:
            raise NonFiniteLossError(
                f"{totals.invalid} of {totals.samples} scores are not finite: the model has diverged; "
                "lower learning_rate, and resume from an earlier checkpoint"
            )
        result = totals.metrics()
        if totals.positives in {0, totals.samples}:
            _LOG.warning(
                "%d of %d samples are positive: AUC and normalized entropy are undefined",
                totals.positives,
                totals.samples,
            )
            return {"auc": None, **result}
        keys, labels = _exchange(_sortable(logits), labels, group)
        return {"auc": _auc(keys, labels, group), **result}


@dataclass(frozen=True, slots=True)
class _Totals:
    """Sums over all samples of all ranks."""

    samples: int
    positives: int
    invalid: int  # scores that are NaN or infinite
    loss: float
    predicted: float  # expected positives

    def metrics(self) -> Metrics:
        if not self.samples:
            return {"logloss": None, "ne": None, "calibration": None, "samples": 0, "positives": 0}
        logloss = self.loss / self.samples
        base_rate = self.positives / self.samples
        entropy = -sum(rate * math.log(rate) for rate in (base_rate, 1 - base_rate) if rate)
        return {
            "logloss": logloss,
            "ne": logloss / entropy if entropy else None,
            "calibration": self.predicted / self.positives if self.positives else None,
            "samples": self.samples,
            "positives": self.positives,
        }


def _totals(logits: Tensor, labels: Tensor, group: Group) -> _Totals:
    scores = logits.double()
    losses = functional.binary_cross_entropy_with_logits(scores, labels.double(), reduction="sum")
    counts = [len(labels), int(labels.count_nonzero()), int((~logits.isfinite()).sum())]
    sums = torch.stack([losses, scores.sigmoid().sum()])
    gathered_counts = _all_gather(torch.tensor(counts, device=logits.device), group)
    gathered_sums = _all_gather(sums, group)  # added in rank order, so that all ranks get equal bits
    samples, positives, invalid = torch.stack(gathered_counts).sum(dim=0).tolist()
    loss, predicted = torch.stack(gathered_sums).sum(dim=0).tolist()
    return _Totals(samples, positives, invalid, loss, predicted)


def _sortable(scores: Tensor) -> Tensor:
    """Map float32 scores to int64 keys, 0 to 2**32 - 1, in the same order; 0.0 and -0.0 get the same key."""
    bits = (scores + 0.0).view(torch.int32).to(torch.int64)  # -0.0 + 0.0 is 0.0
    return torch.where(bits < 0, -bits - 1, bits + (1 << 31))


def _exchange(keys: Tensor, labels: Tensor, group: Group) -> tuple[Tensor, Tensor]:
    """Send every rank the samples of one range of keys; ranges ascend with the rank, of about equal size."""
    world_size = _world_size(group)
    if world_size == 1:
        return keys, labels
    buckets = keys >> _BUCKET_BITS
    histogram = torch.bincount(buckets, minlength=_BUCKETS)
    everywhere = torch.stack(_all_gather(histogram, group)).sum(dim=0)
    below = everywhere.cumsum(0) - everywhere
    owners = (below * world_size).div(max(int(everywhere.sum()), 1), rounding_mode="floor")
    owner = owners[buckets]
    send_sizes = torch.bincount(owner, minlength=world_size)
    packed = (keys * 2 + labels)[owner.argsort()]
    receive_sizes = torch.stack(_all_gather(send_sizes, group))[:, _rank(group)]
    received = packed.new_empty(int(receive_sizes.sum()))
    distributed.all_to_all_single(received, packed, receive_sizes.tolist(), send_sizes.tolist(), group=group)
    return received >> 1, received & 1


def _auc(keys: Tensor, labels: Tensor, group: Group) -> float:
    """Return the Mann-Whitney statistic: a pair (negative below positive) counts 2, a tie 1, out of 2PN."""
    _, inverse = keys.unique(return_inverse=True)
    size = int(inverse.max()) + 1 if len(inverse) else 0
    positives = torch.bincount(inverse[labels == 1], minlength=size)
    negatives = torch.bincount(inverse[labels == 0], minlength=size)
    counts = torch.stack([positives.sum(), negatives.sum()])
    gathered = torch.stack(_all_gather(counts, group))
    negatives_before = gathered[: _rank(group), 1].sum()
    negatives_below = negatives_before + negatives.cumsum(0) - negatives
    doubled = (positives * (2 * negatives_below + negatives)).sum()
    total = sum(int(part) for part in _all_gather(doubled, group))
    all_positives, all_negatives = gathered.sum(dim=0).tolist()
    return total / (2 * all_positives * all_negatives)


def _all_gather(tensor: Tensor, group: Group) -> list[Tensor]:
    if not distributed.is_initialized():
        return [tensor]
    gathered = [torch.empty_like(tensor) for _ in range(_world_size(group))]
    distributed.all_gather(gathered, tensor.contiguous(), group=group)
    return gathered


def _world_size(group: Group) -> int:
    return distributed.get_world_size(group) if distributed.is_initialized() else 1


def _rank(group: Group) -> int:
    return distributed.get_rank(group) if distributed.is_initialized() else 0
