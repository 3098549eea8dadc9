"""SplitMix64 in torch operations, on any device; the same values as trainer.data.splitmix.

torch has no arithmetic of unsigned 64-bit integers, but signed ones wrap around to the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31


def split_mix(values: Tensor) -> Tensor:
    """Return SplitMix64 of every value, int64."""
    mixed = values + signed(_GOLDEN, 64)
    spare = torch.empty_like(mixed)
    for bits, factor in _FACTORS:
        _fold(mixed, spare, bits)
        mixed *= signed(factor, 64)
    _fold(mixed, spare, _LAST_SHIFT)
    return mixed


def signed(value: int, bits: int) -> int:
    """Return the signed integer with the same bits as an unsigned one."""
    return value - (1 << bits) if value >> (bits - 1) else value


def _fold(values: Tensor, spare: Tensor, bits: int) -> None:
    """Xor values with themselves, shifted right; torch's shift fills with the sign, which is cut off."""
    torch.bitwise_right_shift(values, bits, out=spare)
    values ^= spare.bitwise_and_((1 << (64 - bits)) - 1)
