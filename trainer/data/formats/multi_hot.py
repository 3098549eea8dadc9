"""MLPerf's multi-hot ids: `day_N_sparse_multi_hot.npz`, memory-mapped inside the archive.

Members "0" to "25", one per feature: int32 [rows, hotness]; every row of a feature has the same number of
ids. numpy.savez stores members uncompressed, so that they can be mapped. An archive of numpy.savez_compressed
could only be read whole, and is refused.
"""

from __future__ import annotations

import struct
import zipfile
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.lib import format as npy

from trainer.base.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

_LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip's member: the lengths of its name and its extra field


class IdColumns:
    """All features' ids as one array [sum of hotness, rows], read piece by piece as it is sliced."""

    def __init__(
        self, features: Sequence[npt.NDArray[np.int32]], *, rows: npt.NDArray[np.int32] | None = None
    ) -> None:
        """Each feature's ids [rows, hotness]; `rows` [rows, ids] has them all if they are stored so."""
        self.features = tuple(features)
        self.rows = rows
        self.hotness = tuple(ids.shape[1] for ids in features)

    @classmethod
    def of_rows(cls, ids: npt.NDArray[np.int32]) -> Self:
        """Return features of one id each, stored row by row [rows, features]."""
        return cls(np.split(ids, ids.shape[1], axis=1), rows=ids)

    def first(self, rows: int) -> Self:
        """Return the first rows alone."""
        whole = None if self.rows is None else self.rows[:rows]
        return type(self)([ids[:rows] for ids in self.features], rows=whole)

    def __getitem__(self, key: tuple[slice, slice]) -> npt.NDArray[np.int32]:
        """Return a copy of some rows; the columns of a feature are adjacent."""
        columns, rows = key
        return np.concatenate([ids[rows].T for ids in self.features])[columns]


def open_multi_hot(path: Path, num_features: int) -> IdColumns:
    """Map an archive.

    Raises:
        DatasetError: it is damaged or compressed, or a member has a wrong type or shape.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            names = [f"{index}.npy" for index in range(num_features)]
            found = set(archive.namelist())
            if missing := [name for name in names if name not in found]:
                raise DatasetError(
                    f"{path}: lacks the array {missing[0].removesuffix('.npy')!r} ({len(missing)} are "
                    f"missing); it needs one a feature, '0' to '{num_features - 1}'"
                )
            features = [_map_member(path, file, archive.getinfo(name)) for name in names]
    except (OSError, ValueError, struct.error, zipfile.BadZipFile) as error:
        raise DatasetError(f"{path}: cannot be mapped: {error}; make or copy it again") from error
    for index, ids in enumerate(features):
        if len(ids) != len(features[0]):
            raise DatasetError(
                f"{path}: the array '{index}' has {len(ids)} rows, but '0' has {len(features[0])}; make or "
                "copy it again"
            )
    return IdColumns(features)


def _map_member(path: Path, file: Any, member: zipfile.ZipInfo) -> npt.NDArray[np.int32]:  # noqa: ANN401 - as numpy says
    name = member.filename.removesuffix(".npy")
    if member.compress_type != zipfile.ZIP_STORED:
        raise DatasetError(
            f"{path}: the array {name!r} is compressed, so it cannot be mapped; write the archive with "
            "numpy.savez"
        )
    file.seek(member.header_offset)
    file.seek(sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))), 1)
    version = npy.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"the array {name!r} has npy version {version}, not (1, 0)")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    if dtype != np.dtype("<i4") or len(shape) != 2 or fortran or not shape[1]:  # noqa: PLR2004 - a table
        raise DatasetError(
            f"{path}: the array {name!r} holds {dtype.name} {list(shape)}, not int32 [rows, ids a row]"
        )
    if file.tell() + dtype.itemsize * shape[0] * shape[1] > path.stat().st_size:
        raise DatasetError(f"{path}: the array {name!r} is cut off; copy the archive again")
    if not shape[0]:
        return np.empty(shape, dtype=np.int32)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", offset=file.tell(), shape=shape))
