"""The sums of hashes of which the digest of the samples consists, on any device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer.data.mixing import signed, split_mix
from trainer.data.splitmix import mix_key

if TYPE_CHECKING:
    from torch import Tensor

SAMPLE_KEYS = (0x5AD1_6E57_0000_0001, 0x5AD1_6E57_0000_0002)


def sum_samples(epoch: int, sample_ids: Tensor) -> Tensor:
    """Return two sums, modulo 2**64, of hashes of the pairs (epoch, sample): int64 [2] with these bits."""
    return torch.stack([_mixed(sample_ids, mix_key(key, epoch)).sum() for key in SAMPLE_KEYS])


def _mixed(sample_ids: Tensor, key: int) -> Tensor:
    return split_mix(split_mix(sample_ids ^ signed(key, 64)))
