"""Shards on disk: rows gathered in memory, written as .npy files, checksummed and flushed to the disk."""

from __future__ import annotations

import errno
import io
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from isal import isal_zlib

from cloudrec.data.manifest import ShardFile

if TYPE_CHECKING:
    from collections.abc import Callable
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
        self._numbers = np.empty((_FEATURES, capacity), np.int32)

    def take(self, parsed: Parsed, start: int, stop: int) -> int:
        """Copy rows from `start` on, while there is room, to `stop` at most; return the end."""
        count = min(stop - start, len(self._labels) - self.rows)
        here, there = slice(self.rows, self.rows + count), slice(start, start + count)
        self._labels[here] = parsed.labels[there]
        self._dense[here] = parsed.dense[there]
        self._numbers[:, here] = parsed.numbers[:, there]
        self.rows += count
        return start + count

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
    def numbers(self) -> npt.NDArray[np.int32]:
        """[26, rows]."""
        return self._numbers[:, : self.rows]


def write_array(folder: Path, path: str, array: npt.NDArray[Any], *, finished: bool = True) -> ShardFile:
    """Write one .npy file, through to the disk unless it is not finished."""
    header = _header(array)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    # Not emptied first when it is there: an array of its shape is, and its pages need not be made again.
    flags = os.O_WRONLY | os.O_CREAT
    with os.fdopen(os.open(folder / path, flags, 0o666), "wb", buffering=0) as file:
        file.write(header)
        _write_all(file, data)
        if not finished:
            return ShardFile(path=path, bytes=len(header) + len(data), crc32="")
        os.fsync(file.fileno())
    crc = isal_zlib.crc32(data, isal_zlib.crc32(header))
    return ShardFile(path=path, bytes=len(header) + len(data), crc32=f"{crc:08x}")


def turn_array(
    folder: Path, path: str, width: int, turn: Callable[[int, npt.NDArray[np.int32]], None]
) -> ShardFile:
    """Change the [26, width] numbers that `write_array` wrote, and write them through to the disk.

    One feature at a time, in place: its memory and its pages in the system's cache are used again.
    """
    row = np.empty(width, np.int32)
    data = row.view(np.uint8).data
    header = _header(np.broadcast_to(row, (_FEATURES, width)))
    crc = isal_zlib.crc32(header)
    with (folder / path).open("r+b", buffering=0) as file:
        for feature in range(_FEATURES):
            file.seek(len(header) + feature * len(data))
            _read_all(file, data)
            turn(feature, row)
            file.seek(len(header) + feature * len(data))
            _write_all(file, data)
            crc = isal_zlib.crc32(data, crc)
        os.fsync(file.fileno())
    return ShardFile(path=path, bytes=len(header) + _FEATURES * len(data), crc32=f"{crc:08x}")


def _header(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    description = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(buffer, description)
    return buffer.getvalue()


def _read_all(file: io.FileIO, data: memoryview) -> None:
    while data:
        count = file.readinto(data)
        if not count:
            raise OSError(errno.EIO, "the file has become shorter", str(file.name))
        data = data[count:]


def _write_all(file: io.FileIO, data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]  # the kernel takes at most 2 GiB at a time
