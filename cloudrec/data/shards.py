"""Shards on disk: rows gathered in memory, written as .npy files, checksummed and flushed to the disk."""

from __future__ import annotations

import errno
import io
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

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
_FLUSHED_AT_ONCE = 4  # files
_MOST_FLUSHED = 8  # files that are flushed or wait for it


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


class Disk:
    """Writes arrays as .npy files; threads of its own flush them through to the disk behind the work.

    A few files are flushed at once, which takes a disk hardly longer than one; `finish` waits for them all.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(_FLUSHED_AT_ONCE)
        self._flushing: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """End the threads; only `finish` tells of their errors."""
        self._pool.shutdown()

    def finish(self) -> None:
        """Wait until all is on the disk; OSError when the disk refuses."""
        while self._flushing:
            self._flushing.popleft().result()

    def write(self, path: str, array: npt.NDArray[Any], *, finished: bool = True) -> ShardFile:
        """Write one .npy file; it need not reach the disk when it is not finished."""
        header = _header(array.dtype, array.shape)
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        with ExitStack() as stack:
            file = stack.enter_context((self._folder / path).open("wb", buffering=0))
            file.write(header)
            _write_all(file, data)
            if finished:
                stack.pop_all()
                self._flush(file)
        crc = isal_zlib.crc32(data, isal_zlib.crc32(header)) if finished else 0
        return ShardFile(path=path, bytes=len(header) + len(data), crc32=f"{crc:08x}")

    def turn(self, path: str, width: int, turned: Callable[[int, npt.NDArray[np.int32]], None]) -> ShardFile:
        """Change the [26, width] numbers of a file that was not finished, and finish it.

        One feature at a time, in place: its memory and its pages in the system's cache are used again.
        """
        row = np.empty(width, np.int32)
        data = row.view(np.uint8).data
        header = _header(row.dtype, (_FEATURES, width))
        crc = isal_zlib.crc32(header)
        with ExitStack() as stack:
            file = stack.enter_context((self._folder / path).open("r+b", buffering=0))
            for feature in range(_FEATURES):
                file.seek(len(header) + feature * len(data))
                _read_all(file, data)
                turned(feature, row)
                file.seek(len(header) + feature * len(data))
                _write_all(file, data)
                crc = isal_zlib.crc32(data, crc)
            stack.pop_all()
            self._flush(file)
        return ShardFile(path=path, bytes=len(header) + _FEATURES * len(data), crc32=f"{crc:08x}")

    def _flush(self, file: io.FileIO) -> None:
        self._flushing.append(self._pool.submit(_flush, file))
        if len(self._flushing) > _MOST_FLUSHED:  # what waits for the disk stays bounded
            self._flushing.popleft().result()


def _flush(file: io.FileIO) -> None:
    with file:
        os.fsync(file.fileno())


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    description = {"descr": dtype.str, "fortran_order": False, "shape": shape}
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
