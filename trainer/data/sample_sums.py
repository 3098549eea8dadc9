"""The sums of hashes of which the digest of the samples consists, on any device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer.data.mixing import signed, split_mix
from trainer.data.splitmix import mix_key

if TYPE_CHECKING:
    from torch import Tensor

SAMPLE_KEYS = (0x5AD1_6E57_0000_0001, 0x5AD1_6E57_0000_0002)


def hash_samples(epoch: int, sample_ids: Tensor) -> Tensor:
    """Return two hashes of each pair (epoch, sample): int64 [2, B] with their bits."""
    keyed = torch.stack([sample_ids ^ signed(mix_key(key, epoch), 64) for key in SAMPLE_KEYS])
    return split_mix(split_mix(keyed))


def sum_samples(epoch: int, sample_ids: Tensor) -> Tensor:
    """Return the sums, modulo 2**64, of the hashes of samples: int64 [2] with their bits."""
    return hash_samples(epoch, sample_ids).sum(dim=1)
