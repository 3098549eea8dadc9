"""The day files that the scripts of torchrec and MLPerf make from Criteo's logs, memory-mapped.

    DIR/day_0_dense.npy    float32 [rows, 13], transformed already
    DIR/day_0_sparse.npy   int32   [rows, 26]
    DIR/day_0_labels.npy   int32   [rows, 1]
    DIR/day_0_sparse_multi_hot.npz   instead of sparse.npy: several ids per feature (multi_hot.py)

All days but the last are the training split. The first half of the last day (the larger one, if they differ)
is the test split, like MLPerf's 89,137,319 rows of day 23; its second half is not used.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trainer.base.errors import DatasetError
from trainer.data.formats.multi_hot import IdColumns, open_multi_hot
from trainer.data.source import DENSE_NAMES, SPARSE_NAMES, ArraySource, array_parts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

_FILE = re.compile(r"day_(\d+)_(dense\.npy|sparse\.npy|labels\.npy|sparse_multi_hot\.npz)")
_ONE_HOT, _MULTI_HOT = "sparse.npy", "sparse_multi_hot.npz"


class _Day(NamedTuple):
    labels: npt.NDArray[Any]  # [rows]
    dense: npt.NDArray[np.float32]  # [rows, 13]
    sparse: IdColumns
    lists: None = None
    weights: None = None

    def first(self, rows: int) -> _Day:
        """The first rows alone."""
        return _Day(self.labels[:rows], self.dense[:rows], self.sparse.first(rows))


def has_days(directory: Path) -> bool:
    """Whether a folder looks like this format."""
    return any(_FILE.fullmatch(path.name) for path in directory.iterdir())


def open_days(directory: Path, sizes: Sequence[int] | None) -> ArraySource:
    """Map all days; without `sizes`, every id is read once to find the sizes of the tables."""
    numbers, kinds = _find(directory)
    days = [_open_day(directory, number, kinds) for number in numbers]
    hotness = _common_hotness(numbers, days)
    last = days[-1].first((len(days[-1].labels) + 1) // 2)
    needed = sizes if sizes is not None and len(sizes) == len(SPARSE_NAMES) else _largest(days)
    bytes_of_files = [(directory / name).stat().st_size for name in _names(numbers, kinds)]
    return ArraySource(
        digest=hashlib.sha256(repr((numbers, bytes_of_files)).encode()).hexdigest(),
        dense_features=DENSE_NAMES,
        num_embeddings=dict(zip(SPARSE_NAMES, needed, strict=True)),
        train=array_parts("train", days[:-1], hotness),
        test=array_parts("test", [last], hotness),
    )


def _find(directory: Path) -> tuple[list[int], tuple[str, str, str]]:
    """Return the days' numbers, and the three kinds of files that each day has."""
    matches = [match for path in directory.iterdir() if (match := _FILE.fullmatch(path.name))]
    found = {match[2] for match in matches}
    if {_ONE_HOT, _MULTI_HOT} <= found:
        raise DatasetError(
            f"{directory}: holds both day_N_{_ONE_HOT} and day_N_{_MULTI_HOT}, with different ids for "
            "the same samples; keep one of the two in the folder"
        )
    kinds = ("labels.npy", "dense.npy", _MULTI_HOT if _MULTI_HOT in found else _ONE_HOT)
    days = sorted({int(match[1]) for match in matches})
    if len(days) < 2:  # noqa: PLR2004 - one to learn from, one to evaluate on
        raise DatasetError(
            f"{directory}: holds {len(days)} days (day_N_dense.npy, ...); the last is evaluated on, so two "
            "are needed at least"
        )
    names = {match[0] for match in matches}
    for name in _names(days, kinds):
        if name not in names:
            raise DatasetError(f"{directory / name}: missing, though other files of that day are there")
    return days, kinds


def _names(days: Sequence[int], kinds: Sequence[str]) -> list[str]:
    return [f"day_{day}_{kind}" for day in days for kind in kinds]


def _open_day(directory: Path, day: int, kinds: Sequence[str]) -> _Day:
    labels_path, dense_path, sparse_path = (directory / name for name in _names([day], kinds))
    dense = _map(dense_path, "float32", len(DENSE_NAMES))
    sparse = (
        open_multi_hot(sparse_path, len(SPARSE_NAMES))
        if sparse_path.suffix == ".npz"
        else IdColumns.of_rows(_map(sparse_path, "int32", len(SPARSE_NAMES)))
    )
    labels = _load(labels_path).reshape(-1)
    if labels.dtype.kind not in "iuf":
        raise DatasetError(f"{labels_path}: holds {labels.dtype.name}; labels are numbers, 0 or 1")
    if not len(labels) == len(dense) == len(sparse.features[0]):
        raise DatasetError(
            f"{labels_path}: {len(labels)} rows, but {len(dense)} in its dense and "
            f"{len(sparse.features[0])} in its sparse file; make or copy the day again"
        )
    return _Day(labels, dense, sparse)


def _common_hotness(numbers: Sequence[int], days: Sequence[_Day]) -> tuple[int, ...]:
    hotness = days[0].sparse.hotness
    for number, day in zip(numbers, days, strict=True):
        for name, one, other in zip(SPARSE_NAMES, hotness, day.sparse.hotness, strict=True):
            if one != other:
                raise DatasetError(
                    f"day {numbers[0]} has {one} ids a row for {name}, but day {number} has {other}; all "
                    "days must have equally many"
                )
    return hotness


def _map(path: Path, dtype: str, columns: int) -> npt.NDArray[Any]:
    mapped = _load(path)
    if mapped.dtype.name != dtype or mapped.ndim != 2 or mapped.shape[1] != columns:  # noqa: PLR2004 - a table
        raise DatasetError(
            f"{path}: holds {mapped.dtype.name} {list(mapped.shape)}, not {dtype} [rows, {columns}]"
        )
    return mapped


def _load(path: Path) -> npt.NDArray[Any]:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be mapped: {error}; make or copy it again") from error


def _largest(days: Sequence[_Day]) -> list[int]:
    filled = [day.sparse.features for day in days if len(day.labels)]
    if not filled:
        raise DatasetError("the days hold no rows")
    return [max(0, *(int(day[index].max()) for day in filled)) + 1 for index in range(len(SPARSE_NAMES))]
