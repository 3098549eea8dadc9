"""Numbers for the texts of categories, at the cost of about one table access each.

The text is a word (see `fields`): eight bytes, 0 for a missing category. Nearly all words of a file occur
repeatedly, so only a new word is parsed as digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cloudrec.data.format.fields import FEATURES

if TYPE_CHECKING:
    import numpy.typing as npt

    from cloudrec.data.format.fields import Scratch

_BITS = 12  # 4,096 slots of 12 bytes per feature and table
_ODD = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio
_FULL = 3  # quarters of the first table's slots; above this load, the tables are built again
_LEAST_BITS = 6


class Cache:
    """Keeps the numbers of each feature's first words, which are mostly the frequent ones.

    A word has a slot in each of two tables. Many threads may look words up while one thread adds words: a
    number is written before its word, and read after it.
    """

    def __init__(self) -> None:
        self._words = np.zeros((2, FEATURES << _BITS), np.uint64)
        self._numbers = np.zeros((2, FEATURES << _BITS), np.int32)
        self._first = np.arange(FEATURES, dtype=np.uint64)[:, np.newaxis] << np.uint64(_BITS)

    def look_up(
        self, words: npt.NDArray[np.uint64], scratch: Scratch
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.intp]]:
        """Return the number of each word, [26, rows], and the flat indices of unknown words.

        A missing category (the word 0) is known: it hashes to slot 0, which is never used for a word.
        """
        slots = scratch.array("one", np.uint64, *words.shape)
        found = scratch.array("two", np.uint64, *words.shape)
        numbers = scratch.array("numbers", np.int32, *words.shape)
        np.multiply(words, np.uint64(_ODD), out=slots)
        slots >>= np.uint64(64 - _BITS)
        slots += self._first
        at = slots.view(np.int64)
        np.take(self._words[0], at, out=found, mode="clip")
        np.take(self._numbers[0], at, out=numbers, mode="clip")
        return numbers, self._look_again(words, numbers, np.flatnonzero(found != words))

    def _look_again(
        self, words: npt.NDArray[np.uint64], numbers: npt.NDArray[np.int32], places: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.intp]:
        """Look words up in the second table, and return the indices that it does not have either."""
        if not len(places):
            return places
        wanted = words.reshape(-1)[places]
        slots = _slots(wanted, 1, _BITS)
        slots += (places // words.shape[1]) << _BITS
        known = self._words[1][slots] == wanted
        numbers.reshape(-1)[places[known]] = self._numbers[1][slots[known]]
        unknown: npt.NDArray[np.intp] = places[~known]
        return unknown

    def add(self, feature: int, words: npt.NDArray[np.uint64], numbers: npt.NDArray[np.int32]) -> None:
        """Add the words that have a free slot. One thread at a time per feature."""
        here = slice(feature << _BITS, (feature + 1) << _BITS)
        for level in (0, 1):
            known_words, known_numbers = self._words[level][here], self._numbers[level][here]
            slots = _slots(words, level, _BITS)
            free = np.flatnonzero((known_words[slots] == 0) & (slots != 0))
            taken, firsts = np.unique(slots[free], return_index=True)
            known_numbers[taken] = numbers[free[firsts]]
            known_words[taken] = words[free[firsts]]
            left = known_words[slots] != words
            if not left.any():
                return
            words, numbers = words[left], numbers[left]


class Dictionary:
    """Numbers the words of one feature from 1: a growing cascade of hash tables without chains.

    A word whose slot is taken is put into the next table, which has another hash function. A word whose slot
    is empty is in no later table either, so most look-ups need one access. Memory: 40 to 70 bytes per word.
    """

    def __init__(self) -> None:
        self._words = np.zeros(1 << 8, np.uint64)  # by number
        self._size = 1  # the missing category has number 0
        self._tables: list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]] = []
        self._bits = 9  # of the first table

    def __len__(self) -> int:
        """Return the number of words."""
        return self._size - 1

    @property
    def words(self) -> npt.NDArray[np.uint64]:
        """The words, number 1 first."""
        return self._words[1 : self._size]

    def find(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """Return the number of each word, 0 for unknown ones."""
        return self._find_from(0, words)

    def _find_from(self, level: int, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        if level == len(self._tables):
            return np.zeros(len(words), np.int32)
        keys, values = self._tables[level]
        slots = _slots(words, level, _bits_of(keys))
        found = keys[slots]
        numbers = values[slots]  # 0 in an empty slot
        open_ = np.flatnonzero((found != words) & (found != 0))
        if len(open_):
            numbers[open_] = self._find_from(level + 1, words[open_])
        return numbers

    def add(self, words: npt.NDArray[np.uint64]) -> None:
        """Number new words; they must be distinct and not 0."""
        start, stop = self._size, self._size + len(words)
        if stop > len(self._words):
            room = np.zeros(max(stop, len(self._words) * 3 // 2), np.uint64)
            room[:start] = self._words[:start]
            self._words = room
        self._words[start:stop] = words
        self._size = stop
        if stop * 4 > _FULL << self._bits:
            self._bits = max(int(stop).bit_length() + 1, 9)
            self._tables = []
            start = 1
        self._insert(self._words[start:stop], np.arange(start, stop, dtype=np.int32))

    def _insert(self, words: npt.NDArray[np.uint64], numbers: npt.NDArray[np.int32]) -> None:
        level = 0
        while len(words):
            if level == len(self._tables):
                # A quarter of the first table, then half of the one before: each level leaves about half.
                bits = max(self._bits - 1 - level if level else self._bits, len(words).bit_length() + 1)
                slots_here = 1 << max(bits, _LEAST_BITS)
                self._tables.append((np.zeros(slots_here, np.uint64), np.zeros(slots_here, np.int32)))
            keys, values = self._tables[level]
            slots = _slots(words, level, _bits_of(keys))
            free = keys[slots] == 0
            keys[slots[free]] = words[free]  # of several words for one slot, numpy keeps the last
            won = keys[slots] == words
            values[slots[won]] = numbers[won]
            words, numbers = words[~won], numbers[~won]
            level += 1


def _bits_of(table: npt.NDArray[np.uint64]) -> int:
    return len(table).bit_length() - 1


def _slots(words: npt.NDArray[np.uint64], level: int, bits: int) -> npt.NDArray[np.int64]:
    mixed = words ^ (words >> np.uint64(29)) if level else words.copy()
    mixed *= np.uint64((_ODD + 2 * level * 0x5851F42D4C957F2D) & 0xFFFFFFFFFFFFFFFF)
    mixed >>= np.uint64(64 - bits)
    return mixed.view(np.int64)
