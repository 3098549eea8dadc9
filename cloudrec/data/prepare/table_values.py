"""Codes of values while they are counted, and the ids that they get."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloudrec.data.hashes import NEWEST, seeded_hash, text_hash
from cloudrec.errors import DataError
from cloudrec_contract.features import HASH_LIMIT, MANAGED, MISSING_ID, UNKNOWN_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from cloudrec_contract.features import SparseFeature

    _Integers = npt.NDArray[np.signedinteger[Any]]
    _Convert = Callable[[pa.Array], _Integers]

_SMALL = 1 << 22  # limit of the numbers that are places of an array
_WHOLE = r"\A(0|[1-9][0-9]{0,6})\z"  # the texts of numbers up to a limit above that one
_WAITING = 1 << 20  # codes that wait to be counted
_MOST_REMEMBERED = 1 << 20  # values whose ids are remembered, beside those of a vocabulary
_FEW = 64  # values for which Polars' fixed cost is more than that of Python's loop
_MOST_SEEN = 1 << 16  # of these, whose ids are remembered
_UNKNOWN_SEED = 1  # of the hash of unknown values


class _SmallNumbers:
    """Looks up whole numbers from 0 in an array, which is faster than to convert them to texts.

    Several threads may use it. Those that change it at the same time may lose an entry, which is then made
    again.

    Args:
        convert: what is looked up, by text.
    """

    def __init__(self, convert: _Convert, dtype: type[np.signedinteger[Any]] = np.int32) -> None:
        self._convert = convert
        self._known: _Integers = np.zeros(1, dtype)  # by number + 1; -1: not known yet

    def of(self, values: pa.Array) -> _Integers | None:
        """Return what the numbers have, and 0 for null; None if they are no numbers, or not small ones."""
        if not pa.types.is_integer(values.type) or (small := _small_numbers(values)) is None:
            return None
        places = small + 1
        known, size = self._known, int(places.max(initial=0)) + 1
        if size > len(known):
            known = np.concatenate([known, np.full(size + size // 2 - len(known), -1, known.dtype)])
            self._known = known
        found: _Integers = known[places]
        if len(new := np.flatnonzero(found < 0)):
            numbers = places[new] - 1
            # pa.array would load numpy.ma, which takes longer than all this.
            made = pa.Array.from_buffers(pa.int32(), len(new), [None, pa.py_buffer(numbers)])
            known[numbers + 1] = found[new] = self._convert(made.cast(pa.string()))
        return found


def _small_numbers(values: pa.Array) -> npt.NDArray[np.int32] | None:
    """Return whole numbers, and -1 for null; None if they are not all from 0 and below a limit."""
    least, most = (each.as_py() for each in pc.min_max(values).values())
    if least is None:
        return np.full(len(values), -1, np.int32)
    if least < 0 or most >= _SMALL:
        return None
    values = values.cast(pa.int32())
    found: npt.NDArray[np.int32] = (pc.fill_null(values, -1) if values.null_count else values).to_numpy()
    return found


def _of_dictionary(values: pa.DictionaryArray, convert: _Convert) -> _Integers:
    """Return what the values are converted to: each different one once, and nulls to 0."""
    places = values.indices.cast(pa.int64())  # unsigned ones have no number for null
    of_places = np.append(convert(values.dictionary), np.int32(0))
    found: _Integers = of_places[(pc.fill_null(places, -1) if places.null_count else places).to_numpy()]
    return found


class Codes:
    """Numbers texts from 1 on, equal texts alike; a null has the code 0. Several threads may use it.

    Polars keeps the texts, in a table that it shares between threads. Whole numbers are texts of digits.
    """

    def __init__(self) -> None:
        import polars as pl  # noqa: PLC0415 - a tenth of a second, and schemas without a vocabulary need none

        self._polars = pl
        self._kind = pl.Categorical(pl.Categories.random())
        self._keeper = pl.Series([""], dtype=self._kind)  # Polars forgets texts that no series has
        self._numbers = _SmallNumbers(self._of_texts)

    def of(self, values: pa.Array) -> npt.NDArray[np.int32]:
        """Return the codes of texts or whole numbers."""
        if pa.types.is_dictionary(values.type):
            return _of_dictionary(values, self.of)
        return self._of_texts(values) if (found := self._numbers.of(values)) is None else found

    def _of_texts(self, values: pa.Array) -> npt.NDArray[np.int32]:
        values = values.cast(pa.string())
        pl = self._polars
        places = pl.Series(values, dtype=pl.String).cast(self._kind).to_physical()
        codes: npt.NDArray[np.int32] = (places + 1).fill_null(0).cast(pl.Int32).to_numpy()
        return codes

    def texts(self, codes: npt.NDArray[np.integer[Any]]) -> pa.Array:
        """Return the texts of codes above 0."""
        places = self._polars.Series(codes - 1, dtype=self._polars.UInt32)
        return places.cat.to(self._kind).cast(self._polars.String).to_arrow().cast(pa.string())


class CodeIds:
    """The ids of the codes of a counter.

    Args:
        texts: by code, the last one for all further codes, which are not of training rows.
        numbers: likewise by number; None if there were no small numbers.
    """

    def __init__(self, texts: npt.NDArray[np.int32], numbers: npt.NDArray[np.int32] | None) -> None:
        self._texts = texts
        self._numbers = numbers

    def turn(self, codes: npt.NDArray[np.int32]) -> None:
        """Replace codes by ids, in place."""
        if self._numbers is None:
            codes[...] = self._texts.take(codes, mode="clip")
            return
        of_numbers = self._numbers.take(~codes, mode="clip")
        codes[...] = np.where(codes < 0, of_numbers, self._texts.take(codes, mode="clip"))


class ValueCounter:
    """Counts the values of a table's features in the training rows.

    The code of a text is that of `Codes`. The code of a small whole number is -1 - the number, so a column of
    them is counted without any texts.
    """

    def __init__(self, table: str, *, most: int, unknown_buckets: int = 1) -> None:
        self._codes = Codes()
        self._unknown_buckets = unknown_buckets
        self._size = 1  # of all codes, if there are several ids of unknown values
        self._lock = threading.Lock()
        self._table = table
        self._most = most
        self._has_texts = self._has_numbers = False
        self._counts = np.zeros(1, np.int64)  # by code
        self._of_numbers = np.zeros(1, np.int64)  # by number
        self._parts: list[npt.NDArray[np.int32]] = []
        self._waiting = 0

    def of(self, values: pa.Array) -> npt.NDArray[np.int32]:
        """Return the codes of texts or whole numbers. Several threads may call it."""
        if pa.types.is_integer(values.type) and self._unknown_buckets == 1:
            if (small := _small_numbers(values)) is not None:
                self._has_numbers = True
                return ~small
            values = values.cast(pa.string())
        self._has_texts = True
        codes = self._codes.of(values)
        if self._unknown_buckets > 1:
            with self._lock:
                self._size = max(self._size, int(codes.max(initial=0)) + 1)
        return codes

    def add(self, codes: npt.NDArray[np.int32]) -> None:
        """Count codes; DataError if there are too many different ones. One thread at a time."""
        self._parts.append(codes)
        self._waiting += len(codes)
        if self._waiting > max(_WAITING, len(self._counts), len(self._of_numbers)):
            self._add_up()

    def counted(self, *, least: int = 1) -> pa.Table:
        """Return the values that occur at least so often, and their counts."""
        self._add_up()
        if not (self._counts.any() and self._of_numbers.any()):
            return self._counted(least)
        grouped = self._counted(1).group_by("value").aggregate([("count", "sum")])
        merged = pa.table({"value": grouped["value"], "count": grouped["count_sum"]})
        return merged.filter(pc.greater_equal(merged["count"], least))

    def ids(self, values: Sequence[str]) -> CodeIds:
        """Return the ids of the codes, if `values` are the vocabulary in the order of ids."""
        texts, known = np.array([MISSING_ID, UNKNOWN_ID], np.int32), pa.array(values, pa.string())
        first = UNKNOWN_ID + self._unknown_buckets
        if self._has_texts:
            codes = self._codes.of(known)
            size = max(len(self._counts), int(codes.max(initial=0)) + 1, self._size)
            texts = np.full(size + 1, UNKNOWN_ID, np.int32)
            if self._unknown_buckets > 1:
                others = self._codes.texts(np.arange(1, self._size))
                texts[1 : self._size] = unknown_ids(others, self._unknown_buckets)
            texts[codes] = np.arange(first, first + len(values))
            texts[0] = MISSING_ID
        if not self._has_numbers:
            return CodeIds(texts, None)
        places = np.flatnonzero(pc.match_substring_regex(known, _WHOLE).to_numpy(zero_copy_only=False))
        whole = known.take(pa.array(places)).cast(pa.int32()).to_numpy()
        numbers = np.full(int(whole.max(initial=0)) + 2, UNKNOWN_ID, np.int32)
        numbers[whole] = first + places
        return CodeIds(texts, numbers)

    def _counted(self, least: int) -> pa.Table:
        codes = np.flatnonzero(self._counts >= least)
        numbers = np.flatnonzero(self._of_numbers >= least)
        values = [self._codes.texts(codes), pa.array(numbers).cast(pa.string())]
        counts = np.concatenate([self._counts[codes], self._of_numbers[numbers]])
        return pa.table({"value": pa.concat_arrays(values), "count": counts})

    def _add_up(self) -> None:
        if not self._parts:
            return
        codes = np.concatenate(self._parts)
        self._parts, self._waiting = [], 0
        if codes.min(initial=0) < 0:
            self._of_numbers = _summed(self._of_numbers, ~codes[codes < 0])
            codes = codes[codes > 0]
        self._counts = _summed(self._counts, codes)
        self._counts[0] = 0  # of nulls
        found = np.count_nonzero(self._counts) + np.count_nonzero(self._of_numbers)
        if found > self._most:
            require_few(self._table, self.counted().num_rows, self._most)


def _summed(counts: npt.NDArray[np.int64], places: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    found = np.bincount(places, minlength=len(counts))
    found[: len(counts)] += counts
    return found


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
    hashes = seeded_hash(values, _UNKNOWN_SEED) % np.uint64(buckets)
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

    def __init__(self, feature: SparseFeature, values: Sequence[str], *, hashed_by: str = NEWEST) -> None:
        """`values` are those of the vocabulary, in the order of ids; none for other encodings."""
        self._feature = feature
        self._values = pa.array(values, pa.string())
        self._seen: dict[Any, int] = {}
        self._lock = threading.Lock()
        self._dtype = np.int64 if feature.encoding == MANAGED else np.int32
        self._memory = self._forgetful() if feature.encoding == "vocabulary" else None
        self._hash = text_hash(hashed_by)
        self._numbers = _SmallNumbers(self._hashed, self._dtype)

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
        if len(values) <= _FEW:
            return self._few(values)
        return self._of_many(values)

    def _few(self, values: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
        """Return the ids of a few values, as of a request, from a dictionary of those that were seen."""
        keys = values.to_pylist()
        known = self._seen
        try:
            return np.array([known[each] for each in keys], self._dtype)
        except KeyError:
            found = self._of_many(values)
            if len(known) > _MOST_SEEN:
                known = self._seen = {}
            known.update(zip(keys, found.tolist(), strict=True))
            return found

    def _of_many(self, values: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
        if self._feature.encoding == "bucketise":
            numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
            ids = 1 + np.searchsorted(np.array(self._feature.boundaries), numbers, side="right")
            return np.where(np.isnan(numbers), MISSING_ID, ids).astype(np.int32)
        if pa.types.is_dictionary(values.type):
            return _of_dictionary(values, self.of)
        if self._memory is not None:
            return self._known(values, self._memory)
        return self._hashed(values) if (found := self._numbers.of(values)) is None else found

    def _known(self, values: pa.Array, memory: _Memory) -> npt.NDArray[np.int32]:
        codes = memory.codes.of(values)
        with self._lock:
            if len(new := memory.unknown(codes)):
                memory.ids[new] = UNKNOWN_ID
                if self._feature.unknown_buckets > 1:
                    texts, buckets = memory.codes.texts(new), self._feature.unknown_buckets
                    memory.ids[new] = unknown_ids(texts, buckets)
            memory.size += len(new)
            found: npt.NDArray[np.signedinteger[Any]] = memory.ids[codes]
            if memory.size > _MOST_REMEMBERED:
                self._memory = self._forgetful()
        return found

    def _hashed(self, values: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
        limit = HASH_LIMIT if self._feature.encoding == MANAGED else self._feature.buckets
        hashes = self._hash(values.cast(pa.string())) % np.uint64(limit - 1)
        ids: npt.NDArray[np.signedinteger[Any]] = (hashes + np.uint64(1)).astype(self._dtype)
        if values.null_count:
            ids[pc.is_null(values).to_numpy(zero_copy_only=False)] = MISSING_ID
        return ids

    def _forgetful(self) -> _Memory:
        """Return a memory of the vocabulary alone."""
        return _Memory(self._values, self._feature.first_id, self._dtype)
