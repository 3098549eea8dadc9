"""Codes of values while they are counted, and the ids that they get."""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cloudrec.data.prepare.text_hashes import hashed_texts
from cloudrec.errors import DataError
from cloudrec_contract.features import HASH_LIMIT, MANAGED, MISSING_ID, UNKNOWN_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from cloudrec_contract.features import SparseFeature

_SMALL = 1 << 22  # limit of the numbers that are looked up in an array
_WAITING = 1 << 20  # codes that wait to be counted
_MOST_REMEMBERED = 1 << 20  # values whose ids are remembered, beside those of a vocabulary
_PERSON = b"cloudrec"  # of the hash
_UNKNOWN_SEED = 1  # of the hash of unknown values


class Codes:
    """Numbers texts from 1 on, equal texts alike; a null has the code 0. Several threads may use it.

    Polars keeps the texts, in a table that it shares between threads. Whole numbers are texts of digits; the
    codes of small ones are looked up in an array, which is faster. Threads that change it at the same time
    may lose an entry, which is then made again.
    """

    def __init__(self) -> None:
        self._kind = pl.Categorical(pl.Categories.random())
        self._keeper = pl.Series([""], dtype=self._kind)  # Polars forgets texts that no series has
        self._of_numbers: npt.NDArray[np.int32] = np.zeros(1, np.int32)  # by number + 1; -1: not known yet

    def of(self, values: pa.Array) -> npt.NDArray[np.int32]:
        """Return the codes of texts or whole numbers."""
        if pa.types.is_integer(values.type):
            least, most = (each.as_py() for each in pc.min_max(values).values())
            if least is None:
                return np.zeros(len(values), np.int32)
            if least >= 0 and most < _SMALL:
                return self._look_up(values, most + 2)
            values = values.cast(pa.string())
        places = pl.Series(values, dtype=pl.String).cast(self._kind).to_physical()
        codes: npt.NDArray[np.int32] = (places + 1).fill_null(0).cast(pl.Int32).to_numpy()
        return codes

    def _look_up(self, values: pa.Array, size: int) -> npt.NDArray[np.int32]:
        places = pc.fill_null(values.cast(pa.int32()), -1).to_numpy(zero_copy_only=False) + 1
        known = self._of_numbers
        if size > len(known):
            known = np.concatenate([known, np.full(size + size // 2 - len(known), -1, np.int32)])
            self._of_numbers = known
        codes: npt.NDArray[np.int32] = known[places]
        if len(new := places[codes < 0]):
            new = np.unique(new)
            known[new] = self.of(pa.array(new - 1).cast(pa.string()))
            codes = known[places]
        return codes

    def texts(self, codes: npt.NDArray[np.integer[Any]]) -> pa.Array:
        """Return the texts of codes above 0."""
        places = pl.Series(codes - 1, dtype=pl.UInt32)
        return places.cat.to(self._kind).cast(pl.String).to_arrow().cast(pa.string())


class ValueCounter:
    """Counts the values of a table's features in the training rows."""

    def __init__(self, table: str, *, most: int, unknown_buckets: int = 1) -> None:
        self.codes = Codes()
        self._unknown_buckets = unknown_buckets
        self._size = 1  # of all codes, if there are several ids of unknown values
        self._lock = threading.Lock()
        self._table = table
        self._most = most
        self._counts = np.zeros(1, np.int64)  # by code
        self._parts: list[npt.NDArray[np.int32]] = []
        self._waiting = 0

    def of(self, values: pa.Array) -> npt.NDArray[np.int32]:
        """Return the codes of texts or whole numbers."""
        codes = self.codes.of(values)
        if self._unknown_buckets > 1:
            with self._lock:
                self._size = max(self._size, int(codes.max(initial=0)) + 1)
        return codes

    def add(self, codes: npt.NDArray[np.int32]) -> None:
        """Count codes; DataError if there are too many different ones. One thread at a time."""
        self._parts.append(codes)
        self._waiting += len(codes)
        if self._waiting > max(_WAITING, len(self._counts)):
            self._add_up()

    def counted(self) -> pa.Table:
        """Return the values and their counts."""
        self._add_up()
        codes = np.flatnonzero(self._counts)
        return pa.table({"value": self.codes.texts(codes), "count": self._counts[codes]})

    def ids(self, values: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the id of each code, if `values` are the vocabulary in the order of ids.

        The last place is for all further codes, which are not of training rows.
        """
        size = max(len(self._counts) + 1, self._size)
        ids = np.full(size, UNKNOWN_ID, np.int32)
        if self._unknown_buckets > 1:
            ids[1 : self._size] = unknown_ids(
                self.codes.texts(np.arange(1, self._size)), self._unknown_buckets
            )
        first = UNKNOWN_ID + self._unknown_buckets
        ids[self.of(pa.array(values, pa.string()))] = np.arange(first, first + len(values))
        ids[0] = MISSING_ID
        return ids

    def _add_up(self) -> None:
        if not self._parts:
            return
        counts = np.bincount(np.concatenate(self._parts), minlength=len(self._counts))
        counts[: len(self._counts)] += self._counts
        counts[0] = 0  # of nulls
        self._counts, self._parts, self._waiting = counts, [], 0
        require_few(self._table, int(np.count_nonzero(counts)), self._most)


def require_few(table: str, found: int, most: int) -> None:
    """Raise DataError if a table has more different values than a vocabulary may have."""
    if found > most:
        raise DataError(
            f"the table {table} has more than {most:,} different values",
            remedy="give its features `encoding: hash`, or allow more by --max-vocabulary",
        )


def vocabulary_of(counts: pa.Table, feature: SparseFeature) -> list[str]:
    """Return the values of the vocabulary, the most frequent first, then in the order of the texts."""
    counts = counts.filter(pc.greater_equal(counts["count"], feature.min_frequency))
    order = pc.sort_indices(counts, [("count", "descending"), ("value", "ascending")])
    values: list[str] = counts["value"].take(order[: feature.max_size]).to_pylist()
    return values


def unknown_ids(values: pa.Array, buckets: int) -> npt.NDArray[np.int32]:
    """Return the ids of texts that a vocabulary lacks, by hash."""
    hashes = hashed_texts(values, _UNKNOWN_SEED) % np.uint64(buckets)
    return hashes.astype(np.int32) + np.int32(UNKNOWN_ID)


class _Memory:
    """The ids of values that have occurred."""

    def __init__(self, values: pa.Array, first: int, dtype: type[np.signedinteger[Any]]) -> None:
        """`values` are those of the vocabulary, `first` is the id of the first one, `dtype` the ids'."""
        self.codes = Codes()
        own = self.codes.of(values)
        self.ids: npt.NDArray[np.signedinteger[Any]] = np.full(
            int(own.max(initial=0)) + 1, -1, dtype
        )  # by code; -1: not known yet
        self.ids[own] = np.arange(first, first + len(own))
        self.ids[0] = MISSING_ID
        self.size = 0  # without the vocabulary

    def unknown(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return those of the codes, each once, that have no ids yet."""
        if (size := int(codes.max(initial=0)) + 1) > len(self.ids):
            room = np.full(size + size // 2 - len(self.ids), -1, self.ids.dtype)
            self.ids = np.concatenate([self.ids, room])
        return np.unique(codes[self.ids[codes] < 0])


class Ids:
    """Gives the values of a table their ids. Several threads may use it.

    The ids of the values that occurred last are remembered, a limited number.
    """

    def __init__(self, feature: SparseFeature, values: Sequence[str]) -> None:
        """`values` are those of the vocabulary, in the order of ids; none for other encodings."""
        self._feature = feature
        self._values = pa.array(values, pa.string())
        self._lock = threading.Lock()
        self._dtype = np.int64 if feature.encoding == MANAGED else np.int32
        self._memory = self._forgetful()

    @property
    def rows(self) -> int:
        """The number of ids."""
        if self._feature.encoding in ("hash", MANAGED):
            return self._feature.buckets
        if self._feature.encoding == "bucketise":
            return len(self._feature.boundaries) + 2
        return self._feature.first_id + len(self._values)

    def of(self, values: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
        """Return the ids of texts, or of numbers; a null has the id 0."""
        if self._feature.encoding == "bucketise":
            numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
            ids = 1 + np.searchsorted(np.array(self._feature.boundaries), numbers, side="right")
            return np.where(np.isnan(numbers), MISSING_ID, ids).astype(np.int32)
        memory = self._memory
        codes = memory.codes.of(values)
        with self._lock:
            if len(new := memory.unknown(codes)):
                memory.ids[new] = UNKNOWN_ID
                if self._feature.unknown_buckets > 1:
                    texts, buckets = memory.codes.texts(new), self._feature.unknown_buckets
                    memory.ids[new] = unknown_ids(texts, buckets)
                if self._feature.encoding in ("hash", MANAGED):
                    memory.ids[new] = self._hashes(memory.codes.texts(new))
            memory.size += len(new)
            found: npt.NDArray[np.signedinteger[Any]] = memory.ids[codes]
            if memory.size > _MOST_REMEMBERED:
                self._memory = self._forgetful()
        return found

    def _forgetful(self) -> _Memory:
        """Return a memory of the vocabulary alone."""
        return _Memory(self._values, self._feature.first_id, self._dtype)

    def _hashes(self, values: pa.Array) -> npt.NDArray[np.uint64]:
        begin = hashlib.blake2b(digest_size=8, person=_PERSON).copy  # faster than a new one for each
        digests = []
        for value in values.cast(pa.binary()).to_pylist():
            (each := begin()).update(value)
            digests.append(each.digest())
        numbers = np.frombuffer(b"".join(digests), "<u8")
        limit = HASH_LIMIT if self._feature.encoding == MANAGED else self._feature.buckets
        return np.uint64(1) + numbers % np.uint64(limit - 1)
