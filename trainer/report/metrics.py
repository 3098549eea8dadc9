"""Exact evaluation metrics over all ranks: AUC with ties, logloss, normalized entropy, calibration.

The AUC is the Mann-Whitney statistic with ties counted half, in integers: it is not binned, and equal in all
bits on every rank, every world size and every device. Ranks exchange scores by ranges of values, so that each
rank sorts its share and no rank needs memory for all of them.

Samples are kept and computed where the scores are made: on a GPU, an update waits for nothing.
"""

from __future__ import annotations

import logging
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, distributed

from trainer.base.errors import NonFiniteLossError
from trainer.report.profiling import free_bytes
from trainer.report.ranking import doubled_wins

_LOG = logging.getLogger(__name__)
_BUCKET_BITS = 16  # scores are split between ranks by the upper half of their bits
_BUCKETS = 1 << _BUCKET_BITS
_BLOCK = 1 << 18  # samples whose sums one thread makes on a CPU
_CHUNK = (
    1 << 15
)  # of them at a time: they stay in its cache, and are too few for torch to share between threads
_CHUNK_ON_DEVICE = 1 << 22  # samples at a time on a GPU, in float64
_ROOM_SHARE = 4  # the samples kept on a GPU take at most this part of its free memory

Metrics: TypeAlias = dict[str, float | int | None]
Group: TypeAlias = "distributed.ProcessGroup | None"


class BinaryMetrics:
    """Collects logits and labels (5 bytes a sample), and computes the metrics over all ranks.

    Args:
        device: where samples are kept and computed.
        most_bytes: of samples on a GPU; those above it wait in the CPU's memory. None: a quarter of what is
            free at the first sample.
    """

    def __init__(self, device: torch.device | str = "cpu", *, most_bytes: int | None = None) -> None:
        self._device = torch.empty(0, device=device).device  # with its number, as tensors have it
        self._most_bytes = most_bytes
        self._bytes = 0  # on the device
        self._logits: list[Tensor] = []
        self._labels: list[Tensor] = []

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch: logits [B] (or [B, 1]) and labels [B] of 0 and 1; samples of label -1 do not count."""
        self._logits.append(logits.detach().reshape(-1).to(self._device, torch.float32, copy=True))
        self._labels.append(labels.detach().reshape(-1).to(self._device, torch.int8, copy=True))
        self._bytes += self._logits[-1].nbytes + self._labels[-1].nbytes
        if self._device.type != "cpu" and self._bytes > self._room():
            self._logits = [each.cpu() for each in self._logits]
            self._labels = [each.cpu() for each in self._labels]
            self._bytes = 0

    def reset(self) -> None:
        """Forget all samples."""
        self._logits.clear()
        self._labels.clear()
        self._bytes = 0

    def compute(self, group: Group = None) -> Metrics:
        """Return the metrics over the samples of all ranks; collective, and equal on all ranks.

        Keys: auc, logloss, ne, calibration, samples, positives. Undefined values are None: the AUC and the
        normalized entropy if one class is missing; auc, logloss, ne and calibration if there are no samples.

        Args:
            group: of the ranks, for tensors on the CPU.

        Raises:
            NonFiniteLossError: on all ranks, if a score on any rank is NaN or infinite.
        """
        logits, labels = self._samples()
        totals = _totals(logits, labels, self._device, group)
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
        return {"auc": _auc(*_exchange(logits, labels, group), self._device, group), **result}

    def _room(self) -> int:
        if self._most_bytes is None:
            self._most_bytes = free_bytes(self._device) // _ROOM_SHARE
        return self._most_bytes

    def _samples(self) -> tuple[Tensor, Tensor]:
        """Return all logits and labels: on the device, or on the CPU if some had to wait there."""
        where = self._device if all(each.device == self._device for each in self._logits) else "cpu"
        logits = torch.cat([torch.empty(0, device=where), *(each.to(where) for each in self._logits)])
        labels = torch.cat(
            [
                torch.empty(0, device=where, dtype=torch.int8),
                *(each.to(where) for each in self._labels),
            ]
        )
        known = labels >= 0
        return (logits, labels) if bool(known.all()) else (logits[known], labels[known])


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


def _totals(logits: Tensor, labels: Tensor, device: torch.device, group: Group) -> _Totals:
    if device.type == "cpu":
        summed = partial(_block_sums, device=device, chunk=_CHUNK)
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            parts = list(pool.map(summed, logits.split(_BLOCK), labels.split(_BLOCK)))
    else:
        parts = [_block_sums(logits, labels, device, _CHUNK_ON_DEVICE)]
    # Added in the order of blocks and of ranks, so that all ranks get equal bits.
    own = torch.cat([torch.stack(parts).sum(dim=0).cpu(), torch.tensor([len(labels)], dtype=torch.float64)])
    loss, predicted, *counts = torch.stack(_all_gather(own, group)).sum(dim=0).tolist()
    positives, invalid, samples = map(int, counts)
    return _Totals(samples, positives, invalid, loss, predicted)


def _block_sums(logits: Tensor, labels: Tensor, device: torch.device, chunk: int) -> Tensor:
    """Return four sums, float64: of losses and of probabilities, and the positives and the invalid scores."""
    total = torch.zeros(4, dtype=torch.float64, device=device)
    for some, known in zip(logits.split(chunk), labels.split(chunk), strict=True):
        scores, truth = some.to(device), known.to(device)
        counts = torch.stack([truth.sum(), (~scores.isfinite()).sum()])
        total += torch.cat([_sums(scores.double(), truth.double()), counts.double()])
    return total


def _sums(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the sums of the losses and of the probabilities, from one exponential of each score."""
    small = scores.abs().neg_().exp_()  # of exp(score) and exp(-score), the one that cannot overflow
    losses = scores.clamp_min(0).sub_(labels.mul_(scores)).add_(small.log1p())
    probabilities = torch.where(scores >= 0, 1.0, small).div_(small.add_(1))
    return torch.stack([losses.sum(), probabilities.sum()])


def _sortable(scores: Tensor) -> Tensor:
    """Map float32 scores to int64 keys, 0 to 2**32 - 1, in the same order; 0.0 and -0.0 get the same key."""
    bits = (scores + 0.0).view(torch.int32).to(torch.int64)  # -0.0 + 0.0 is 0.0
    return torch.where(bits < 0, -bits - 1, bits + (1 << 31))


def _exchange(logits: Tensor, labels: Tensor, group: Group) -> tuple[Tensor, Tensor]:
    """Send every rank the samples of one range of scores; ranges ascend with the rank, of about equal size.

    Returns them on the CPU, with whole numbers in the order of the scores in their place. One rank keeps its
    samples as they are.
    """
    world_size = _world_size(group)
    if world_size == 1:
        return logits, labels
    keys = _sortable(logits)
    buckets = keys >> _BUCKET_BITS
    histogram = torch.bincount(buckets, minlength=_BUCKETS).cpu()
    everywhere = torch.stack(_all_gather(histogram, group)).sum(dim=0)
    below = everywhere.cumsum(0) - everywhere
    owners = (below * world_size).div(max(int(everywhere.sum()), 1), rounding_mode="floor")
    owner = owners.to(keys.device)[buckets]
    send_sizes = torch.bincount(owner, minlength=world_size).cpu()
    packed = (keys * 2 + labels)[owner.argsort()].cpu()
    receive_sizes = torch.stack(_all_gather(send_sizes, group))[:, _rank(group)]
    received = packed.new_empty(int(receive_sizes.sum()))
    distributed.all_to_all_single(received, packed, receive_sizes.tolist(), send_sizes.tolist(), group=group)
    return ((received >> 1) - (1 << 31)).int(), (received & 1).to(torch.int8)


def _auc(scores: Tensor, labels: Tensor, device: torch.device, group: Group) -> float:
    """Return the Mann-Whitney statistic: a pair (negative below positive) counts 2, a tie 1, out of 2PN."""
    positives = int(labels.count_nonzero())
    counts = torch.stack(_all_gather(torch.tensor([positives, len(labels) - positives]), group))
    negatives_before = int(counts[: _rank(group), 1].sum())
    doubled = doubled_wins(scores, labels, device) + 2 * negatives_before * positives
    total = sum(int(part) for part in _all_gather(torch.tensor(doubled), group))
    all_positives, all_negatives = counts.sum(dim=0).tolist()
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
