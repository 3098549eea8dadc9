"""Ids for categories: by vocabulary (exact, two passes) or by hash (one pass, with collisions)."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from cloudrec.data import vocabulary
from cloudrec.data.format.codes import Cache, Dictionary
from cloudrec.data.format.encoding import FIRST, MISSING, UNKNOWN, Encoding, Table
from cloudrec.data.format.fields import are_hexadecimal, from_hexadecimal, lower_case, to_hexadecimal
from cloudrec.data.format.tsv import CATEGORIES
from cloudrec.data.growth import GrowingVocabularies
from cloudrec.data.hashes import mix64
from cloudrec.errors import DataError

if TYPE_CHECKING:
    import numpy.typing as npt

    from cloudrec.data.format.shards import Disk
    from cloudrec.data.format.tsv import Parsed
    from cloudrec.data.prepare.options import PrepareOptions
    from cloudrec.data.vocabulary import KnownVocabulary

_SPARSE = 4  # distinct numbers per row above which rows are sorted; below, a count per number is faster
_RUN = 1 << 14  # numbers that are converted together: they fit the processor's cache


class DatasetEncoder(Protocol):
    """Converts the categories of all rows to ids, by way of provisional numbers."""

    cache: Cache

    def numbers(self, feature: int, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32] | None:
        """Return the numbers of words that are not in the cache; None if one is not a hexadecimal code."""
        ...

    def count(self, parsed: Parsed, stop: int) -> None:
        """Count the categories of the rows before `stop`, the training rows. One thread at a time."""
        ...

    def finish(self, disk: Disk) -> Encoding:
        """Return the encoding and write its vocabulary files; call it after the last `count`."""
        ...

    def turn(self, feature: int, numbers: npt.NDArray[np.int32]) -> None:
        """Convert numbers to ids, in place; call it after `finish`."""
        ...


def make_encoder(options: PrepareOptions, known: KnownVocabulary | None) -> DatasetEncoder:
    """Return the encoder for the options; with `known`, one that uses another dataset's encoding."""
    if known is None and options.encoding == "vocabulary":
        return VocabularyEncoder(min_frequency=options.min_frequency, max_vocabulary=options.max_vocabulary)
    if known is None:
        return HashEncoder(buckets=options.hash_buckets)
    if known.encoding.kind == "hash":
        return HashEncoder(buckets=known.encoding.tables[0].rows)
    if options.grow:
        return GrowingEncoder(known, forget_after=options.forget_after, max_vocabulary=options.max_vocabulary)
    return KnownEncoder(known)


class Ranked(NamedTuple):
    """The ids of the words of one feature."""

    ids: npt.NDArray[np.int32]  # of each number
    codes: npt.NDArray[np.uint32]  # of the vocabulary, in the order of ids


class Counted(NamedTuple):
    """The codes of one feature in all rows, ascending.

    Attributes:
        codes: distinct.
        totals: how many training rows have each.
        of_word: of each word, in the order of numbers from 1, the place of its code.
    """

    codes: npt.NDArray[np.uint32]
    totals: npt.NDArray[Any]
    of_word: npt.NDArray[np.intp]

    def frequent(self, least: int) -> npt.NDArray[np.intp]:
        """Return the places of the codes in at least `least` rows, the most frequent first."""
        kept = np.flatnonzero(self.totals >= least)
        return kept[np.argsort(-self.totals[kept], kind="stable")]

    def by_number(self, id_of_code: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the id of each number from 0, the missing category."""
        return np.concatenate([np.array([MISSING], np.int32), id_of_code[self.of_word]])


class Counter:
    """Numbers the words of one feature in the order of their first use, and counts them."""

    def __init__(self, name: str, *, most: int) -> None:
        self._name = name
        self._most = most
        self._known = Dictionary()
        self._counts = np.zeros(1, np.int64)  # by number; number 0 is the missing category

    def numbers(
        self, words: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.intp]] | None:
        """Return the numbers of words, none of them missing, and the indices of the new ones.

        None if one is not a hexadecimal code. One thread at a time.
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
        """Count numbers (0 is missing); DataError if too many are distinct. One thread at a time."""
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
        # An exact check follows: some words may be in held-out rows only, or be one code in two spellings.
        if size - 1 > self._most:
            self._require_few()

    def _require_few(self) -> None:
        counts = self._counts[1 : len(self._known) + 1]
        codes = from_hexadecimal(self._known.words[: len(counts)][counts > 0])
        if len(codes) > self._most and len(np.unique(codes)) > self._most:
            raise DataError(
                f"{self._name} has more than {self._most:,} distinct categories, the limit of a vocabulary",
                remedy="use --encoding hash, or raise --max-vocabulary (80 bytes of memory each)",
            )

    def ids(self, *, min_frequency: int) -> Ranked:
        """Return the id of each number, and the codes of the vocabulary.

        Codes are ordered by falling frequency, then by value, so the ids do not depend on the order of rows.
        """
        counted = self.counted()
        kept = counted.frequent(min_frequency)
        id_of_code = np.full(len(counted.codes), UNKNOWN, np.int32)
        id_of_code[kept] = np.arange(FIRST, FIRST + len(kept), dtype=np.int32)
        return Ranked(counted.by_number(id_of_code), counted.codes[kept])

    def counted(self) -> Counted:
        """Return the codes of all words, and how many training rows have each."""
        words = self._known.words
        counts = np.zeros(len(words), np.int64)
        seen = self._counts[1 : len(words) + 1]
        counts[: len(seen)] = seen
        # Digits may be written in upper or lower case: several words, one code.
        codes, of_word = np.unique(from_hexadecimal(words), return_inverse=True)
        totals = np.bincount(of_word, weights=counts, minlength=len(codes))  # exact up to 2^53
        return Counted(codes, totals, of_word)


def hashed(codes: npt.NDArray[np.uint32], feature: int, *, buckets: int) -> npt.NDArray[np.int32]:
    """Return 1 + (a hash of the code and its feature's number, modulo buckets - 1); 0 is for missing."""
    mixed = codes.astype(np.uint64) | np.uint64((feature + 1) << 32)
    return (mix64(mixed) % np.uint64(buckets - 1)).astype(np.int32) + np.int32(1)


class HashEncoder:
    """Ids by hash, in one pass: a number is its id."""

    def __init__(self, *, buckets: int) -> None:
        self.cache = Cache()
        self._buckets = buckets
        self._locks = [threading.Lock() for _ in CATEGORIES]

    def numbers(self, feature: int, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32] | None:
        """Return the ids of words that are not in the cache; None if one is not a hexadecimal code."""
        if not are_hexadecimal(words):
            return None
        ids = hashed(from_hexadecimal(words), feature, buckets=self._buckets)
        with self._locks[feature]:
            self.cache.add(feature, words, ids)
        return ids

    def count(self, parsed: Parsed, stop: int) -> None:
        """Do nothing: a hash does not depend on the rows."""

    def turn(self, feature: int, numbers: npt.NDArray[np.int32]) -> None:
        """Nothing is left to do: the numbers are the ids."""

    def finish(self, disk: Disk) -> Encoding:
        """Return the encoding, which has no files."""
        del disk
        tables = tuple(Table(feature=name, rows=self._buckets) for name in CATEGORIES)
        return Encoding(kind="hash", tables=tables)


class VocabularyEncoder:
    """Ids by frequency in the training rows, in two passes.

    The first pass writes provisional numbers to the places of the ids and counts them; `turn` converts them.
    """

    def __init__(self, *, min_frequency: int, max_vocabulary: int) -> None:
        self.cache = Cache()
        self._min_frequency = min_frequency
        self._counters = [Counter(name, most=max_vocabulary) for name in CATEGORIES]
        self._ids: list[npt.NDArray[np.int32]] = []  # by feature: of each number
        self._locks = [threading.Lock() for _ in CATEGORIES]

    def numbers(self, feature: int, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32] | None:
        """Return the numbers of words that are not in the cache; None if one is not a hexadecimal code."""
        with self._locks[feature]:
            found = self._counters[feature].numbers(words)
            if found is None:
                return None
            numbers, new = found
            if len(new):  # the known words are not in the cache because their slots are taken
                self.cache.add(feature, words[new], numbers[new])
            return numbers

    def count(self, parsed: Parsed, stop: int) -> None:
        """Count the numbers of the rows before `stop`, the training rows. One thread at a time."""
        for counter, lock, numbers in zip(self._counters, self._locks, parsed.numbers, strict=True):
            with lock:
                counter.count(numbers[:stop])

    def turn(self, feature: int, numbers: npt.NDArray[np.int32]) -> None:
        """Convert numbers to ids, in place, after all rows are counted."""
        table = self._ids[feature]
        places = np.empty(min(_RUN, len(numbers)), np.intp)
        for start in range(0, len(numbers), _RUN):
            run = numbers[start : start + _RUN]
            at = places[: len(run)]
            at[...] = run
            np.take(table, at, out=run, mode="clip")

    def finish(self, disk: Disk) -> Encoding:
        """Assign ids to the counted words, and write the vocabulary files."""
        tables = []
        for number, name in enumerate(CATEGORIES):
            ranked = self._ranked(number, disk)
            self._ids.append(ranked.ids)
            tables.append(vocabulary.write(disk, name, ranked.codes))
        return Encoding(kind="vocabulary", tables=tuple(tables), min_frequency=self._min_frequency)

    def _ranked(self, feature: int, disk: Disk) -> Ranked:
        del disk
        return self._counters[feature].ids(min_frequency=self._min_frequency)


class GrowingEncoder(VocabularyEncoder):
    """Ids of an existing vocabulary, and of new values behind them (cloudrec.data.growth).

    Args:
        known: the vocabulary, whose minimum frequency holds for new values.
        forget_after: preparations after which an unseen value may give its id to a new one; None: never.
        max_vocabulary: distinct categories that a feature may have in the new rows.
    """

    def __init__(self, known: KnownVocabulary, *, forget_after: int | None, max_vocabulary: int) -> None:
        super().__init__(min_frequency=known.encoding.min_frequency or 1, max_vocabulary=max_vocabulary)
        self._known = known
        self._growing = GrowingVocabularies(known, forget_after=forget_after)

    def finish(self, disk: Disk) -> Encoding:
        """Assign ids to the counted words, and write the vocabularies and the record of their growth."""
        return replace(super().finish(disk), growth=self._growing.growth)

    def _ranked(self, feature: int, disk: Disk) -> Ranked:
        counted = self._counters[feature].counted()
        codes = self._growing.grow_codes(
            disk,
            CATEGORIES[feature],
            self._known.codes(feature),
            counted.codes[counted.totals > 0],
            counted.codes[counted.frequent(self._min_frequency)],
        )
        order = np.argsort(codes, kind="stable")
        id_of_code = np.full(len(counted.codes), UNKNOWN, np.int32)
        inside = np.isin(counted.codes, codes)
        places = order[np.searchsorted(codes, counted.codes[inside], sorter=order)]
        id_of_code[inside] = FIRST + places
        return Ranked(counted.by_number(id_of_code), codes)


class KnownEncoder:
    """Ids of an existing vocabulary, in one pass: a number is its id."""

    def __init__(self, known: KnownVocabulary) -> None:
        self.cache = Cache()
        self._known = known
        self._dictionaries = [Dictionary() for _ in known.encoding.tables]
        for number, dictionary in enumerate(self._dictionaries):
            dictionary.add(to_hexadecimal(known.codes(number)))  # the first one gets the number 1
        self._locks = [threading.Lock() for _ in CATEGORIES]

    def numbers(self, feature: int, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32] | None:
        """Return the ids of words that are not in the cache; None if one is not a hexadecimal code."""
        if not are_hexadecimal(words):
            return None
        ids = self._dictionaries[feature].find(lower_case(words)) + np.int32(FIRST - 1)  # UNKNOWN for 0
        with self._locks[feature]:
            self.cache.add(feature, words, ids)
        return ids

    def count(self, parsed: Parsed, stop: int) -> None:
        """Do nothing: the vocabulary does not change."""

    def finish(self, disk: Disk) -> Encoding:
        """Return the encoding, and write the same vocabulary files."""
        self._known.write(disk)
        return self._known.encoding

    def turn(self, feature: int, numbers: npt.NDArray[np.int32]) -> None:
        """Nothing is left to do: the numbers are the ids."""
