"""The batches of one rank in an epoch, made on a device; the same as trainer.data.stream's, bit for bit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from trainer.data.device.lane import lane_of
from trainer.data.device.layout import SplitLayout
from trainer.data.device.loads import ReadPlan
from trainer.data.device.reading import READERS, WindowReader
from trainer.data.device.windows import BatchMaker, DeviceWindow, TakenRows
from trainer.data.order import BLOCK_ROWS, WINDOW_BLOCKS, EpochOrder
from trainer.data.stream import check_part, empty_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer.data.batch import Batch
    from trainer.data.device.lane import SideLane
    from trainer.data.device.loads import LoadStep
    from trainer.data.stream import ArraySplit


class DeviceStream:
    """The batches of one rank, from a position of an epoch to the epoch's end.

    See trainer.data.stream.BatchStream, which has the same arguments. All tensors of a batch are on the
    device, sample ids too, and are made on its side lane: a user of them on another stream waits for a mark
    of the lane first, and records that stream for the allocator.
    """

    def __init__(
        self,
        split: ArraySplit,
        device: torch.device,
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
        readers: int = READERS,
    ) -> None:
        check_part(split, batch_size=batch_size, rank=rank, world_size=world_size, start_sample=start_sample)
        self._split = split
        self._device = device
        self._readers = readers
        self._steps = math.ceil((split.rows - start_sample) / (batch_size * world_size))
        order = None
        if shuffle:
            order = EpochOrder(
                split.rows, seed=seed, epoch=epoch, block_rows=block_rows, window_blocks=window_blocks
            )
        self._plan = ReadPlan(
            split.rows,
            start=start_sample,
            global_batch=batch_size * world_size,
            rank=rank,
            world_size=world_size,
            epoch=epoch,
            order=order,
        )

    def __len__(self) -> int:
        """Return the number of global steps that are left."""
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        lane = lane_of(self._device)
        layout = SplitLayout(self._split)
        with lane.work():
            make = BatchMaker(layout, lane)
        with WindowReader(self._plan, layout, lane, readers=self._readers) as reader:
            windows = _Windows(reader)
            for step in self._plan.steps():
                yield self._batch(step, windows, make, lane)

    def _batch(self, step: LoadStep, windows: _Windows, make: BatchMaker, lane: SideLane) -> Batch:
        rows = [TakenRows(windows.at(cut.load.number), cut.start, cut.stop) for cut in step.cuts]
        with lane.work():
            if rows:
                return make(rows, step.global_size)
            return _empty(self._split, step.global_size, self._device)


class _Windows:
    """The window of the last rows."""

    def __init__(self, reader: WindowReader) -> None:
        self._reader = reader
        self._number = -1
        self._window: DeviceWindow | None = None

    def at(self, number: int) -> DeviceWindow:
        """Return a window, and give up the one before."""
        if self._window is None or number != self._number:
            if self._window is not None:
                self._window = None
                self._reader.release()
            self._window = self._reader.window(number)
            self._number = number
        return self._window


def _empty(split: ArraySplit, global_size: int, device: torch.device) -> Batch:
    batch = empty_batch(split, global_size).to(device, non_blocking=True)
    counts = None if batch.lengths is None else (0,) * len(batch.lengths)
    return replace(
        batch,
        sample_ids=batch.sample_ids.to(device, non_blocking=True),
        counts=counts,
        sums=torch.zeros(2, dtype=torch.int64, device=device),
    )
