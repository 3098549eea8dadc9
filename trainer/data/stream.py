"""The batches of one rank in an epoch: every sample exactly once over all ranks, for any world size."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch

from trainer.base.errors import DatasetError
from trainer.data.batch import Batch
from trainer.data.lists import ListArrays, join, with_lists
from trainer.data.order import BLOCK_ROWS, WINDOW_BLOCKS, EpochOrder, RowRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from trainer.data.lists import Lists


class Columns(Protocol):
    """Ids [columns, rows], or an object that can be sliced like them."""

    def __getitem__(self, key: tuple[slice, slice], /) -> npt.NDArray[np.int32]: ...


class RowArrays(Protocol):
    """The rows of one shard."""

    @property
    def labels(self) -> npt.NDArray[Any]: ...  # noqa: D102 - see trainer.data.formats.prepared.ShardArrays
    @property
    def dense(self) -> npt.NDArray[np.float32]: ...  # noqa: D102 - as above
    @property
    def sparse(self) -> Columns: ...  # noqa: D102 - as above
    @property
    def lists(self) -> ListArrays | None: ...  # noqa: D102 - as above
    @property
    def weights(self) -> npt.NDArray[np.float32] | None: ...  # noqa: D102 - as above


class ShardArrays(NamedTuple):
    """One shard's rows, in arrays that may be memory-mapped and are not changed."""

    labels: npt.NDArray[Any]  # uint8 [rows]; of several labels int8 [rows, labels], -1 where a row lacks one
    dense: npt.NDArray[np.float32]  # [rows, D]
    sparse: npt.NDArray[np.int32]  # [F, rows], of the features with as many ids in every row
    lists: ListArrays | None = None  # of the other features
    weights: npt.NDArray[np.float32] | None = None  # [rows]


class ArraySplit(Protocol):
    """A split as a sequence of arrays: the shards of files, or arrays in memory."""

    @property
    def name(self) -> str: ...  # noqa: D102 - said above
    @property
    def rows(self) -> int: ...  # noqa: D102 - said above
    @property
    def num_dense(self) -> int: ...  # noqa: D102 - said above
    @property
    def hotness(self) -> Sequence[int]:
        """Ids per sample of each feature; a feature has this many adjacent columns of ids."""
        ...

    @property
    def list_places(self) -> Sequence[int]:
        """Where features with lists are among all features; `hotness` is that of the others."""
        ...

    @property
    def has_hashes(self) -> bool:
        """Whether ids have 64 bits, because some are hashes."""
        ...

    @property
    def tasks(self) -> int:
        """The labels of a row if they are several; 0 for one."""
        ...

    @property
    def is_weighted(self) -> bool:
        """Whether the samples have weights."""
        ...

    @property
    def starts(self) -> tuple[int, ...]:
        """The first row of every shard, and `rows` at the end."""
        ...

    def arrays(self, index: int) -> RowArrays:
        """The arrays of one shard."""
        ...


class BatchStream:
    """The batches of one rank, from a position of an epoch to the epoch's end.

    Global step i covers the positions [start + i*G, start + (i+1)*G), G = batch_size * world_size; every rank
    takes a contiguous share. All ranks get the same number of batches: in the epoch's last step, which has
    fewer samples, shares differ by at most one and may be empty.

    Every batch has separate memory, so that a pipeline may keep several.
    """

    def __init__(
        self,
        split: ArraySplit,
        *,
        batch_size: int,
        rank: int,
        world_size: int,
        seed: int,
        epoch: int,
        start_sample: int = 0,
        shuffle: bool = True,
        block_rows: int = BLOCK_ROWS,
        window_blocks: int = WINDOW_BLOCKS,
    ) -> None:
        check_part(split, batch_size=batch_size, rank=rank, world_size=world_size, start_sample=start_sample)
        self._split = split
        self._rank = rank
        self._world_size = world_size
        self._global_batch = batch_size * world_size
        self._start = start_sample
        self._reader: _SequentialReader | _ShuffledReader = _SequentialReader(split)
        if shuffle:
            order = EpochOrder(
                split.rows, seed=seed, epoch=epoch, block_rows=block_rows, window_blocks=window_blocks
            )
            self._reader = _ShuffledReader(split, order)

    def __len__(self) -> int:
        """Return the number of global steps that are left."""
        return math.ceil((self._split.rows - self._start) / self._global_batch)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(self._start, self._split.rows, self._global_batch):
            global_size = min(self._global_batch, self._split.rows - start)
            share = share_of(global_size, self._rank, self._world_size)
            buffers = _Buffers(self._split, share.stop - share.start)
            self._reader.read(RowRange(start + share.start, start + share.stop), buffers)
            yield buffers.batch(global_size)


def check_part(split: ArraySplit, *, batch_size: int, rank: int, world_size: int, start_sample: int) -> None:
    """Refuse a part of an epoch that does not exist.

    Raises:
        ValueError: there is no such rank, or the batches are empty.
        DatasetError: the split has no such position.
    """
    if batch_size < 1 or not 0 <= rank < world_size:
        raise ValueError(
            f"batch_size {batch_size}, rank {rank} of {world_size}: needs batch_size >= 1 and "
            "0 <= rank < world_size"
        )
    if not 0 <= start_sample <= split.rows:
        raise DatasetError(
            f"the {split.name} split has {split.rows} rows, so no position {start_sample} to resume at; "
            "the dataset is not the one that the checkpoint was made with"
        )


def empty_batch(split: ArraySplit, global_size: int) -> Batch:
    """Return the batch of a rank that has no samples in a step."""
    return _Buffers(split, 0).batch(global_size)


def share_of(size: int, rank: int, world_size: int) -> RowRange:
    """Return a rank's contiguous share of `size` samples; shares differ by at most one."""
    return RowRange(size * rank // world_size, size * (rank + 1) // world_size)


class _Buffers:
    """The memory of one batch: torch tensors, filled through numpy views."""

    def __init__(self, split: ArraySplit, size: int) -> None:
        self._hotness = split.hotness
        self._list_places = split.list_places
        self.lists: list[list[Lists]] = [[] for _ in split.list_places]  # parts of each feature's
        self._tensors = (
            torch.empty((size, split.num_dense), dtype=torch.float32),
            torch.empty((sum(split.hotness), size), dtype=torch.int64 if split.has_hashes else torch.int32),
            torch.empty(_shape_of_labels(split, size), dtype=torch.float32),
            torch.empty(size, dtype=torch.int64),
        )
        self._weights = torch.empty(size, dtype=torch.float32) if split.is_weighted else None
        self.dense: npt.NDArray[np.float32]
        self.sparse: npt.NDArray[np.signedinteger[Any]]
        self.labels: npt.NDArray[np.float32]
        self.ids: npt.NDArray[np.int64]
        self.weights = None if self._weights is None else self._weights.numpy()
        self.dense, self.sparse, self.labels, self.ids = (tensor.numpy() for tensor in self._tensors)

    def batch(self, global_size: int) -> Batch:
        if all(each == 1 for each in self._hotness):
            batch = Batch(*self._tensors, global_size, weights=self._weights)
            if not self._list_places:
                return batch
            return with_lists(batch, [join(parts) for parts in self.lists], self._list_places)
        dense, columns, labels, ids = self._tensors
        bags = torch.cat([part.t().reshape(-1) for part in columns.split(list(self._hotness))])
        lengths = torch.tensor(self._hotness, dtype=torch.int32)[:, None].repeat(1, len(labels))
        return Batch(dense, bags, labels, ids, global_size, lengths, self._weights)


class _SequentialReader:
    """Reads rows in file order: a few large copies from the page cache."""

    def __init__(self, split: ArraySplit) -> None:
        self._split = split

    def read(self, positions: RowRange, out: _Buffers) -> None:
        for at, index, rows in pieces_of(self._split, positions):
            arrays = self._split.arrays(index)
            there = slice(at, at + rows.stop - rows.start)
            here = slice(rows.start, rows.stop)
            out.dense[there] = arrays.dense[here]
            out.sparse[:, there] = arrays.sparse[:, here]
            out.labels[there] = arrays.labels[here]
            if out.weights is not None and arrays.weights is not None:
                out.weights[there] = arrays.weights[here]
            _append_lists(out.lists, arrays, here)
        out.ids[:] = np.arange(positions.start, positions.stop)


class _ShuffledReader:
    """Reads rows in the epoch's order: loads one window at a time, and gathers rows from it."""

    def __init__(self, split: ArraySplit, order: EpochOrder) -> None:
        self._split = split
        self._order = order
        self._window: _Window | None = None

    def read(self, positions: RowRange, out: _Buffers) -> None:
        start = positions.start
        while start < positions.stop:
            window = self._load(self._order.window_at(start))
            stop = min(positions.stop, window.positions.stop)
            window.gather(RowRange(start, stop), out, at=start - positions.start)
            start = stop

    def _load(self, number: int) -> _Window:
        if self._window is None or self._window.number != number:
            self._window = None  # releases the old window first, so that at most one is in memory
            self._window = _Window(self._split, self._order, number)
        return self._window


class _Window:
    """Some blocks of rows in memory, and the order in which they are read."""

    def __init__(self, split: ArraySplit, order: EpochOrder, number: int) -> None:
        self.number = number
        self.positions = order.positions(number)
        size = self.positions.stop - self.positions.start
        self._order = order.shuffle(number)
        self._dense = np.empty((size, split.num_dense), dtype=np.float32)
        self._sparse: npt.NDArray[np.signedinteger[Any]] = np.empty(
            (sum(split.hotness), size), dtype=np.int64 if split.has_hashes else np.int32
        )
        self._labels = np.empty(_shape_of_labels(split, size), dtype=np.float32)
        self._weights = np.empty(size, dtype=np.float32) if split.is_weighted else None
        self._ids = np.empty(size, dtype=np.int64)
        lists: list[list[Lists]] = [[] for _ in split.list_places]
        offset = 0
        for block in order.blocks(number):
            self._read(split, block, offset, lists)
            offset += block.stop - block.start
        self._lists = [join(parts) for parts in lists]

    def gather(self, positions: RowRange, out: _Buffers, *, at: int) -> None:
        first = self.positions.start
        chosen = self._order[positions.start - first : positions.stop - first]
        there = slice(at, at + len(chosen))
        # mode="clip" lets numpy write straight into `out`; "raise" buffers it. Every index is in range.
        np.take(self._sparse, chosen, axis=1, out=out.sparse[:, there], mode="clip")
        np.take(self._dense, chosen, axis=0, out=out.dense[there], mode="clip")
        np.take(self._labels, chosen, axis=0, out=out.labels[there], mode="clip")
        np.take(self._ids, chosen, out=out.ids[there], mode="clip")
        if self._weights is not None and out.weights is not None:
            np.take(self._weights, chosen, out=out.weights[there], mode="clip")
        for parts, lists in zip(out.lists, self._lists, strict=True):
            parts.append(lists.take(chosen))

    def _read(self, split: ArraySplit, block: RowRange, offset: int, lists: list[list[Lists]]) -> None:
        for at, index, rows in pieces_of(split, block):
            arrays = split.arrays(index)
            there = slice(offset + at, offset + at + rows.stop - rows.start)
            here = slice(rows.start, rows.stop)
            self._dense[there] = arrays.dense[here]
            self._sparse[:, there] = arrays.sparse[:, here]
            self._labels[there] = arrays.labels[here]
            if self._weights is not None and arrays.weights is not None:
                self._weights[there] = arrays.weights[here]
            _append_lists(lists, arrays, here)
        self._ids[offset : offset + block.stop - block.start] = np.arange(block.start, block.stop)


def _shape_of_labels(split: ArraySplit, rows: int) -> tuple[int, ...]:
    return (rows, split.tasks) if split.tasks else (rows,)


def _append_lists(lists: list[list[Lists]], arrays: RowArrays, rows: slice) -> None:
    if arrays.lists is not None:
        for feature, parts in enumerate(lists):
            parts.append(arrays.lists.rows(feature, rows))


def pieces_of(split: ArraySplit, rows: RowRange) -> Iterator[tuple[int, int, RowRange]]:
    """Split a range of rows at shard boundaries; yields (offset in the range, shard, rows of the shard)."""
    index = bisect_right(split.starts, rows.start) - 1
    start = rows.start
    while start < rows.stop:
        first, last = split.starts[index], split.starts[index + 1]
        stop = min(rows.stop, last)
        yield start - rows.start, index, RowRange(start - first, stop - first)
        start = stop
        index += 1
