"""Parquet files, read into memory: columns label, I1 to I13 and C1 to C26, by their names.

Numbers are used unchanged, so transform them before; missing ones become 0. Categories are ids, whole
numbers from 0; missing ones become 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.base.errors import DatasetError, DependencyError
from trainer.data.source import (
    DENSE_NAMES,
    SPARSE_NAMES,
    ArraySource,
    source_in_memory,
    split_rows,
)
from trainer.data.stream import ShardArrays

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

SUFFIXES = (".parquet",)
_COLUMNS = ("label", *DENSE_NAMES, *SPARSE_NAMES)
_MAX_ID = 2**31 - 1


def open_parquet(
    files: dict[str, list[Path]], sizes: Sequence[int] | None, *, test_fraction: float
) -> ArraySource:
    """Read `files` by split; without a "test" split, `test_fraction` of the training rows is held out."""
    read = {split: [_read(path) for path in paths] for split, paths in files.items()}
    if "test" not in read:
        halves = [split_rows(rows, test_fraction) for rows in read["train"]]
        read = {"train": [half[0] for half in halves], "test": [half[1] for half in halves]}
    needed = sizes if sizes is not None and len(sizes) == len(SPARSE_NAMES) else _largest(read)
    return source_in_memory(read, needed)


def _read(path: Path) -> ShardArrays:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra, needed for this format alone
        from pyarrow import parquet  # noqa: PLC0415 - an extra, needed for this format alone
    except ImportError as error:
        raise DependencyError(
            "Parquet files need pyarrow, which is not installed: pip install pyarrow"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            missing = [name for name in _COLUMNS if name not in file.schema_arrow.names]
            if missing:
                raise DatasetError(
                    f"{path}: has no column {missing[0]} ({len(missing)} are missing); it needs label, "
                    "I1 to I13 and C1 to C26"
                )
            table = file.read(columns=list(_COLUMNS))
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"{path}: cannot be read as Parquet: {error}") from error
    columns = {name: _numbers(path, name, table.column(name)) for name in _COLUMNS}
    ids = np.stack([_ids(path, name, columns[name]) for name in SPARSE_NAMES])
    dense = np.stack([columns[name] for name in DENSE_NAMES], axis=1).astype(np.float32)
    return ShardArrays(columns["label"].astype(np.float32), dense, ids)


def _numbers(path: Path, name: str, column: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - pyarrow is untyped
    import pyarrow as pa  # noqa: PLC0415 - an extra, needed for this format alone

    kinds = pa.types
    whole = kinds.is_integer(column.type) or kinds.is_boolean(column.type)
    if not whole and (name in SPARSE_NAMES or not kinds.is_floating(column.type)):
        wanted = "whole numbers" if name in SPARSE_NAMES else "numbers"
        raise DatasetError(f"{path}: the column {name} holds {column.type}; it must hold {wanted}")
    if column.null_count:
        if name == "label":
            raise DatasetError(
                f"{path}: the column label lacks {column.null_count} values; labels are 0 or 1"
            )
        column = column.fill_null(0)
    return np.asarray(column.to_numpy())


def _ids(path: Path, name: str, values: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    if len(values) and (int(values.min()) < 0 or int(values.max()) > _MAX_ID):
        row = int(np.argmax((values < 0) | (values > _MAX_ID)))
        raise DatasetError(
            f"{path}: {name} of row {row} holds the id {values[row]}; ids go from 0 to {_MAX_ID}"
        )
    return values.astype(np.int32)


def _largest(read: dict[str, list[ShardArrays]]) -> list[int]:
    parts = [part for parts in read.values() for part in parts if len(part.labels)]
    if not parts:
        raise DatasetError("the Parquet files hold no rows")
    highest = np.max([part.sparse.max(axis=1) for part in parts], axis=0)
    return [int(value) + 1 for value in highest]
