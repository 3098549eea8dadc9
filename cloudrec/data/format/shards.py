"""Shards on disk: .npy files that are filled row by row, checksummed and flushed to the disk."""

from __future__ import annotations

import errno
import io
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from isal import isal_zlib

from cloudrec.data.format.manifest import ShardFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from cloudrec.data.format.tsv import Parsed

_FEATURES = 26
_INTEGERS = 13
_KINDS = ("labels", "dense", "sparse")
_HEADER = 128  # bytes, for every number of rows: numpy pads headers to multiples of 64
_PIECE = 1 << 20
_FLUSHED_AT_ONCE = 4  # files that are flushed in parallel
_MOST_FLUSHED = 8  # files that are being flushed or wait for it


class OpenShard:
    """The files of a shard that is being filled; rows are written to their final places.

    The page cache holds them. A buffer for a whole shard would cost more than the writes, because the kernel
    would have to zero its pages first.
    """

    def __init__(self, folder: Path, name: str, *, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self.rows = 0
        self._paths = {kind: folder / f"{name}.{kind}.npy" for kind in _KINDS}
        self._files = {kind: path.open("x+b", buffering=0) for kind, path in self._paths.items()}

    def put(self, parsed: Parsed, start: int, stop: int) -> None:
        """Append the rows from `start` to `stop`; the shard must have space for them."""
        _write_at(self._files["labels"], _HEADER + self.rows, parsed.labels[start:stop])
        _write_at(self._files["dense"], _HEADER + self.rows * 4 * _INTEGERS, parsed.dense[start:stop])
        for feature, numbers in enumerate(parsed.numbers):
            place = _HEADER + (feature * self.capacity + self.rows) * 4
            _write_at(self._files["sparse"], place, numbers[start:stop])
        self.rows += stop - start

    def finish_rows(self, disk: Disk) -> dict[str, ShardFile]:
        """Finish labels and integers, and close all files, since a dataset may have many shards."""
        shapes: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
            "labels": (np.uint8, (self.rows,)),
            "dense": (np.float32, (self.rows, _INTEGERS)),
        }
        self._files["sparse"].close()
        return {kind: self._finish(disk, kind, *shape) for kind, shape in shapes.items()}

    def _finish(self, disk: Disk, kind: str, dtype: type[np.generic], shape: tuple[int, ...]) -> ShardFile:
        file, header = self._files[kind], header_of(np.dtype(dtype), shape)
        _write_at(file, 0, np.frombuffer(header, np.uint8))
        crc, size, piece = 0, 0, np.empty(_PIECE, np.uint8)
        while count := os.preadv(file.fileno(), [piece.data], size):
            crc = isal_zlib.crc32(piece[:count].data, crc)
            size += count
        return disk.flushed(f"{self.name}.{kind}.npy", file, size, crc)

    def finish_numbers(self, disk: Disk, turn: Callable[[int, npt.NDArray[np.int32]], None]) -> ShardFile:
        """Finish the categories, feature by feature; `turn` converts each feature's numbers to ids, in place.

        In a shard that is not full, features are moved to lower positions, so none is overwritten unread.
        """
        file = self._files["sparse"] = self._paths["sparse"].open("r+b", buffering=0)
        header = header_of(np.dtype(np.int32), (_FEATURES, self.rows))
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
    """Creates shards, and flushes their files to the disk in background threads.

    Several files are flushed in parallel, which takes a disk hardly longer than one; `finish` waits for all.
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
        """End the threads and close all files; only `finish` reports the threads' errors."""
        self._pool.shutdown()
        for shard in self._shards:
            shard.close()

    def shard(self, name: str, *, capacity: int) -> OpenShard:
        """Create an empty shard."""
        shard = OpenShard(self._folder, name, capacity=capacity)
        self._shards.append(shard)
        return shard

    def flushed(self, path: str, file: io.FileIO, size: int, crc: int) -> ShardFile:
        """Return the description of a file, and flush and close it in the background."""
        self._flushing.append(self._pool.submit(_flush, file))
        if len(self._flushing) > _MOST_FLUSHED:  # bounds the data that waits for the disk
            self._flushing.popleft().result()
        return ShardFile(path=path, bytes=size, crc32=f"{crc:08x}")

    def write(self, path: str, *parts: memoryview) -> ShardFile:
        """Write a whole file; the parts are its bytes."""
        file, crc, size = (self._folder / path).open("xb", buffering=0), 0, 0
        for part in parts:
            _write_at(file, size, np.frombuffer(part, np.uint8))
            crc, size = isal_zlib.crc32(part, crc), size + part.nbytes
        return self.flushed(path, file, size, crc)

    def finish(self) -> None:
        """Wait until all files are on the disk; OSError if a flush fails."""
        while self._flushing:
            self._flushing.popleft().result()


def _flush(file: io.FileIO) -> None:
    with file:
        os.fsync(file.fileno())


def header_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of an .npy file; its length is the same for every shape."""
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
