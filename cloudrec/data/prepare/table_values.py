"""Counting values, and the ids that they get."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloudrec.errors import DataError
from cloudrec_contract.features import FIRST_ID, MISSING_ID, UNKNOWN_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from cloudrec_contract.features import SparseFeature

_WAITING = 2_000_000  # counts of batches that wait to be added up
_PERSON = b"cloudrec"  # of the hash


class ValueCounter:
    """Counts the values of a table's features in the training rows."""

    def __init__(self, table: str, *, most: int) -> None:
        self._table = table
        self._most = most
        self._parts: list[pa.Table] = []
        self._waiting = 0

    def add(self, values: pa.Array) -> None:
        """Count the values of a batch; DataError if there are too many different ones."""
        counted = pc.value_counts(values.drop_null())
        self._parts.append(pa.table({"value": counted.field(0), "count": counted.field(1)}))
        self._waiting += len(counted)
        if self._waiting > max(_WAITING, self._parts[0].num_rows):
            self._add_up()

    def finish(self, *, min_frequency: int, max_size: int | None) -> list[str]:
        """Return the values of the vocabulary, the most frequent first, then in the order of the texts."""
        if not self._parts:
            return []
        counts = self._add_up()
        counts = counts.filter(pc.greater_equal(counts["count"], min_frequency))
        order = pc.sort_indices(counts, [("count", "descending"), ("value", "ascending")])
        values: list[str] = counts["value"].take(order[:max_size]).to_pylist()
        return values

    def _add_up(self) -> pa.Table:
        grouped = pa.concat_tables(self._parts).group_by("value").aggregate([("count", "sum")])
        counts = pa.table({"value": grouped["value"], "count": grouped["count_sum"]})
        if counts.num_rows > self._most:
            raise DataError(
                f"the table {self._table} has more than {self._most:,} different values",
                remedy="give its features `encoding: hash`, or allow more by --max-vocabulary",
            )
        self._parts, self._waiting = [counts], 0
        return counts


class Ids:
    """Gives the values of a table their ids."""

    def __init__(self, feature: SparseFeature, values: Sequence[str]) -> None:
        """`values` are those of the vocabulary, in the order of ids; none for other encodings."""
        self._feature = feature
        self._known = {value: number for number, value in enumerate(values, FIRST_ID)}

    @property
    def rows(self) -> int:
        """The number of ids."""
        if self._feature.encoding == "hash":
            return self._feature.buckets
        if self._feature.encoding == "bucketise":
            return len(self._feature.boundaries) + 2
        return FIRST_ID + len(self._known)

    def of(self, values: pa.Array) -> npt.NDArray[np.int32]:
        """Return the ids of texts, or of numbers for bucketise; a null has the id 0."""
        if self._feature.encoding == "bucketise":
            numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
            ids = 1 + np.searchsorted(np.array(self._feature.boundaries), numbers, side="right")
            return np.where(np.isnan(numbers), MISSING_ID, ids).astype(np.int32)
        coded = values.dictionary_encode()
        each = np.array([self._id(value) for value in coded.dictionary.to_pylist()] + [MISSING_ID], np.int32)
        places = pc.fill_null(coded.indices, len(each) - 1).to_numpy(zero_copy_only=False)
        found: npt.NDArray[np.int32] = each[places]
        return found

    def _id(self, value: str) -> int:
        if self._feature.encoding == "vocabulary":
            return self._known.get(value, UNKNOWN_ID)
        hashed = hashlib.blake2b(value.encode(), digest_size=8, person=_PERSON).digest()
        return 1 + int.from_bytes(hashed, "little") % (self._feature.buckets - 1)
