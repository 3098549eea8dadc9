"""The initial tables as a function of (seed, table, row, column), with equal bits on all devices.

A row's two 32-bit keys are the halves of SplitMix64 (see trainer.data.splitmix), of the row and the table's
key. An element mixes them with its column's key by multiplications and shifts, modulo 2**32, as the finaliser
of MurmurHash3 does. Integers wrap around alike on CPUs and GPUs. The last operation, the product of two
float32 numbers, is rounded once, as IEEE 754 requires. So a plan's rectangle of a table is drawn by itself,
and by the device that holds it.

Its upper 25 bits with the lowest set are an odd number between -2**24 and 2**24, which float32 holds exactly:
2**24 different values, uniform, symmetric, and never the bounds. They are multiplied by bound / 2**24.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from trainer.data.mixing import signed, split_mix
from trainer.models.model import seed_of, seeded_generator

if TYPE_CHECKING:
    from torch import Tensor

VERSIONS = (1, 2)  # of the draw, as a checkpoint names it
NEWEST = VERSIONS[-1]
_DRAWN = 1 << 18  # elements at a time on a CPU: both integer buffers stay in its cache
_DRAWN_ON_DEVICE = 1 << 24  # elements at a time elsewhere
_BLOCK_ROWS = 16384  # of version 1, which draws whole blocks of rows, each with its own generator
_MIX_1, _MIX_2 = 0x7FEB352D, 0x846CA68B  # found by Wellons' search for 32-bit hashes with little bias
_SPREAD = 0x9E3779B1  # odd, so that all columns have different keys
_FRACTION_BITS = 24


@torch.no_grad()
def draw(
    target: Tensor,
    *,
    version: int,
    seed: int,
    table: str,
    shape: tuple[int, ...],
    offsets: tuple[int, ...],
    scale: float,
) -> None:
    """Fill a rectangle of a table, [rows, columns] at `offsets`, with its initial values.

    They are uniform in +-scale/sqrt(rows of the table), which is torchrec's default at scale 1.

    Args:
        target: the rectangle, on any device.
        version: of the draw: 1 draws with torch's generator on the CPU, 2 on the device of `target`.
        seed: of the run.
        table: its name.
        shape: of the whole table.
        offsets: of the rectangle's first row and column.
        scale: `embedding_init_scale`.
    """
    bound = scale / math.sqrt(shape[0])
    if version == 1:
        _draw_blocks(target, seed=seed, table=table, shape=shape, offsets=offsets, bound=bound)
    else:
        _draw_hashes(target, key=seed_of(seed, "tables", table), offsets=offsets, bound=bound)


def _draw_hashes(target: Tensor, *, key: int, offsets: tuple[int, ...], bound: float) -> None:
    rows, columns = target.shape
    if not target.numel():
        return
    device = target.device
    first, left = offsets
    numbers = torch.arange(left, left + columns, dtype=torch.int64, device=device)
    column_keys = _halves(numbers * _SPREAD)[0]
    step = max((_DRAWN if device.type == "cpu" else _DRAWN_ON_DEVICE) // columns, 1)
    mixed = torch.empty(min(step, rows), columns, dtype=torch.int32, device=device)
    spare = torch.empty_like(mixed)
    factor = float(np.float32(bound / (1 << _FRACTION_BITS)))
    for start in range(0, rows, step):
        part = target[start : start + step]
        one, two = _halves(_row_keys(first + start, len(part), key, device))
        value, other = mixed[: len(part)], spare[: len(part)]
        torch.bitwise_xor(one[:, None], column_keys[None, :], out=value)
        value.mul_(signed(_MIX_1, 32))
        _fold(value, other, 15)
        value.add_(two[:, None])
        value.mul_(signed(_MIX_2, 32))
        _fold(value, other, 16)
        value.mul_(signed(_MIX_1, 32))
        value.bitwise_right_shift_(31 - _FRACTION_BITS).bitwise_or_(1)
        floats = part if part.dtype == torch.float32 else other.view(torch.float32)
        floats.copy_(value)
        floats.mul_(factor)
        if floats is not part:
            part.copy_(floats)


def _row_keys(first: int, count: int, key: int, device: torch.device) -> Tensor:
    rows = torch.arange(first, first + count, dtype=torch.int64, device=device)
    return split_mix(rows ^ signed(key, 64))


def _fold(value: Tensor, spare: Tensor, bits: int) -> None:
    """Xor values with themselves, shifted right; torch's shift fills with the sign, which is cut off."""
    torch.bitwise_right_shift(value, bits, out=spare)
    spare.bitwise_and_((1 << (32 - bits)) - 1)
    value.bitwise_xor_(spare)


def _halves(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper halves of int64 numbers, as int32."""
    pairs = values.view(torch.int32).view(-1, 2)
    return pairs[:, 0].contiguous(), pairs[:, 1].contiguous()


def _draw_blocks(
    target: Tensor, *, seed: int, table: str, shape: tuple[int, ...], offsets: tuple[int, ...], bound: float
) -> None:
    first, left = offsets
    stop = first + target.shape[0]
    for block in range(first // _BLOCK_ROWS, -(-stop // _BLOCK_ROWS)):
        start = block * _BLOCK_ROWS
        size = max(min(_BLOCK_ROWS, shape[0] - start), 0)
        generator = seeded_generator(seed, "tables", table, block)
        values = torch.empty(size, shape[1]).uniform_(-bound, bound, generator=generator)
        low, high = max(first, start), min(stop, start + size)
        part = values[low - start : high - start, left : left + target.shape[1]]
        target[low - first : high - first].copy_(part)
