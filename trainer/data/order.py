"""The order of an epoch: a pure function of (rows, seed, epoch).

Blocks of consecutive rows are permuted, and rows are permuted inside windows of several blocks. So a window
needs only a few sequential reads, one window bounds the memory, and a batch still has rows from distant parts
of the dataset. The order does not depend on the world size or the batch size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.data.splitmix import mix_key, splitmix64

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
        """Return, for each position of the window, the index of its row, counted over the window's blocks."""
        covered = self.positions(window)
        return permutation(covered.stop - covered.start, self.key(window))

    def key(self, window: int) -> int:
        """Return the key of the permutation that is a window's order."""
        return mix_key(*self._key, _ROWS, window)


def permutation(size: int, key: int) -> npt.NDArray[np.int64]:
    """Return a permutation of 0 to `size` - 1 that depends on `size` and `key` only.

    Sorts hashes whose low bits are the index: they are distinct, so every sorting method gives one order.
    """
    low_bits = np.uint64((1 << max(size - 1, 0).bit_length()) - 1)
    index = np.arange(size, dtype=np.uint64)
    hashes = splitmix64(index ^ np.uint64(key))
    keyed = (hashes & ~low_bits) | index
    keyed.sort()
    return (keyed & low_bits).astype(np.int64)
