"""How often a positive sample has a higher score than a negative one, counted exactly.

The samples of the rarer class are looked up among the sorted scores of all samples. Pairs within the class
come out as its size squared, so that neither class has to be separated from the other before the sort.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

_CHUNK_ON_DEVICE = 1 << 25  # scores that are sorted at once: torch makes their places, too, in int64
_LEAST_CHUNK = 1 << 16  # of a thread on a CPU


def doubled_wins(scores: Tensor, labels: Tensor, device: torch.device) -> int:
    """Return the pairs with the negative below the positive, counted twice, and those that are equal, once.

    Args:
        scores: [N], finite, of any type that sorts.
        labels: [N], 0 or 1.
        device: where to compute; the samples may be elsewhere.
    """
    positives = int(labels.count_nonzero())
    negatives = len(labels) - positives
    rare = 1 if positives <= negatives else 0
    few = scores[(labels == rare).nonzero().flatten()]
    count = count_with_numpy if device.type == "cpu" else count_with_torch
    wins = count(scores, few, device) - len(few) ** 2
    return wins if rare else 2 * positives * negatives - wins


def count_with_numpy(scores: Tensor, few: Tensor, device: torch.device, *, chunk: int | None = None) -> int:
    """Return, summed over `few`, twice the scores below, and once the equal ones; for CPUs.

    numpy sorts many times as fast as torch, which also makes the places. Each of torch's threads takes a
    chunk of the scores.
    """
    sought = np.sort(few.to(device).numpy())

    def count(part: Tensor) -> int:
        ordered = np.sort(part.to(device).numpy())
        return sum(int(np.searchsorted(ordered, sought, side=side).sum()) for side in ("left", "right"))

    threads = torch.get_num_threads()
    parts = scores.split(chunk or max(-(-len(scores) // threads), _LEAST_CHUNK))
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(count, parts))


def count_with_torch(scores: Tensor, few: Tensor, device: torch.device, *, chunk: int | None = None) -> int:
    """Return the same as `count_with_numpy`, on any device."""
    size, total = chunk or _CHUNK_ON_DEVICE, 0
    sought = [part.to(device).sort().values for part in few.split(size)]
    for part in scores.split(size):
        ordered = part.to(device).sort().values
        for some in sought:
            below = torch.searchsorted(ordered, some).sum()
            total += int(below + torch.searchsorted(ordered, some, right=True).sum())
    return total
