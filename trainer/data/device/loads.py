"""Which rows are read together, and which of them each batch takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.data.order import BLOCK_ROWS, WINDOW_BLOCKS, EpochOrder, RowRange
from trainer.data.stream import share_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FEW_RANKS = 8
LOAD_ROWS = BLOCK_ROWS * WINDOW_BLOCKS  # about as many are read together if they are not shuffled


@dataclass(frozen=True, slots=True)
class WindowLoad:
    """Rows that are read together."""

    number: int  # counted over this rank's loads, from 0
    ranges: tuple[RowRange, ...]
    window: int | None  # whose order they have in batches; None: the order in which they are read

    @property
    def rows(self) -> int:
        """The rows of all ranges."""
        return sum(each.stop - each.start for each in self.ranges)


@dataclass(frozen=True, slots=True)
class LoadCut:
    """The rows of a load at some adjacent places of its order."""

    load: WindowLoad
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LoadStep:
    """One rank's share of a global step."""

    global_size: int
    cuts: tuple[LoadCut, ...]


class ReadPlan:
    """The loads and steps of one rank from a position of an epoch to its end; a pure function of these."""

    def __init__(
        self,
        rows: int,
        *,
        start: int,
        global_batch: int,
        rank: int,
        world_size: int,
        epoch: int,
        order: EpochOrder | None,
    ) -> None:
        self._rows = rows
        self._start = start
        self._global_batch = global_batch
        self._rank = rank
        self._world_size = world_size
        self.takes_most = world_size <= _FEW_RANKS  # of the rows of its loads
        self.epoch = epoch
        self.order = order

    def steps(self) -> Iterator[LoadStep]:
        """Yield all steps; the loads of their cuts are numbered in the order of their first use."""
        if self.order is None:
            return self._as_stored()
        return self._shuffled(self.order)

    def loads(self) -> Iterator[WindowLoad]:
        """Yield every load once, in the order of use."""
        number = -1
        for step in self.steps():
            for cut in step.cuts:
                if cut.load.number > number:
                    number = cut.load.number
                    yield cut.load

    def _shares(self) -> Iterator[tuple[int, RowRange]]:
        """Yield the samples of each step over all ranks, and the positions of this rank's share."""
        for start in range(self._start, self._rows, self._global_batch):
            size = min(self._global_batch, self._rows - start)
            share = share_of(size, self._rank, self._world_size)
            yield size, RowRange(start + share.start, start + share.stop)

    def _shuffled(self, order: EpochOrder) -> Iterator[LoadStep]:
        load: WindowLoad | None = None
        for size, share in self._shares():
            cuts: list[LoadCut] = []
            start = share.start
            while start < share.stop:
                window = order.window_at(start)
                if load is None or load.window != window:
                    number = 0 if load is None else load.number + 1
                    load = WindowLoad(number, tuple(order.blocks(window)), window)
                covered = order.positions(window)
                stop = min(share.stop, covered.stop)
                cuts.append(LoadCut(load, start - covered.start, stop - covered.start))
                start = stop
            yield LoadStep(size, tuple(cuts))

    def _as_stored(self) -> Iterator[LoadStep]:
        group: list[tuple[int, RowRange]] = []
        rows = number = 0
        for size, share in self._shares():
            if group and rows + share.stop - share.start > LOAD_ROWS:
                yield from _steps_of(group, number)
                group, rows, number = [], 0, number + (rows > 0)
            group.append((size, share))
            rows += share.stop - share.start
        yield from _steps_of(group, number)


def _steps_of(group: Sequence[tuple[int, RowRange]], number: int) -> Iterator[LoadStep]:
    """Yield the steps of shares that are one load."""
    load = WindowLoad(number, tuple(_merged(share for _, share in group)), None)
    at = 0
    for size, share in group:
        stop = at + share.stop - share.start
        yield LoadStep(size, (LoadCut(load, at, stop),) if stop > at else ())
        at = stop


def _merged(ranges: Iterator[RowRange]) -> list[RowRange]:
    merged: list[RowRange] = []
    for each in ranges:
        if each.start == each.stop:
            continue
        if merged and merged[-1].stop == each.start:
            merged[-1] = RowRange(merged[-1].start, each.stop)
        else:
            merged.append(each)
    return merged
