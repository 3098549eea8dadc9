"""Row stamps: which rows of the tables were touched since a checkpoint was cut, in one byte per row.

Checkpoints divide time into intervals, numbered from 1. A row's stamp is the interval in which it was last
touched; 0 means that it is unchanged since the base of the chain. So a cut is one addition, a step boundary
neither clears nor copies anything, and a failed save has nothing to undo.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch
from torch import Tensor

_LAST = 254  # a stamp is a byte, and the cut adds one
_COUNTED = 1 << 16  # stamps compared at a time: they stay in the processor's cache
_COUNTED_ON_DEVICE = 1 << 24  # likewise on a GPU, where a comparison takes a byte of its memory for each

Since = Literal["saved", "base"]
Watcher: TypeAlias = Callable[[Tensor, Tensor], None]  # called with the stamps of a kernel, and rows of it


@dataclass(slots=True)
class Intervals:
    """The interval numbers that stamps are compared with; one object for all tables of a model."""

    now: int = 1  # the current interval
    saved: int = 0  # rows stamped later are in no committed checkpoint
    base: int = 0  # rows stamped later are not in the base of the chain
    stamps: list[Tensor] = field(default_factory=list)  # all that are compared with them
    watcher: Watcher | None = None  # called before rows are stamped, which is before they change

    def add(self, rows: int, device: torch.device) -> Tensor:
        """Return new stamps for this many rows: uint8 [rows], all 0."""
        values = torch.zeros(rows, dtype=torch.uint8, device=device)
        self.stamps.append(values)
        return values

    def after(self, since: Since) -> int:
        """Return the interval after which rows were touched since the last commit, or since the base."""
        return self.saved if since == "saved" else self.base

    def cut(self) -> int:
        """End the current interval and return its number. No save may be in progress."""
        if self.now >= _LAST:
            # Three numbers suffice to distinguish rows of the base, of committed layers, and newer ones.
            self._renumber()
        self.now += 1
        return self.now - 1

    def commit(self, cut: int, *, base: bool) -> None:
        """Record that the rows touched up to a cut are committed, in a new base or above the old one."""
        self.saved = cut
        if base:
            self.base = cut

    def begin(self) -> None:
        """Reset all stamps to the base, before a load; `restore` then stamps the rows of differentials."""
        for values in self.stamps:
            values.zero_()
        self.base, self.saved, self.now = 0, 1, 2

    def _renumber(self) -> None:
        for values in (part for stamps in self.stamps for part in stamps.split(_COUNTED_ON_DEVICE)):
            newer = (values > self.base).to(torch.uint8) + (values > self.saved).to(torch.uint8)
            values.copy_(newer)
        self.base, self.saved, self.now = 0, 1, 2


@dataclass(frozen=True, slots=True)
class RowStamps:
    """The stamps of a table piece's rows, on the piece's device."""

    values: Tensor  # uint8 [rows]
    intervals: Intervals
    of_kernel: Tensor | None = None  # the stamps of all tables of its kernel, which `values` is a part of
    first: int = 0  # the place of `values` in them

    @property
    def whole(self) -> Tensor:
        """The stamps that the watcher is called with."""
        return self.values if self.of_kernel is None else self.of_kernel

    @torch.no_grad()
    def touch(self, rows: Tensor) -> None:
        """Stamp rows (int64 [touched]) that are about to change."""
        watcher = self.intervals.watcher
        if watcher is not None:
            watcher(self.whole, rows + self.first if self.first else rows)
        self.values.index_fill_(0, rows, self.intervals.now)

    @torch.no_grad()
    def touch_where(self, touched: Tensor) -> None:
        """Stamp the rows that a mask (bool [rows]) marks; only a watcher makes the host wait for a GPU."""
        if self.intervals.watcher is not None:
            self.touch(touched.nonzero().view(-1))
            return
        self.values.masked_fill_(touched, self.intervals.now)

    def restore(self, rows: Tensor) -> None:
        """Stamp the rows that a checkpoint's differentials contain."""
        self.values.index_fill_(0, rows, 1)

    def count(self, after: int) -> int:
        """Return the number of rows that were touched later than an interval."""
        if self.values.device.type != "cpu":
            large = self.values.split(_COUNTED_ON_DEVICE)
            counts = [torch.count_nonzero(part > after) for part in large]
            return int(torch.stack(counts).sum()) if counts else 0
        parts = self.values.split(_COUNTED)
        return sum(int(torch.count_nonzero(part > after)) for part in parts)
