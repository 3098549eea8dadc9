"""The checks of one shard's files: headers always, every byte and value on request."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from isal import isal_zlib
from numpy.lib import format as npy

from trainer.base.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    from trainer.data.formats.manifest import ShardEntry
    from trainer.data.lists import ListArrays

NPY_HEADER = 128  # bytes of a file without content: numpy pads headers, and ours are short
_AGAIN = "prepare the dataset again, or copy it again"


class Arrays(Protocol):
    """One shard's arrays."""

    @property
    def labels(self) -> npt.NDArray[Any]: ...  # noqa: D102 - see ShardArrays
    @property
    def dense(self) -> npt.NDArray[np.float32]: ...  # noqa: D102 - see ShardArrays
    @property
    def sparse(self) -> npt.NDArray[np.int32]: ...  # noqa: D102 - see ShardArrays
    @property
    def weights(self) -> npt.NDArray[np.float32] | None: ...  # noqa: D102 - see ShardArrays


def check_header(path: Path, *, dtype: np.dtype[Any], shape: tuple[int, ...], size: int) -> None:
    """Refuse a file whose size or npy header differs from the manifest."""
    try:
        found_size = path.stat().st_size
        with path.open("rb") as file:
            found = _read_header(file)
            data_start = file.tell()
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: missing, though dataset.json names it; {_AGAIN}") from error
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: not a readable npy file: {error}; {_AGAIN}") from error
    if found_size != size:
        raise DatasetError(f"{path}: {found_size} bytes, dataset.json says {size}; {_AGAIN}")
    if found != (expected := (shape, False, dtype)):
        raise DatasetError(f"{path}: its header is {_describe(*found)}, not {_describe(*expected)}; {_AGAIN}")
    needed = data_start + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if found_size != needed:
        raise DatasetError(f"{path}: {found_size} bytes, but its header needs {needed}; {_AGAIN}")


def verify_shard(
    directory: Path,
    shard: ShardEntry,
    arrays: Arrays,
    limits: Mapping[str, int],
) -> None:
    """Read a shard and check its checksums, then that ids and dense values are in range."""
    for entry in shard.files.values():
        verify_crc32(directory / entry.path, entry.crc32)
    if shard.rows == 0:
        return
    if limits:
        _check_ids(directory / shard.files["sparse"].path, arrays.sparse, limits)
    path = directory / shard.files["dense"].path
    # The sum is finite if all values are: one pass, and no array of flags. In float64 it cannot overflow.
    with np.errstate(invalid="ignore"):  # infinities of both signs add up to NaN
        total = arrays.dense.sum(dtype=np.float64)
    if not np.isfinite(total):
        row = int(np.argmin(np.isfinite(arrays.dense).all(axis=1)))
        raise DatasetError(f"{path}: row {row} holds {arrays.dense[row].tolist()}, not finite; {_AGAIN}")


def verify_answers(directory: Path, shard: ShardEntry, arrays: Arrays, may_lack: tuple[bool, ...]) -> None:
    """Check that labels are 0 or 1, or missing where they may be, and that weights are finite and from 0."""
    if shard.rows == 0:
        return
    path = directory / shard.files["labels"].path
    for labels, lacks in zip(arrays.labels.reshape(shard.rows, -1).T, may_lack or (False,), strict=True):
        least = -1 if lacks else 0
        if labels.min() < least or labels.max() > 1:
            value = labels[(labels < least) | (labels > 1)].astype(np.uint8).max()
            raise DatasetError(f"{path}: holds the label {value}; labels are 0 or 1; {_AGAIN}")
    if arrays.weights is not None and not bool((np.isfinite(arrays.weights) & (arrays.weights >= 0)).all()):
        path = directory / shard.files["weights"].path
        raise DatasetError(f"{path}: holds a weight that is no finite number from 0; {_AGAIN}")


def verify_lists(directory: Path, shard: ShardEntry, lists: ListArrays, limits: Mapping[str, int]) -> None:
    """Check that offsets ascend from 0 to the number of ids, and that each feature's ids are in range.

    The checksums are those of `verify_shard`.
    """
    path, ends = directory / shard.files["offsets"].path, lists.offsets.reshape(-1)
    if ends[0] != 0 or ends[-1] != len(lists.values) or bool((np.diff(ends) < 0).any()):
        raise DatasetError(f"{path}: its offsets do not ascend from 0 to {len(lists.values)}; {_AGAIN}")
    if lists.weights is not None and not bool(np.isfinite(lists.weights).all()):
        path = directory / shard.files["value_weights"].path
        raise DatasetError(f"{path}: holds a weight that is not finite; {_AGAIN}")
    for (feature, limit), row in zip(limits.items(), lists.offsets, strict=True):
        ids = lists.values[row[0] : row[-1]]
        if len(ids):
            where = directory / shard.files["values"].path
            _check_ids(where, ids[None], {feature: limit})


def check_size(path: Path, expected: int) -> None:
    """Refuse a file that is missing, or whose size differs from the manifest."""
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: missing, though dataset.json names it; {_AGAIN}") from error
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error}; {_AGAIN}") from error
    if size != expected:
        raise DatasetError(f"{path}: {size} bytes, dataset.json says {expected}; {_AGAIN}")


def verify_crc32(path: Path, expected: int) -> None:
    """Read a whole file; refuse it if its checksum differs from the manifest."""
    try:
        found = _crc32(path)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}; {_AGAIN}") from error
    if found != expected:
        raise DatasetError(f"{path}: its crc32 is {found:08x}, dataset.json says {expected:08x}; {_AGAIN}")


def _crc32(path: Path) -> int:
    if not path.stat().st_size:  # as of a vocabulary without values; an empty file cannot be mapped
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return isal_zlib.crc32(mapped)


def _check_ids(path: Path, sparse: npt.NDArray[np.int32], limits: Mapping[str, int]) -> None:
    features, most = list(limits), np.array(list(limits.values()), dtype=np.int64)
    low, high = sparse.min(axis=1), sparse.max(axis=1)
    for bad in np.flatnonzero((low < 0) | (high >= most)):
        value = int(low[bad]) if low[bad] < 0 else int(high[bad])
        raise DatasetError(
            f"{path}: {features[bad]} holds the id {value}; its table has {most[bad]} rows, "
            f"so ids go from 0 to {most[bad] - 1}; {_AGAIN}"
        )


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:  # noqa: ANN401 - as numpy says
    version = npy.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"npy version {version}, not (1, 0)")
    return npy.read_array_header_1_0(file)


def _describe(shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]) -> str:  # noqa: FBT001 - numpy's order
    return f"{dtype.name} {list(shape)}{' in Fortran order' if fortran else ''}"
