"""The day files that torchrec's scripts and MLPerf's make of Criteo's logs, memory-mapped.

    DIR/day_0_dense.npy    float32 [rows, 13], transformed already
    DIR/day_0_sparse.npy   int32   [rows, 26]
    DIR/day_0_labels.npy   int32   [rows, 1]

All days but the last are learnt from. The first half of the last (the larger, if they differ) is
evaluated on, as MLPerf's 89,137,319 rows of day 23 are; its second half is left alone.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.data.prepared import ShardArrays
from trainer.data.source import DENSE_NAMES, SPARSE_NAMES, ArraySource, array_parts
from trainer.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

_FILE = re.compile(r"day_(\d+)_(dense|sparse|labels)\.npy")
_KINDS = ("labels", "dense", "sparse")


def has_days(directory: Path) -> bool:
    """Whether a folder looks like this format."""
    return any(_FILE.fullmatch(path.name) for path in directory.iterdir())


def open_days(directory: Path, sizes: Sequence[int] | None) -> ArraySource:
    """Map all days; without `sizes` every id is read once, to tell how large tables must be."""
    days = _find(directory)
    arrays = [_open_day(directory, day) for day in days]
    half = (len(arrays[-1].labels) + 1) // 2
    last = ShardArrays(arrays[-1].labels[:half], arrays[-1].dense[:half], arrays[-1].sparse[:, :half])
    needed = sizes if sizes is not None and len(sizes) == len(SPARSE_NAMES) else _largest(arrays)
    sizes_of_files = [(directory / f"day_{day}_{kind}.npy").stat().st_size for day in days for kind in _KINDS]
    return ArraySource(
        digest=hashlib.sha256(repr((days, sizes_of_files)).encode()).hexdigest(),
        dense_features=DENSE_NAMES,
        num_embeddings=dict(zip(SPARSE_NAMES, needed, strict=True)),
        train=array_parts("train", arrays[:-1]),
        test=array_parts("test", [last]),
    )


def _find(directory: Path) -> list[int]:
    matches = [match for path in directory.iterdir() if (match := _FILE.fullmatch(path.name))]
    found = {match[0] for match in matches}
    days = sorted({int(match[1]) for match in matches})
    if len(days) < 2:  # noqa: PLR2004 - one to learn from, one to evaluate on
        raise DataError(
            f"{directory}: holds {len(days)} days (day_N_dense.npy, ...); the last is evaluated on, so two "
            "are needed at least"
        )
    for name in (f"day_{day}_{kind}.npy" for day in days for kind in _KINDS):
        if name not in found:
            raise DataError(f"{directory / name}: missing, though other files of that day are there")
    return days


def _open_day(directory: Path, day: int) -> ShardArrays:
    dense = _map(directory / f"day_{day}_dense.npy", "float32", len(DENSE_NAMES))
    sparse = _map(directory / f"day_{day}_sparse.npy", "int32", len(SPARSE_NAMES))
    path = directory / f"day_{day}_labels.npy"
    labels = _load(path).reshape(-1)
    if labels.dtype.kind not in "iuf":
        raise DataError(f"{path}: holds {labels.dtype.name}; labels are numbers, 0 or 1")
    if not len(labels) == len(dense) == len(sparse):
        raise DataError(
            f"{path}: {len(labels)} rows, but {len(dense)} in its dense and {len(sparse)} in its sparse "
            "file; make or copy the day again"
        )
    return ShardArrays(labels, dense, sparse.T)


def _map(path: Path, dtype: str, columns: int) -> npt.NDArray[Any]:
    mapped = _load(path)
    if mapped.dtype.name != dtype or mapped.ndim != 2 or mapped.shape[1] != columns:  # noqa: PLR2004 - a table
        raise DataError(
            f"{path}: holds {mapped.dtype.name} {list(mapped.shape)}, not {dtype} [rows, {columns}]"
        )
    return mapped


def _load(path: Path) -> npt.NDArray[Any]:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be mapped: {error}; make or copy it again") from error


def _largest(arrays: Sequence[ShardArrays]) -> list[int]:
    highest = np.max([day.sparse.max(axis=1) for day in arrays if len(day.labels)], axis=0)
    return [max(int(value), 0) + 1 for value in highest]
