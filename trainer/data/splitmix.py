"""SplitMix64, vectorised: the mixing function of the shuffle and the digests.

numpy.random is not used, because its streams may change between releases (NEP 19): a run must resume in the
same order, and its digests must be comparable, with any version of numpy.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

UInt64s: TypeAlias = npt.NDArray[np.uint64]

MASK64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIER_1 = 0xBF58476D1CE4E5B9
_MULTIPLIER_2 = 0x94D049BB133111EB


def splitmix64(values: UInt64s) -> UInt64s:
    """Mix every 64-bit value; a bijection, so distinct values have distinct results."""
    mixed = values + np.uint64(_GOLDEN)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(_MULTIPLIER_1)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(_MULTIPLIER_2)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def mix_key(*values: int) -> int:
    """Return a 64-bit key that depends on several integers and their order."""
    key = 0
    for value in values:
        key = _mix_one(key ^ _mix_one(value & MASK64))
    return key


def _mix_one(value: int) -> int:
    mixed = (value + _GOLDEN) & MASK64
    mixed = ((mixed ^ (mixed >> 30)) * _MULTIPLIER_1) & MASK64
    mixed = ((mixed ^ (mixed >> 27)) * _MULTIPLIER_2) & MASK64
    return mixed ^ (mixed >> 31)
