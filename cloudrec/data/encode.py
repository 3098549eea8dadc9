"""Ids for categories: by vocabulary (exact, two passes) or by hash (one pass, with collisions)."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cloudrec.data.shards import write_array
from cloudrec.data.tsv import CATEGORIES
from cloudrec.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from cloudrec.data.manifest import Shard, ShardFile
    from cloudrec.data.shards import ShardRows

MISSING = 0
UNKNOWN = 1
FIRST = 2  # the most frequent category
_MERGE_AT = 1 << 16  # counted codes that wait before they are merged
_LOAD = 8  # slots per code in a lookup table, while that is small
_SMALL = 1 << 20  # slots
_ODD = np.uint32(0x9E3779B1)  # 2^32 divided by the golden ratio


class Counter:
    """Counts the codes of one feature.

    Codes are counted a shard at a time by sorting; the results wait until they are as many as the codes
    known, so that merging costs O(log) a code. Memory: about 24 bytes a distinct code, 48 while merging.
    """

    def __init__(self, name: str, *, most: int) -> None:
        self._name = name
        self._most = most
        self._codes = np.empty(0, np.uint32)
        self._counts = np.empty(0, np.int64)
        self._waiting: list[tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]] = []
        self._waiting_codes = 0

    def add(self, codes: npt.NDArray[np.uint32], *, missing: int = 0) -> None:
        """Count codes, of which this many are 0 for being missing; DataError when too many are distinct."""
        distinct, counts = np.unique(codes, return_counts=True)
        if missing:
            counts[0] -= missing
        if missing and not counts[0]:
            distinct, counts = distinct[1:], counts[1:]
        self._waiting.append((distinct, counts))
        self._waiting_codes += len(distinct)
        if self._waiting_codes > max(_MERGE_AT, len(self._codes)):
            self._merge()

    def _merge(self) -> None:
        codes = np.concatenate([self._codes, *(codes for codes, _ in self._waiting)])
        counts = np.concatenate([self._counts, *(counts for _, counts in self._waiting)])
        order = np.argsort(codes, kind="stable")
        codes, counts = codes[order], counts[order]
        if len(codes):
            firsts = np.concatenate([[0], np.flatnonzero(codes[1:] != codes[:-1]) + 1])
            codes, counts = codes[firsts], np.add.reduceat(counts, firsts)
        self._codes, self._counts = codes, counts
        self._waiting, self._waiting_codes = [], 0
        if len(codes) > self._most:
            raise DataError(
                f"{self._name} has more than {self._most:,} distinct categories, the limit of a vocabulary",
                remedy="use --encoding hash, or raise --max-vocabulary (48 bytes of memory each)",
            )

    def vocabulary(self, *, min_frequency: int) -> npt.NDArray[np.uint32]:
        """Return the codes seen at least so often, most frequent first, equally frequent ones by value."""
        self._merge()
        kept = self._counts >= min_frequency
        codes, counts = self._codes[kept], self._counts[kept]
        return codes[np.lexsort((codes, -counts))]


class Lookup:
    """Finds the id of each code: a cascade of hash tables without chains.

    Each table has a slot for a code; what finds its slot taken goes to the next, differently hashed table. A
    code that meets an empty slot is in no later table either, so most are settled by one access.
    """

    def __init__(self, vocabulary: npt.NDArray[np.uint32]) -> None:
        self._tables: list[tuple[np.uint32, npt.NDArray[np.uint32], npt.NDArray[np.int32]]] = []
        codes = vocabulary
        ids = np.arange(FIRST, FIRST + len(vocabulary), dtype=np.int32)
        while len(codes):
            bits = _table_bits(len(codes))
            shift = np.uint32(32 - bits)
            slots = _slots(codes, shift, len(self._tables))
            keys, values = np.zeros(1 << bits, np.uint32), np.full(1 << bits, UNKNOWN, np.int32)
            keys[slots], values[slots] = codes, ids
            self._tables.append((shift, keys, values))
            left = keys[slots] != codes
            codes, ids = codes[left], ids[left]

    def ids(self, codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        """Return the id of each code, UNKNOWN for those outside the vocabulary."""
        return self._ids_from(0, codes)

    def _ids_from(self, level: int, codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        if level == len(self._tables):
            return np.full(len(codes), UNKNOWN, np.int32)
        shift, keys, values = self._tables[level]
        slots = _slots(codes, shift, level)
        ids = values[slots]
        open_ = np.flatnonzero((keys[slots] != codes) & (ids != UNKNOWN))
        if len(open_):
            ids[open_] = self._ids_from(level + 1, codes[open_])
        return ids


def _table_bits(codes: int) -> int:
    slots = max(codes * _LOAD if codes * _LOAD <= _SMALL else codes * 2, 2)
    return min(int(slots - 1).bit_length(), 31)


def _slots(codes: npt.NDArray[np.uint32], shift: np.uint32, level: int) -> npt.NDArray[np.uint32]:
    mixed = codes ^ (codes >> np.uint32(15))
    mixed *= _ODD + np.uint32(2 * level)
    mixed >>= shift
    return mixed


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
        self._buckets = buckets

    def write(self, folder: Path, name: str, rows: ShardRows, *, counted: bool) -> dict[str, ShardFile]:
        """Write a shard's ids."""
        del counted  # a hash learns nothing from the rows
        ids = np.empty(rows.codes.shape, np.int32)
        for feature, (codes, missing) in enumerate(zip(rows.codes, rows.missing, strict=True)):
            ids[feature] = hashed(codes, feature, buckets=self._buckets)
            np.copyto(ids[feature], MISSING, where=missing)
        return {"sparse": write_array(folder, f"{name}.sparse.npy", ids)}

    def finish(self, folder: Path, shard: Shard) -> Shard:
        """Nothing is left to do."""
        del folder
        return shard

    def num_embeddings(self) -> list[int]:
        """Return each feature's number of ids."""
        return [self._buckets] * len(CATEGORIES)

    def describe(self) -> dict[str, Any]:
        """Return what dataset.json says of the encoding."""
        return {"kind": "hash", "buckets": self._buckets, "missing_id": MISSING}


class VocabularyEncoder:
    """Ids by frequency in the training rows: codes are staged, and turned into ids once all are counted."""

    def __init__(self, scratch: Path, *, min_frequency: int, max_vocabulary: int) -> None:
        self._scratch = scratch
        self._min_frequency = min_frequency
        self._counters = [Counter(name, most=max_vocabulary) for name in CATEGORIES]

    def write(self, folder: Path, name: str, rows: ShardRows, *, counted: bool) -> dict[str, ShardFile]:
        """Stage a shard's codes, and count those of training rows."""
        del folder
        scratch = self._scratch / name.replace("/", "-")
        np.save(scratch.with_suffix(".codes.npy"), rows.codes)
        np.save(scratch.with_suffix(".missing.npy"), np.packbits(rows.missing, axis=1))
        if counted:
            for counter, codes, missing in zip(self._counters, rows.codes, rows.missing, strict=True):
                counter.add(codes, missing=int(np.count_nonzero(missing)))
        return {}

    def finish(self, folder: Path, shard: Shard) -> Shard:
        """Turn a shard's staged codes into ids."""
        scratch = self._scratch / shard.name.replace("/", "-")
        ids = np.load(scratch.with_suffix(".codes.npy"))
        absent = np.load(scratch.with_suffix(".missing.npy"))
        for feature, lookup in enumerate(self._lookups):
            row = lookup.ids(ids[feature])
            np.copyto(row, MISSING, where=np.unpackbits(absent[feature], count=shard.rows).view(np.bool_))
            ids[feature] = row.view(np.uint32)
        scratch.with_suffix(".codes.npy").unlink()
        scratch.with_suffix(".missing.npy").unlink()
        file = write_array(folder, f"{shard.name}.sparse.npy", ids.view(np.int32))
        return replace(shard, files={**shard.files, "sparse": file})

    @cached_property
    def _vocabularies(self) -> list[npt.NDArray[np.uint32]]:
        return [c.vocabulary(min_frequency=self._min_frequency) for c in self._counters]

    @cached_property
    def _lookups(self) -> list[Lookup]:
        return [Lookup(codes) for codes in self._vocabularies]

    def num_embeddings(self) -> list[int]:
        """Return each feature's number of ids."""
        return [FIRST + len(codes) for codes in self._vocabularies]

    def describe(self) -> dict[str, Any]:
        """Return what dataset.json says of the encoding."""
        return {
            "kind": "vocabulary",
            "min_frequency": self._min_frequency,
            "missing_id": MISSING,
            "unknown_id": UNKNOWN,
        }
