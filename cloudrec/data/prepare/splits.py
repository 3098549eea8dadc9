"""Which rows are test rows by a rule of the schema: the newest ones, or all rows of some users.

A user's rows are in one split by a hash of the user, so nothing has to be known of other rows. For a share of
the newest rows, one pass reads the column of time before, and keeps a sample of it: exact up to 131,072 rows
a file and in all, beyond that the share is off by less than a thousandth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloudrec.data.hashes import seeded_hash
from cloudrec.data.prepare import table_columns as columns
from cloudrec.data.prepare.table_columns import Problem
from cloudrec.data.prepare.table_files import read_batches
from cloudrec.errors import DataError
from cloudrec_contract.features import FeatureSchema, time_point

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from cloudrec.data.prepare.table_files import TableFile
    from cloudrec_contract.features import SplitRule

_KEPT = 1 << 17  # values of a level of a sample


def in_test(
    batch: pa.RecordBatch, rule: SplitRule, *, seed: int, since: float | None
) -> npt.NDArray[np.bool_]:
    """Return which rows are test rows.

    Args:
        batch: the rows.
        rule: the rule.
        seed: which users are test users.
        since: the time from which on rows are test rows.
    """
    column = batch.column(rule.column)
    if rule.by == "user":
        return seeded_hash(columns.texts(column, rule.column), seed) < _limit(rule.test or 0.0)
    return points(column) >= (np.inf if since is None else since)


def problems(batch: pa.RecordBatch, rule: SplitRule) -> list[Problem]:
    """Return the rows of which the rule cannot say in which split they are."""
    column = batch.column(rule.column)
    if rule.by == "user":
        bad = pc.is_null(columns.texts(column, rule.column)).to_numpy(zero_copy_only=False)
    else:
        bad = ~np.isfinite(points(column))
    what = "user" if rule.by == "user" else "time"
    return [
        Problem(int(row), f"{rule.column}, by which rows are split, has no {what}", str(column[int(row)]))
        for row in np.flatnonzero(bad)
    ]


def points(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return times as numbers: those of numbers, or microseconds since 1970; NaN for what is none."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return np.array([_point(each) for each in column.to_pylist()], np.float64)
    found: npt.NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found


def _point(text: str | None) -> float:
    found = None if text is None else time_point(text)
    return np.nan if found is None else found


def first_test_time(samples: Sequence[Sample], rule: SplitRule) -> float:
    """Return the time from which on rows are test rows, from a sample of each file, in their order."""
    every = Sample()
    for each in samples:
        every.merge(each)
    return every.quantile(1.0 - (rule.test or 0.0), rule.column)


def sample_of(file: TableFile, schema: FeatureSchema) -> Sample:
    """Read the column of time of a file."""
    assert schema.split is not None  # noqa: S101 - for the type checker: who asks has one
    sample = Sample()
    for batch in read_batches(file, FeatureSchema(labels=(), dense=(), sparse=(), split=schema.split)):
        found = points(batch.column(schema.split.column))
        sample.add(found[np.isfinite(found)])
    return sample


class Sample:
    """Some of many numbers, each in place of as many as its level says: 1, 2, 4, 8.

    A level that is full is sorted, and every second number of it goes to the next one (Manku, Rajagopalan and
    Lindsay 1998). It depends on the numbers and their order alone.
    """

    def __init__(self) -> None:
        self._levels: list[npt.NDArray[np.float64]] = [np.empty(0)]
        self._odd: list[bool] = [False]  # which half of a level is kept the next time

    def add(self, numbers: npt.NDArray[np.float64]) -> None:
        """Add numbers."""
        while len(numbers):
            room = _KEPT - len(self._levels[0])
            self._extend(0, numbers[:room])
            numbers = numbers[room:]

    def merge(self, other: Sample) -> None:
        """Add the numbers of another sample."""
        for level, numbers in enumerate(other._levels):
            for start in range(0, len(numbers), _KEPT):
                self._extend(level, numbers[start : start + _KEPT])

    def _extend(self, level: int, numbers: npt.NDArray[np.float64]) -> None:
        while level >= len(self._levels):
            self._levels.append(np.empty(0))
            self._odd.append(False)
        joined = np.concatenate([self._levels[level], numbers])
        if len(joined) < _KEPT:
            self._levels[level] = joined
            return
        whole = len(joined) // 2 * 2
        ordered = np.sort(joined[:whole])
        half = ordered[int(self._odd[level]) :: 2]
        self._odd[level] = not self._odd[level]
        self._levels[level] = joined[whole:]
        self._extend(level + 1, half)

    def quantile(self, share: float, column: str) -> float:
        """Return the number of which a share of all are less; DataError if there are no numbers."""
        values = np.concatenate(self._levels)
        weights = np.concatenate([np.full(len(each), 1 << level) for level, each in enumerate(self._levels)])
        if not len(values):
            raise DataError(
                f"no row has a time in the column {column}, by which rows are split",
                remedy="correct `split` in the schema, or leave it out",
            )
        order = np.argsort(values, kind="stable")
        ends = np.cumsum(weights[order])
        place = int(np.searchsorted(ends, np.floor(share * ends[-1]), side="right"))
        return float(values[order[min(place, len(values) - 1)]])


def _limit(share: float) -> np.uint64:
    return np.uint64(int(share * 2**53) << 11)
