"""The tables of a device as of a cut, streamed in chunks while training changes them.

A chunk of rows is gathered on the device into one of two buffers, copied to one of two pinned host buffers,
and sent while the next one is copied. So a snapshot takes a fixed amount of memory for tables of any size.

Training continues meanwhile. Rows that it is about to change, and that were not yet gathered, are first
copied to other memory of the device, from where the chunk takes them (copy on write). The row stamps say
which these are without a further byte per row: all rows of the snapshot have a stamp up to the cut, and a row
that was touched since has a later one. The copies take a limited amount of memory. Once it is used up,
training waits until the stream has passed some of them; that time is part of the save's stall.

The order between both: training waits on the device for what is queued here, so a row changes only after a
chunk that has it was gathered. A chunk waits for the copies of rows, since both are in one queue. It may read
rows that training is changing at that moment; those were copied, and the copy replaces what was read.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from trainer.base.entry import State, TensorShard
    from trainer.base.row_stamps import Intervals, RowStamps, Since
    from trainer.checkpoint.format.frames import Array, Chunk, Frame
    from trainer.checkpoint.save.device import QueuedWork, SideDevice
    from trainer.checkpoint.save.limits import StreamLimits
    from trainer.checkpoint.save.touched_bits import Touched, TouchedBits

_LOG = logging.getLogger(__name__)
_MOST_ROWS = 1 << 20  # of a chunk: their numbers take 8 bytes each
_PIECE_BYTES = 1 << 20  # copied rows are freed by such pieces
_MOST_PIECES = 64  # of a tensor, smaller than half of one, until they are joined


class StreamClosedError(Exception):
    """The stream was closed before its end."""


@dataclass(frozen=True, slots=True)
class _Copied:
    """Rows as they were at the cut."""

    rows: Array  # int64, sorted
    values: Tensor


@dataclass(slots=True)
class _Cursor:
    """A tensor, and how far it is gathered."""

    name: str
    shape: tuple[int, ...]
    shard: TensorShard
    next_row: int = 0
    copied: list[_Copied] = field(default_factory=list)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self.shard.tensor.shape[1:])

    @property
    def row_bytes(self) -> int:
        return prod(self.row_shape) * self.shard.tensor.element_size()

    def head(self, rows: int, *, some: bool) -> dict[str, Any]:
        """Return the head of its frame."""
        return {
            "name": self.name,
            "dtype": str(self.shard.tensor.dtype).removeprefix("torch."),
            "shape": self.shape,
            "offsets": tuple(self.shard.offsets),
            "sizes": tuple(self.shard.tensor.shape),
            "some": some,
            "row_bytes": self.row_bytes,
            "length": rows * self.row_bytes,
        }

    def patches(self, rows: slice | Array) -> list[tuple[Array, Tensor]]:
        """Return the places in a chunk of these rows whose values were copied, and the values."""
        found = []
        first, last = (rows.start, rows.stop - 1) if isinstance(rows, slice) else (rows[0], rows[-1])
        for each in self.copied:
            low, high = np.searchsorted(each.rows, [first, last + 1])
            if high > low:
                own = each.rows[low:high]
                places = own - first if isinstance(rows, slice) else np.searchsorted(rows, own)
                found.append((places, each.values[int(low) : int(high)]))
        return found

    def move(self, next_row: int) -> int:
        """Note that all rows before this one are gathered; return the bytes that are freed."""
        self.next_row = next_row
        done = [each for each in self.copied if each.rows[-1] < next_row]
        self.copied = [each for each in self.copied if each.rows[-1] >= next_row]
        return sum(each.values.nbytes for each in done)


@dataclass(frozen=True, slots=True)
class _TablePart:
    """The tensors of a table's piece, which share its rows."""

    stamps: RowStamps
    cursors: tuple[_Cursor, ...]
    touched: TouchedBits | None  # None: all rows
    after: int  # its rows are stamped later; -1: all rows
    cut: int  # and not later than that

    @property
    def rows(self) -> int:
        return len(self.stamps.values)

    def chunks(self, most: int) -> Iterator[slice | Array]:
        """Yield the rows to send, at most so many at a time."""
        if self.touched is not None:
            yield from self.touched.chunks(most)
            return
        for start in range(0, self.rows, most):
            yield slice(start, min(start + most, self.rows))


@dataclass(frozen=True, slots=True)
class _ChunkBuffers:
    on_device: Tensor
    on_host: Tensor


@dataclass(frozen=True, slots=True)
class _Issued:
    done: QueuedWork
    data: Tensor


class TableStream:
    """The rows of a device's tables as of now.

    Call `open` before training continues, and `close` at the end.
    """

    def __init__(self, parts: Sequence[_TablePart], device: SideDevice, *, limits: StreamLimits) -> None:
        """See `stream_of`."""
        self.stall_s = 0.0  # that training has waited for copies of rows
        self._parts = parts
        self._device = device
        self._limits = limits
        self._by_stamps: dict[int, list[_TablePart]] = {}
        self._intervals: dict[int, Intervals] = {}
        for part in parts:
            self._by_stamps.setdefault(id(part.stamps.whole), []).append(part)
            self._intervals[id(part.stamps.intervals)] = part.stamps.intervals
        self._buffers: tuple[_ChunkBuffers, ...] = ()
        self._copied_bytes = 0
        self._moves = 0
        self._is_closed = False
        self._changed = threading.Condition()
        device.follow_training()

    def open(self) -> None:
        """Begin to copy rows before they change."""
        for intervals in self._intervals.values():
            intervals.watcher = self.copy_before_change

    def close(self) -> None:
        """Free all memory; what was not sent by now is never sent."""
        with self._changed:
            self._is_closed = True
            for intervals in self._intervals.values():
                if intervals.watcher == self.copy_before_change:
                    intervals.watcher = None
            for part in self._parts:
                for cursor in part.cursors:
                    cursor.copied = []
            self._copied_bytes = 0
            self._buffers = ()
            self._changed.notify_all()

    def frames(self) -> Iterator[Frame]:
        """Yield the frames; consume each chunk before the next one, whose bytes may take its place.

        Raises:
            StreamClosedError: it was closed from elsewhere.
        """
        for part in self._parts:
            count = part.rows if part.touched is None else len(part.touched)
            if part.touched is not None:
                coding, data = part.touched.encoded()
                yield {"rows": coding, "count": count, "length": len(data)}, iter([data])
            for cursor in part.cursors:
                head = cursor.head(count, some=part.touched is not None)
                yield head, self._chunks(part, cursor)
        self.close()

    def _chunks(self, part: _TablePart, cursor: _Cursor) -> Iterator[Chunk]:
        most = min(max(self._limits.chunk // max(cursor.row_bytes, 1), 1), _MOST_ROWS)
        size = most * cursor.row_bytes
        before: _Issued | None = None
        for number, rows in enumerate(part.chunks(most)):
            issued = self._issue(cursor, rows, self._buffer(number % 2, size))
            if before is not None:
                yield _received(before)
            before = issued
        if before is not None:
            yield _received(before)
        with self._changed:
            self._move(cursor, part.rows)

    def _buffer(self, number: int, size: int) -> _ChunkBuffers:
        """Return one of the two buffers, for at least so many bytes."""
        if not self._buffers or len(self._buffers[0].on_host) < size:
            size = max(size, min(self._limits.chunk, self._largest()))
            self._buffers = tuple(
                _ChunkBuffers(self._device.scratch(size), self._device.host_buffer(size)) for _ in range(2)
            )
        return self._buffers[number]

    def _largest(self) -> int:
        """Return the bytes of the largest tensor."""
        return max(each.shard.tensor.nbytes for part in self._parts for each in part.cursors)

    def _issue(self, cursor: _Cursor, rows: slice | Array, buffers: _ChunkBuffers) -> _Issued:
        """Queue the gathering of rows, and their copy to the host."""
        tensor = cursor.shard.tensor.detach()
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        size = count * cursor.row_bytes
        with self._changed:
            if self._is_closed:
                raise StreamClosedError
            patches = cursor.patches(rows)

            def work() -> None:
                raw = buffers.on_device[:size]
                gathered = raw.view(tensor.dtype).view(count, *cursor.row_shape)
                if isinstance(rows, slice):
                    gathered.copy_(tensor[rows])
                else:
                    numbers = torch.from_numpy(rows).to(tensor.device)
                    torch.index_select(tensor, 0, numbers, out=gathered)
                for places, values in patches:
                    gathered.index_copy_(0, torch.from_numpy(places).to(tensor.device), values)
                buffers.on_host[:size].copy_(raw, non_blocking=True)

            done = self._device.enqueue(work)
            self._move(cursor, rows.stop if isinstance(rows, slice) else int(rows[-1]) + 1)
        return _Issued(done, buffers.on_host[:size])

    def _move(self, cursor: _Cursor, next_row: int) -> None:
        self._copied_bytes -= cursor.move(next_row)
        self._moves += 1
        self._changed.notify_all()

    @torch.no_grad()
    def copy_before_change(self, stamps: Tensor, rows: Tensor) -> None:
        """Copy the rows that were not changed since the cut, and not gathered; the Intervals' watcher."""
        parts = self._by_stamps.get(id(stamps))
        if parts is None:
            return
        started = time.perf_counter()
        with self._changed:
            if self._is_closed:
                return
            self._device.follow_training()
            picked, numbers = self._device.ask(lambda: _first_changed(parts[0], stamps, rows))
            if self._make_room(parts, numbers):
                for part in parts:
                    for cursor, low, high in _left(part, numbers):
                        self._copy(cursor, part.stamps.first, picked[low:high], numbers[low:high])
            self._device.hold_training()
        self.stall_s += time.perf_counter() - started

    def _make_room(self, parts: list[_TablePart], numbers: Array) -> bool:
        """Wait until copies of these rows fit; False if the stream is closed meanwhile."""
        moves, moved_at = self._moves, time.monotonic()
        while not self._is_closed:
            needed = sum(
                (high - low) * cursor.row_bytes
                for part in parts
                for cursor, low, high in _left(part, numbers)
            )
            if self._copied_bytes + needed <= self._limits.copied:
                return True
            self._changed.wait(1.0)
            if self._moves != moves:
                moves, moved_at = self._moves, time.monotonic()
            elif time.monotonic() > moved_at + self._limits.silence_s:
                _LOG.warning("the writer of a checkpoint has not read for %.0f s", self._limits.silence_s)
                self.close()
        return False

    def _copy(self, cursor: _Cursor, first: int, picked: Tensor, numbers: Array) -> None:
        """Copy rows of a kernel that begins with row `first` of this tensor, a piece at a time."""
        tensor = cursor.shard.tensor.detach()
        step = max(_PIECE_BYTES // max(cursor.row_bytes, 1), 1)
        for start in range(0, len(numbers), step):
            rows, chosen = numbers[start : start + step] - first, picked[start : start + step]
            raw = self._device.scratch(len(rows) * cursor.row_bytes)
            values = raw.view(tensor.dtype).view(len(rows), *cursor.row_shape)

            def work(chosen: Tensor = chosen, values: Tensor = values) -> None:
                torch.index_select(tensor, 0, chosen - first, out=values)

            self._device.enqueue(work)
            cursor.copied.append(_Copied(rows, values))
            self._copied_bytes += values.nbytes
        small = [each for each in cursor.copied if each.values.nbytes < _PIECE_BYTES // 2]
        if len(small) > _MOST_PIECES:
            large = [each for each in cursor.copied if each.values.nbytes >= _PIECE_BYTES // 2]
            cursor.copied = large + self._joined(cursor, small, step)

    def _joined(self, cursor: _Cursor, small: list[_Copied], step: int) -> list[_Copied]:
        """Return the same rows in pieces of `step` rows: a chunk looks at each piece."""
        rows = np.concatenate([each.rows for each in small])
        order = np.argsort(rows)
        made = []
        for start in range(0, len(rows), step):
            places = order[start : start + step]
            raw = self._device.scratch(len(places) * cursor.row_bytes)
            values = raw.view(cursor.shard.tensor.dtype).view(len(places), *cursor.row_shape)
            made.append((places, values))

        def work() -> None:
            joined = torch.cat([each.values for each in small])
            for places, values in made:
                chosen = torch.from_numpy(places).to(values.device)
                torch.index_select(joined, 0, chosen, out=values)

        self._device.enqueue(work)
        return [_Copied(rows[places], values) for places, values in made]


def stream_of(
    state: State,
    device: SideDevice,
    *,
    first_rank: bool,
    touched: Touched | None,
    since: Since,
    limits: StreamLimits,
) -> TableStream:
    """Return the stream of what this rank writes of a device's tables, right after a cut.

    Args:
        state: this rank's tensors.
        device: where the tables are.
        first_rank: whether this is rank 0, which writes replicated tensors.
        touched: the rows to write, by `id` of their RowStamps; None: all rows.
        since: what they were touched since.
        limits: of memory.
    """
    held: dict[int, tuple[RowStamps, list[_Cursor]]] = {}
    for name, entry in sorted(state.items()):
        for shard in entry.shards if first_rank or not entry.replicated else ():
            if is_streamed(shard, device):
                assert shard.stamps is not None  # noqa: S101 - for the type checker: it would not be streamed
                _, cursors = held.setdefault(id(shard.stamps), (shard.stamps, []))
                cursors.append(_Cursor(name, tuple(entry.shape), shard))
    parts = []
    for stamps, cursors in held.values():
        after = stamps.intervals.after(since) if touched is not None else -1
        rows = None if touched is None else touched[id(stamps)]
        parts.append(_TablePart(stamps, tuple(cursors), rows, after, stamps.intervals.now - 1))
    return TableStream(parts, device, limits=limits)


def is_streamed(shard: TensorShard, device: SideDevice | None) -> bool:
    """Whether a shard is a table's in a device's memory; others are small, or in host memory."""
    return device is not None and shard.stamps is not None and device.holds(shard.tensor)


def _first_changed(part: _TablePart, stamps: Tensor, rows: Tensor) -> tuple[Tensor, Array]:
    """Return the rows of a kernel that change for the first time since the cut, sorted; also for the host."""
    stamped = stamps[rows]
    chosen = stamped <= part.cut
    if part.after >= 0:
        chosen &= stamped > part.after
    picked = rows[chosen].unique()
    return picked, picked.cpu().numpy()


def _left(part: _TablePart, numbers: Array) -> Iterator[tuple[_Cursor, int, int]]:
    """Yield the range of a kernel's rows that each tensor has and has not gathered, unless it is empty."""
    first = part.stamps.first
    stop = int(np.searchsorted(numbers, first + part.rows))
    for cursor in part.cursors:
        start = int(np.searchsorted(numbers, first + cursor.next_row))
        if start < stop:
            yield cursor, start, stop


def _received(issued: _Issued) -> Chunk:
    issued.done.wait()
    data: memoryview = issued.data.numpy().data
    return data
