"""The order of an epoch: a pure function of (rows, seed, epoch), whatever reads it.

Blocks of consecutive rows are permuted, and rows are permuted inside windows of several blocks.
So every window is a few sequential reads, the memory is bounded by one window, and yet rows
from far parts of the dataset meet in one batch. World size and batch size play no part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.splitmix import mix_key, splitmix64

BLOCK_ROWS = 16_384
WINDOW_BLOCKS = 8
_BLOCKS, _ROWS = 1, 2  # what a key is for


@dataclass(frozen=True, slots=True)
class RowRange:
    """Consecutive rows of a split."""

    start: int
    stop: int


class EpochOrder:
    """Maps positions of an epoch, 0 to `rows` - 1, to rows of a split."""

    def __init__(
        self,
        rows: int,
        *,
        seed: int,
        epoch: int,
        block_rows: int = BLOCK_ROWS,
        window_blocks: int = WINDOW_BLOCKS,
    ) -> None:
        self._key = (seed, epoch)
        self._block_rows = block_rows
        self._window_blocks = window_blocks
        self._rows = rows
        num_blocks = -(-rows // block_rows)
        self._blocks = permutation(num_blocks, mix_key(*self._key, _BLOCKS))
        ends = np.minimum((self._blocks + 1) * block_rows, rows)  # the last block may be short
        positions = np.cumsum(ends - self._blocks * block_rows)
        self._starts = np.append(np.append(0, positions)[:-1:window_blocks], rows)

    def window_at(self, position: int) -> int:
        """The number of the window that holds a position."""
        return int(np.searchsorted(self._starts, position, side="right")) - 1

    def positions(self, window: int) -> RowRange:
        """The positions that a window covers."""
        return RowRange(int(self._starts[window]), int(self._starts[window + 1]))

    def blocks(self, window: int) -> list[RowRange]:
        """The rows that a window holds, as the ranges to read."""
        chosen = self._blocks[window * self._window_blocks : (window + 1) * self._window_blocks]
        starts = (int(block) * self._block_rows for block in chosen)
        return [RowRange(start, min(start + self._block_rows, self._rows)) for start in starts]

    def shuffle(self, window: int) -> npt.NDArray[np.int64]:
        """Which of the window's rows, counted over its blocks, stands at each of its positions."""
        covered = self.positions(window)
        return permutation(covered.stop - covered.start, mix_key(*self._key, _ROWS, window))


def permutation(size: int, key: int) -> npt.NDArray[np.int64]:
    """A permutation of 0 to `size` - 1 that only `size` and `key` decide.

    Sorts hashes whose low bits are the index, so that neither ties nor the sorting method matter.
    """
    low_bits = np.uint64((1 << max(size - 1, 0).bit_length()) - 1)
    index = np.arange(size, dtype=np.uint64)
    hashes = splitmix64(index ^ np.uint64(key))
    keyed = (hashes & ~low_bits) | index
    keyed.sort()
    return (keyed & low_bits).astype(np.int64)
