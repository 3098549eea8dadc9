"""Shards on disk: rows gathered in memory, written as .npy files, checksummed and flushed to the disk."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from isal import isal_zlib

from cloudrec.data.manifest import ShardFile

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from cloudrec.data.tsv import Parsed

_FEATURES = 26
_INTEGERS = 13


class ShardRows:
    """Room for the rows of one shard."""

    def __init__(self, *, capacity: int) -> None:
        self.rows = 0
        self._labels = np.empty(capacity, np.uint8)
        self._dense = np.empty((capacity, _INTEGERS), np.float32)
        self._codes = np.empty((_FEATURES, capacity), np.uint32)
        self._missing = np.empty((_FEATURES, capacity), np.bool_)

    def take(self, parsed: Parsed, chosen: npt.NDArray[np.intp] | None, start: int) -> int:
        """Copy the chosen rows (all if None) from number `start` on, while there is room; return the end."""
        rows = len(parsed.labels) if chosen is None else len(chosen)
        count = min(rows - start, len(self._labels) - self.rows)
        here, stop = slice(self.rows, self.rows + count), start + count
        pairs: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = [
            (parsed.labels, self._labels[here]),
            (parsed.dense, self._dense[here]),
        ]
        pairs += zip(parsed.codes, self._codes[:, here], strict=True)
        pairs += zip(parsed.missing, self._missing[:, here], strict=True)
        for source, room in pairs:
            if chosen is None:
                room[...] = source[start:stop]
            else:  # "clip" (the rows exist) spares a check of each number and a buffer for the result
                np.take(source, chosen[start:stop], axis=0, out=room, mode="clip")
        self.rows += count
        return stop

    @property
    def is_full(self) -> bool:
        """Whether there is no room left."""
        return self.rows == len(self._labels)

    @property
    def labels(self) -> npt.NDArray[np.uint8]:
        """[rows]."""
        return self._labels[: self.rows]

    @property
    def dense(self) -> npt.NDArray[np.float32]:
        """[rows, 13]."""
        return self._dense[: self.rows]

    @property
    def codes(self) -> npt.NDArray[np.uint32]:
        """[26, rows]."""
        return self._codes[:, : self.rows]

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """[26, rows]."""
        return self._missing[:, : self.rows]


def write_array(folder: Path, path: str, array: npt.NDArray[Any]) -> ShardFile:
    """Write one .npy file through to the disk."""
    header = _header(array)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    with (folder / path).open("wb", buffering=0) as file:
        file.write(header)
        _write_all(file, data)
        os.fsync(file.fileno())
    crc = isal_zlib.crc32(data, isal_zlib.crc32(header))
    return ShardFile(path=path, bytes=len(header) + len(data), crc32=f"{crc:08x}")


def _header(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    description = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(buffer, description)
    return buffer.getvalue()


def _write_all(file: io.FileIO, data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]  # the kernel takes at most 2 GiB at a time
