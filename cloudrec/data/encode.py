"""Ids for categories: by vocabulary (exact, two passes) or by hash (one pass, with collisions)."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cloudrec.data.codes import Cache, Dictionary
from cloudrec.data.fields import are_hexadecimal, from_hexadecimal
from cloudrec.data.tsv import CATEGORIES
from cloudrec.errors import DataError

if TYPE_CHECKING:
    import numpy.typing as npt

    from cloudrec.data.tsv import Parsed

MISSING = 0
UNKNOWN = 1
FIRST = 2  # the most frequent category
_SPARSE = 4  # numbers per row beyond which rows are sorted rather than each number's count kept
_RUN = 1 << 14  # ids that are turned at once: they fit the processor's cache


class Counter:
    """Numbers the words of one feature as they come, and counts them."""

    def __init__(self, name: str, *, most: int) -> None:
        self._name = name
        self._most = most
        self._known = Dictionary()
        self._counts = np.zeros(1, np.int64)  # by number; 0 stands for the missing category

    def numbers(
        self, words: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.intp]] | None:
        """Number words, none of them missing: their numbers, and the places of those that are new.

        None when one is no code. One thread at a time.
        """
        numbers = self._known.find(words)
        new = np.flatnonzero(numbers == 0)
        if len(new):
            unknown = np.unique(words[new])
            if not are_hexadecimal(unknown):
                return None
            self._known.add(unknown)
            numbers[new] = self._known.find(words[new])
        return numbers, new

    def count(self, numbers: npt.NDArray[np.int32]) -> None:
        """Count numbers, 0 for missing; DataError when too many are distinct. One thread at a time."""
        if not len(numbers):
            return
        size = int(numbers.max()) + 1
        if size > len(self._counts):
            counts = np.zeros(size + size // 2, np.int64)
            counts[: len(self._counts)] = self._counts
            self._counts = counts
        if size > _SPARSE * len(numbers):
            distinct, counts = np.unique(numbers, return_counts=True)
            self._counts[distinct] += counts
        else:
            self._counts[:size] += np.bincount(numbers, minlength=size)
        if size - 1 > self._most:  # some of them may be held-out rows', or one code written in two ways
            self._require_few()

    def _require_few(self) -> None:
        counts = self._counts[1 : len(self._known) + 1]
        codes = from_hexadecimal(self._known.words[: len(counts)][counts > 0])
        if len(codes) > self._most and len(np.unique(codes)) > self._most:
            raise DataError(
                f"{self._name} has more than {self._most:,} distinct categories, the limit of a vocabulary",
                remedy="use --encoding hash, or raise --max-vocabulary (80 bytes of memory each)",
            )

    def ids(self, *, min_frequency: int) -> tuple[npt.NDArray[np.int32], int]:
        """Return the id of each number, and how many codes have one of their own.

        The more frequent come first, equally frequent ones by value: the numbers do not matter.
        """
        words = self._known.words
        counts = np.zeros(len(words), np.int64)
        seen = self._counts[1 : len(words) + 1]
        counts[: len(seen)] = seen
        # Digits may be written in upper or lower case: several words, one code.
        codes, of_word = np.unique(from_hexadecimal(words), return_inverse=True)
        totals = np.bincount(of_word, weights=counts, minlength=len(codes))  # exact up to 2^53
        kept = np.flatnonzero(totals >= min_frequency)
        kept = kept[np.argsort(-totals[kept], kind="stable")]
        id_of_code = np.full(len(codes), UNKNOWN, np.int32)
        id_of_code[kept] = np.arange(FIRST, FIRST + len(kept), dtype=np.int32)
        return np.concatenate([np.array([MISSING], np.int32), id_of_code[of_word]]), len(kept)


def hashed(codes: npt.NDArray[np.uint32], feature: int, *, buckets: int) -> npt.NDArray[np.int32]:
    """Return 1 + (a hash of the code and its feature's number, modulo buckets - 1); 0 is for missing."""
    mixed = codes.astype(np.uint64) | np.uint64((feature + 1) << 32)
    return (mix64(mixed) % np.uint64(buckets - 1)).astype(np.int32) + np.int32(1)


def mix64(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return murmur3's finaliser of each value: every bit of the input moves every bit of the output."""
    mixed = values ^ (values >> np.uint64(33))
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    mixed ^= mixed >> np.uint64(33)
    return mixed


class HashEncoder:
    """Ids known at once: one pass."""

    def __init__(self, *, buckets: int) -> None:
        self.cache = Cache()
        self._buckets = buckets
        self._locks = [threading.Lock() for _ in CATEGORIES]

    def numbers(self, feature: int, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32] | None:
        """Return the ids of words that the cache does not know; None when one is no code."""
        if not are_hexadecimal(words):
            return None
        ids = hashed(from_hexadecimal(words), feature, buckets=self._buckets)
        with self._locks[feature]:
            self.cache.add(feature, words, ids)
        return ids

    def count(self, parsed: Parsed, stop: int) -> None:
        """A hash learns nothing from the rows."""

    def turn(self, feature: int, numbers: npt.NDArray[np.int32]) -> None:
        """Nothing is left to do: the numbers are the ids."""

    def num_embeddings(self) -> list[int]:
        """Return each feature's number of ids."""
        return [self._buckets] * len(CATEGORIES)

    def describe(self) -> dict[str, Any]:
        """Return what dataset.json says of the encoding."""
        return {"kind": "hash", "buckets": self._buckets, "missing_id": MISSING}


class VocabularyEncoder:
    """Ids by frequency in the training rows.

    Words are numbered as they come, the numbers staged where the ids will be and turned once all are counted.
    """

    def __init__(self, *, min_frequency: int, max_vocabulary: int) -> None:
        self.cache = Cache()
        self._min_frequency = min_frequency
        self._counters = [Counter(name, most=max_vocabulary) for name in CATEGORIES]
        self._locks = [threading.Lock() for _ in CATEGORIES]

    def numbers(self, feature: int, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32] | None:
        """Return the numbers of words that the cache does not know; None when one is no code."""
        with self._locks[feature]:
            found = self._counters[feature].numbers(words)
            if found is None:
                return None
            numbers, new = found
            if len(new):  # the others found the cache's slots taken
                self.cache.add(feature, words[new], numbers[new])
            return numbers

    def count(self, parsed: Parsed, stop: int) -> None:
        """Count the numbers of the first rows, the training ones. One thread at a time."""
        for counter, lock, numbers in zip(self._counters, self._locks, parsed.numbers, strict=True):
            with lock:
                counter.count(numbers[:stop])

    def turn(self, feature: int, numbers: npt.NDArray[np.int32]) -> None:
        """Turn numbers into ids, in place, once all are counted."""
        table, _ = self._vocabularies[feature]
        places = np.empty(min(_RUN, len(numbers)), np.intp)
        for start in range(0, len(numbers), _RUN):
            run = numbers[start : start + _RUN]
            at = places[: len(run)]
            at[...] = run
            np.take(table, at, out=run, mode="clip")

    @cached_property
    def _vocabularies(self) -> list[tuple[npt.NDArray[np.int32], int]]:
        return [c.ids(min_frequency=self._min_frequency) for c in self._counters]

    def num_embeddings(self) -> list[int]:
        """Return each feature's number of ids."""
        return [FIRST + kept for _, kept in self._vocabularies]

    def describe(self) -> dict[str, Any]:
        """Return what dataset.json says of the encoding."""
        return {
            "kind": "vocabulary",
            "min_frequency": self._min_frequency,
            "missing_id": MISSING,
            "unknown_id": UNKNOWN,
        }
