"""Shards on disk: .npy files that are filled as rows come, checksummed and flushed to the disk."""

from __future__ import annotations

import errno
import io
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
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
_KINDS = ("labels", "dense", "sparse")
_HEADER = 128  # bytes, whatever the number of rows: numpy fills up to 64
_PIECE = 1 << 20
_FLUSHED_AT_ONCE = 4  # files
_MOST_FLUSHED = 8  # files that are flushed or wait for it


class OpenShard:
    """The files of a shard that is being filled: rows go to their places as they come.

    The system's cache holds them; memory of our own for a whole shard would cost more than the writing, as
    its pages would have to be zeroed first.
    """

    def __init__(self, folder: Path, name: str, *, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self.rows = 0
        self._paths = {kind: folder / f"{name}.{kind}.npy" for kind in _KINDS}
        self._files = {kind: path.open("x+b", buffering=0) for kind, path in self._paths.items()}

    def put(self, parsed: Parsed, start: int, stop: int) -> None:
        """Append rows from `start` to `stop`; there is room for them."""
        _write_at(self._files["labels"], _HEADER + self.rows, parsed.labels[start:stop])
        _write_at(self._files["dense"], _HEADER + self.rows * 4 * _INTEGERS, parsed.dense[start:stop])
        for feature, numbers in enumerate(parsed.numbers):
            place = _HEADER + (feature * self.capacity + self.rows) * 4
            _write_at(self._files["sparse"], place, numbers[start:stop])
        self.rows += stop - start

    def finish_rows(self, disk: Disk) -> dict[str, ShardFile]:
        """Finish labels and integers; no file stays open, however many shards there are."""
        shapes: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
            "labels": (np.uint8, (self.rows,)),
            "dense": (np.float32, (self.rows, _INTEGERS)),
        }
        self._files["sparse"].close()
        return {kind: self._finish(disk, kind, *shape) for kind, shape in shapes.items()}

    def _finish(self, disk: Disk, kind: str, dtype: type[np.generic], shape: tuple[int, ...]) -> ShardFile:
        file, header = self._files[kind], _header(np.dtype(dtype), shape)
        _write_at(file, 0, np.frombuffer(header, np.uint8))
        crc, size, piece = 0, 0, np.empty(_PIECE, np.uint8)
        while count := os.preadv(file.fileno(), [piece.data], size):
            crc = isal_zlib.crc32(piece[:count].data, crc)
            size += count
        return disk.flushed(f"{self.name}.{kind}.npy", file, size, crc)

    def finish_numbers(self, disk: Disk, turn: Callable[[int, npt.NDArray[np.int32]], None]) -> ShardFile:
        """Finish the numbers, a feature at a time, each changed in place by `turn`.

        A shard that is not full moves its features together: never up, so none is overwritten unread.
        """
        file = self._files["sparse"] = self._paths["sparse"].open("r+b", buffering=0)
        header = _header(np.dtype(np.int32), (_FEATURES, self.rows))
        _write_at(file, 0, np.frombuffer(header, np.uint8))
        crc = isal_zlib.crc32(header)
        row = np.empty(self.rows, np.int32)
        for feature in range(_FEATURES):
            _read_at(file, _HEADER + feature * self.capacity * 4, row)
            turn(feature, row)
            _write_at(file, _HEADER + feature * self.rows * 4, row)
            crc = isal_zlib.crc32(row.view(np.uint8).data, crc)
        size = _HEADER + _FEATURES * self.rows * 4
        file.truncate(size)
        return disk.flushed(f"{self.name}.sparse.npy", file, size, crc)

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()


class Disk:
    """Makes shards; threads of its own flush their files through to the disk behind the work.

    A few files are flushed at once, which takes a disk hardly longer than one; `finish` waits for them all.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(_FLUSHED_AT_ONCE)
        self._flushing: deque[Future[None]] = deque()
        self._shards: list[OpenShard] = []

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """End the threads and close all files; only `finish` tells of the threads' errors."""
        self._pool.shutdown()
        for shard in self._shards:
            shard.close()

    def shard(self, name: str, *, capacity: int) -> OpenShard:
        """Make a shard without rows."""
        shard = OpenShard(self._folder, name, capacity=capacity)
        self._shards.append(shard)
        return shard

    def flushed(self, path: str, file: io.FileIO, size: int, crc: int) -> ShardFile:
        """Describe a file; it is flushed and closed behind the work."""
        self._flushing.append(self._pool.submit(_flush, file))
        if len(self._flushing) > _MOST_FLUSHED:  # what waits for the disk stays bounded
            self._flushing.popleft().result()
        return ShardFile(path=path, bytes=size, crc32=f"{crc:08x}")

    def finish(self) -> None:
        """Wait until all is on the disk; OSError when the disk refuses."""
        while self._flushing:
            self._flushing.popleft().result()


def _flush(file: io.FileIO) -> None:
    with file:
        os.fsync(file.fileno())


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    description = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, description)
    header = buffer.getvalue()
    if len(header) != _HEADER:
        raise AssertionError(f"the header of {shape} has {len(header)} bytes")
    return header


def _read_at(file: io.FileIO, place: int, array: npt.NDArray[Any]) -> None:
    data = array.view(np.uint8).data
    while data:
        count = os.preadv(file.fileno(), [data], place)
        if not count:
            raise OSError(errno.EIO, "the file has become shorter", str(file.name))
        data, place = data[count:], place + count


def _write_at(file: io.FileIO, place: int, array: npt.NDArray[Any]) -> None:
    data = array.reshape(-1).view(np.uint8).data
    while data:
        count = os.pwrite(file.fileno(), data, place)
        data, place = data[count:], place + count
