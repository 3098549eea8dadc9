"""The stream of state from the trainer's memory to a file; numpy only, so that a forked child can send it.

A frame is a head (JSON) and its bytes in chunks. A group's frames are its row numbers, unless it holds all
rows, then one block for each of its tensors. The last frame of a stream is empty.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from trainer.checkpoint.format.coding import encode_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor

CHUNK_BYTES = 1 << 20
_COMPARED = 1 << 19  # stamps, by one thread at a time
_COPIED_ROWS = 1 << 14  # by one thread at a time
_END = b"\0\0\0\0"

Array: TypeAlias = Any  # numpy's, of any type
Allocate: TypeAlias = "Callable[[tuple[int, ...], Any], Array]"  # an array of a shape and type
Chunk: TypeAlias = "bytes | bytearray | memoryview"
Frame: TypeAlias = "tuple[dict[str, Any], Iterator[Chunk]]"


class StreamError(Exception):
    """A stream ended before its last frame: the process that sent it died."""


@dataclass(frozen=True, slots=True)
class TensorBlock:
    """A piece of a named tensor in this process's memory."""

    name: str
    dtype: str
    shape: tuple[int, ...]  # of the global tensor
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]  # of the piece
    array: Array  # the piece, or only the group's rows of it

    @property
    def row_bytes(self) -> int:
        """Bytes of a row; of an element for tensors of fewer than two dimensions."""
        return int(np.prod(self.sizes[1:], dtype=np.int64)) * int(self.array.itemsize)


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks that share their rows (the first dimension): all of them, or a selection."""

    blocks: tuple[TensorBlock, ...]
    rows: Array | None = None  # int64, sorted; None: all
    picked: bool = False  # the blocks' arrays hold the selected rows only

    def copied(self, pool: Executor, allocate: Allocate = np.empty) -> Group:
        """Return a copy in separate memory, of the selected rows only."""
        if self.picked:
            return self
        copies = tuple(replace(each, array=_copy(each, self.rows, pool, allocate)) for each in self.blocks)
        return Group(copies, self.rows, picked=self.rows is not None)


def frames(groups: Sequence[Group]) -> Iterator[Frame]:
    """Yield the frames of groups; consume each frame's chunks before the next frame."""
    for group in groups:
        rows = group.rows
        if rows is not None:
            coding, data = encode_rows(rows, group.blocks[0].sizes[0])
            yield {"rows": coding, "count": len(rows), "length": len(data)}, iter([data])
        for block in group.blocks:
            head = {
                "name": block.name,
                "dtype": block.dtype,
                "shape": block.shape,
                "offsets": block.offsets,
                "sizes": block.sizes,
                "some": rows is not None,
                "row_bytes": block.row_bytes,
                "length": block.array.nbytes if rows is None else len(rows) * block.row_bytes,
            }
            yield head, _chunks(block, None if group.picked else rows)


def touched_rows(stamps: Array, after: int, pool: Executor) -> Array:
    """Return the numbers of the rows stamped later than the interval `after`, int64."""

    def find(start: int) -> Array:
        return np.flatnonzero(stamps[start : start + _COMPARED] > after) + start

    found = pool.map(find, range(0, len(stamps), _COMPARED))
    return np.concatenate([np.empty(0, dtype=np.int64), *found])


def _copy(block: TensorBlock, rows: Array | None, pool: Executor, allocate: Allocate) -> Array:
    if rows is None:
        whole = allocate(block.array.shape, block.array.dtype)
        np.copyto(whole, block.array)
        return whole
    copy = allocate((len(rows), *block.array.shape[1:]), block.array.dtype)
    ranges = [slice(start, start + _COPIED_ROWS) for start in range(0, len(rows), _COPIED_ROWS)]
    # "clip" writes straight to its place, where "raise" would need a copy first
    list(pool.map(lambda at: np.take(block.array, rows[at], axis=0, out=copy[at], mode="clip"), ranges))
    return copy


def send(sent: Iterable[Frame], descriptor: int) -> None:
    """Write frames to a pipe."""
    for head, chunks in sent:
        text = json.dumps(head).encode()
        _write(descriptor, len(text).to_bytes(4, "little") + text)
        for chunk in chunks:
            _write(descriptor, chunk)
    _write(descriptor, _END)


def receive(descriptor: int) -> Iterator[Frame]:
    """Yield frames read from a pipe; StreamError if it ends before the last frame."""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while True:
            size = int.from_bytes(_exactly(file, 4), "little")
            if not size:
                return
            head = json.loads(_exactly(file, size))  # noqa: TID251 - of its parent process
            yield head, _received(file, head["length"], head.get("row_bytes", 1))


def _chunks(block: TensorBlock, rows: Array | None) -> Iterator[Chunk]:
    array, step = block.array, max(CHUNK_BYTES // max(block.row_bytes, 1), 1)
    if array.nbytes == 0:
        return
    if rows is None or len(rows) == len(array):
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, len(flat), step * block.row_bytes):
            yield flat[start : start + step * block.row_bytes].data
        return
    for start in range(0, len(rows), step):
        taken = np.take(array, rows[start : start + step], axis=0)
        yield taken.reshape(-1).view(np.uint8).data


def _received(file: Any, length: int, row_bytes: int) -> Iterator[Chunk]:  # noqa: ANN401 - a raw file
    step = max(CHUNK_BYTES // max(row_bytes, 1), 1) * max(row_bytes, 1)  # quantising needs whole rows
    for start in range(0, length, step):
        yield _exactly(file, min(step, length - start))


def _exactly(file: Any, size: int) -> bytearray:  # noqa: ANN401 - a raw file
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = file.readinto(view[done:])
        if not count:
            raise StreamError("the process that read the trainer's memory died")
        done += count
    return data


def _write(descriptor: int, data: Chunk) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
