"""Columns as the schema says: numbers, labels, weights, and categories as texts."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloudrec.errors import DataError
from cloudrec_contract.features import LEARNED_TRANSFORMS, MISSING_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from cloudrec_contract.features import DenseFeature, FeatureSchema, Lookup, SparseFeature, TaskLabel

_LARGEST = float(np.finfo(np.float32).max)
_FEW = 2  # rows for each value of a dictionary
_YES, _NO = ("1", "1.0", "true"), ("0", "0.0", "false")


class Problem(NamedTuple):
    """A row that does not fit the schema."""

    row: int  # in the batch
    reason: str
    value: str


class Bags(NamedTuple):
    """The values of a feature: the lengths of the rows' lists, and all values in order."""

    lengths: npt.NDArray[np.int32] | None  # None: one value a row, which may be null
    values: pa.Array  # of texts, also with a dictionary, or whole numbers, or any numbers for bucketise


def labels(column: pa.Array, label: TaskLabel) -> tuple[npt.NDArray[np.uint8], list[Problem]]:
    """Return the labels, 255 where a row may lack its own, and the rows whose label is neither 0 nor 1."""
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        kind = pa.int8() if pa.types.is_boolean(column.type) else pa.int64()
        numbers = pc.fill_null(column.cast(kind, safe=False), -1).to_numpy()
        ones, zeros = numbers == 1, numbers == 0
    else:
        texts = pc.utf8_lower(_text(column, label.column, whole=False))
        ones = pc.fill_null(pc.is_in(texts, pa.array(_YES)), False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow's order
        zeros = pc.fill_null(pc.is_in(texts, pa.array(_NO)), False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - as above
    good, found = ones | zeros, ones.astype(np.uint8)
    if label.missing:
        absent = pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
        found[absent] = MISSING_LABEL
        good |= absent
    return found, [
        Problem(int(row), f"the label {label.column} is not 0 or 1", str(column[int(row)]))
        for row in np.flatnonzero(~good)
    ]


def weights(column: pa.Array, name: str) -> tuple[npt.NDArray[np.float32], list[Problem]]:
    """Return the weights of the samples, and the rows without a finite one of 0 or more."""
    values = _floats(column)
    good = (values >= 0) & (values <= _LARGEST)
    return np.where(good, values, 0.0).astype(np.float32), [
        Problem(int(row), f"the weight {name} is not a finite number from 0", str(column[int(row)]))
        for row in np.flatnonzero(~good)
    ]


def numbers(column: pa.Array, feature: DenseFeature) -> tuple[npt.NDArray[np.float64], list[Problem]]:
    """Return the values before the transform, and the rows without a finite one."""
    values = _floats(column if feature.lookup is None else _looked_up(column, feature.column, feature.lookup))
    # Not so if one is NaN.
    if feature.clip is None and len(values) and values.min() >= -_LARGEST and values.max() <= _LARGEST:
        return values, []
    missing = np.isnan(values)
    bad = np.isinf(values) | (missing if feature.missing is None else False)
    values = np.where(missing, 0.0 if feature.missing is None else feature.missing, values)
    if feature.clip is not None:
        values = np.clip(values, *feature.clip)
    # float32 of the dataset: a larger number would become infinite
    limit = 1e300 if feature.transform.endswith("log1p") else _LARGEST
    bad = bad | (np.abs(values) > limit)
    rows = np.flatnonzero(bad)
    what = "is missing" if feature.missing is None else "is no finite number"
    return np.where(bad, 0.0, values), [
        Problem(
            int(row),
            f"{feature.name} {what}" if missing[row] else f"{feature.name} is no finite number",
            str(column[int(row)]),
        )
        for row in rows
    ]


def transformed(
    values: npt.NDArray[np.float64], feature: DenseFeature, statistics: Mapping[str, Any]
) -> npt.NDArray[np.float32]:
    """Return the values as the model gets them."""
    if feature.transform == "log1p":
        values = np.log1p(np.maximum(values, 0.0))
    elif feature.transform == "signed_log1p":
        values = np.copysign(np.log1p(np.abs(values)), values)
    elif feature.transform == "min_max":
        known = statistics[feature.name]
        values = (values - known["least"]) / ((known["most"] - known["least"]) or 1.0)
    elif feature.transform == "normalise":
        known = statistics[feature.name]
        values = (values - known["mean"]) / (known["deviation"] or 1.0)
    if feature.transform in LEARNED_TRANSFORMS:  # a later row may be far outside what was learned
        values = np.clip(values, -_LARGEST, _LARGEST)
    return values.astype(np.float32)


def values_of(batch: pa.RecordBatch, feature: SparseFeature) -> pa.Array:
    """Return the column of a feature's values, or those of several columns as one text each.

    A text begins with the lengths of its parts, so that different values never give the same one.
    """
    if not feature.cross:
        return batch.column(feature.column)
    parts = [_text(batch.column(name), name).cast(pa.string()) for name in feature.cross]
    lengths = [pc.utf8_length(part).cast(pa.string()) for part in parts]
    return pc.binary_join_element_wise(*lengths, *parts, ":", null_handling="emit_null")


def missing(column: pa.Array, feature: SparseFeature) -> list[Problem]:
    """Return the rows that have no value."""
    if feature.lookup is not None and feature.kind == "single":
        column = _values(column, feature)
    rows = np.flatnonzero(pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False))
    return [Problem(int(row), f"{feature.name} is missing", "") for row in rows]


def bags(column: pa.Array, feature: SparseFeature) -> Bags:
    """Return a feature's values."""
    if feature.kind == "single":
        return Bags(None, _values(column, feature))
    lengths, texts = _flat(column, feature)
    if feature.kind == "sequence":
        return _newest(lengths, texts, feature)
    kept = _present(texts, feature)
    if not kept.all():
        rows_of = np.repeat(np.arange(len(lengths)), lengths)
        lengths = np.bincount(rows_of[kept], minlength=len(lengths))
        texts = texts.filter(pa.array(kept))
    return Bags(lengths.astype(np.int32), texts)


def value_weights(
    column: pa.Array, weights: pa.Array, feature: SparseFeature
) -> tuple[npt.NDArray[np.float32], list[Problem]]:
    """Return the weights of the values that `bags` returns, and the rows whose weights do not fit.

    The weights are those of all rows only if there is no such row.
    """
    lengths, texts = _flat(column, feature)
    counts, numbers = _flat_numbers(weights, feature)
    same = lengths == counts
    found = [
        Problem(
            int(row),
            f"{feature.name} has {lengths[row]} values and {counts[row]} weights",
            str(weights[int(row)]),
        )
        for row in np.flatnonzero(~same)
    ]
    kept = _present(texts, feature)[np.repeat(same, lengths)]
    numbers = numbers[np.repeat(same, counts)][kept]
    rows_of = np.repeat(np.flatnonzero(same), lengths[same])[kept]
    good = np.abs(numbers) <= float(np.finfo(np.float32).max)
    what = "finite number"
    if feature.pooling == "mean":
        good &= numbers >= 0
        what = "finite number from 0"
    found += [
        Problem(int(row), f"{feature.name} has a weight that is no {what}", str(weights[int(row)]))
        for row in np.unique(rows_of[~good])
    ]
    return np.where(good, numbers, 0.0).astype(np.float32), found


def _flat(column: pa.Array, feature: SparseFeature) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Return the lengths of the rows' lists, and all their values, missing ones included."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64), pa.array([], pa.string())
    if feature.separator is not None and not _is_list(column.type):
        texts = _text(column, feature.column).cast(pa.string())
        # A sequence keeps places without a value, and weights are compared by place: an empty text has none.
        if feature.kind == "sequence" or feature.weights is not None:
            texts = pc.if_else(pc.equal(texts, ""), None, texts)
        column = pc.split_pattern(texts, feature.separator)
    elif pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    lengths, values = _unnested(column)
    return lengths, _values(values, feature)


def _flat_numbers(
    column: pa.Array, feature: SparseFeature
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the lengths of the rows' lists, and all their numbers; NaN for what is none."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64), np.zeros(0)
    if _is_list(column.type):
        if pa.types.is_fixed_size_list(column.type):
            column = column.cast(pa.list_(column.type.value_type))
        lengths, values = _unnested(column)
        return lengths, _floats(values)
    texts = _text(column, feature.weights or "", whole=False)
    lengths, values = _unnested(
        pc.split_pattern(pc.if_else(pc.equal(texts, ""), None, texts), feature.separator or "")
    )
    import polars as pl  # noqa: PLC0415 - a tenth of a second, and few need it

    numbers = pl.Series(values, dtype=pl.String).str.strip_chars().cast(pl.Float64, strict=False)
    return lengths, numbers.fill_null(np.nan).to_numpy()


def _unnested(column: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Return the lengths of lists, 0 for null, and their values."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths, pc.list_flatten(column)  # without those of null lists


def _present(values: pa.Array, feature: SparseFeature) -> npt.NDArray[np.bool_]:
    """Return which values of lists are not missing."""
    found: npt.NDArray[np.bool_] = ~pc.is_null(values, nan_is_null=True).to_numpy(zero_copy_only=False)
    if feature.separator is not None and pa.types.is_string(values.type):
        found &= pc.fill_null(pc.not_equal(values, ""), False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow's order
    return found


def _newest(lengths: npt.NDArray[np.int64], values: pa.Array, feature: SparseFeature) -> Bags:
    """Return the last values of each row; missing ones stay, so that sequences of a row keep their places."""
    if feature.separator is not None and pa.types.is_string(values.type):
        values = pc.if_else(pc.equal(values, ""), None, values)
    kept = np.minimum(lengths, feature.max_length or 0)
    if (kept != lengths).any():
        ends = np.repeat(np.cumsum(lengths), lengths)
        values = values.filter(pa.array(ends - np.arange(len(values)) <= np.repeat(kept, lengths)))
    return Bags(kept.astype(np.int32), values)


def texts(column: pa.Array, name: str) -> pa.Array:
    """Return values as texts; equal values of different types are alike."""
    return _text(column, name).cast(pa.string())


def take(batch: pa.RecordBatch, schema: FeatureSchema, kept: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the chosen rows with the schema's columns."""
    return batch.select(list(schema.columns)).filter(pa.array(kept))


def _values(column: pa.Array, feature: SparseFeature) -> pa.Array:
    if feature.lookup is not None:
        column = _looked_up(column, feature.column, feature.lookup)
    elif _has_small_dictionary(column) and feature.encoding != "bucketise" and feature.separator is None:
        return column
    if feature.encoding == "bucketise":
        return pa.array(_floats(column), from_pandas=True)
    return _text(column, feature.column)


def _looked_up(column: pa.Array, name: str, lookup: Lookup) -> pa.Array:
    """Return what a map makes of the values; null for those that it lacks."""
    keys, values = _map_arrays(lookup)
    found: pa.Array = values.take(pc.index_in(_text(column, name).cast(pa.string()), keys))
    return found


@lru_cache(maxsize=256)
def _map_arrays(lookup: Lookup) -> tuple[pa.Array, pa.Array]:
    keys, values = zip(*lookup, strict=True)
    return pa.array(keys, pa.string()), pa.array(values)


def _decoded(column: pa.DictionaryArray) -> pa.Array:
    """Return a column of categories as its values."""
    if pa.types.is_string_view(column.dictionary.type):  # of Polars' files; Arrow cannot take from it
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.string()))
    return column.dictionary_decode()


def _floats(column: pa.Array) -> npt.NDArray[np.float64]:
    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    values: npt.NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def _text(column: pa.Array, name: str, *, whole: bool = True) -> pa.Array:
    """Return texts, or whole numbers; equal values of different types are alike: 7, 7.0 and "7"."""
    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    if pa.types.is_floating(column.type) and whole:  # integers with nulls, as pandas writes them
        column = pc.if_else(pc.is_nan(column), None, column)
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise DataError(
                f"the column {name} holds numbers with fractions, so it is no category: {error}",
                remedy="make it dense, or give it boundaries, as in {name: age, boundaries: [18, 30, 50]}",
            ) from error
    if whole and pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        return column
    return column.cast(pa.string())


def _has_small_dictionary(column: pa.Array) -> bool:
    """Whether there are fewer different texts than rows, so that it saves time to convert those alone."""
    if not pa.types.is_dictionary(column.type) or not pa.types.is_string(column.type.value_type):
        return False
    return len(column.dictionary) * _FEW <= len(column)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
