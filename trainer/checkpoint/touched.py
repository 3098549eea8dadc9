"""Which rows of which tables were touched since a checkpoint was cut: a byte a row.

Time is cut into intervals, numbered from 1, by the checkpoints. A row's stamp is the interval in which
it was last touched, 0 if it is as in the base of the chain. So a cut is one addition, nothing has to
be cleared or copied at a step boundary, and a write that fails has nothing to give back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

_LAST = 254  # a stamp is a byte, and the cut adds one
_COUNTED = 1 << 16  # stamps compared at a time: they stay in the processor's cache


@dataclass(slots=True)
class Intervals:
    """The numbers that a model's stamps are compared with; one for all its tables."""

    now: int = 1  # the interval that runs
    saved: int = 0  # rows stamped later are in no committed checkpoint
    base: int = 0  # rows stamped later are not in the base of the chain
    stamps: list[Tensor] = field(default_factory=list)  # all that are compared with them

    def add(self, rows: int, device: torch.device) -> Tensor:
        """Make stamps for more rows."""
        values = torch.zeros(rows, dtype=torch.uint8, device=device)
        self.stamps.append(values)
        return values

    def cut(self) -> int:
        """End the interval that runs; its number. No save may be under way."""
        if self.now >= _LAST:
            self._renumber()
        self.now += 1
        return self.now - 1

    def commit(self, cut: int, *, base: bool) -> None:
        """All that was touched up to a cut is committed, in a new base or above the old one."""
        self.saved = cut
        if base:
            self.base = cut

    def begin(self) -> None:
        """Start as a load does: all is as in the base, until `restore` stamps the differentials' rows."""
        for values in self.stamps:
            values.zero_()
        self.base, self.saved, self.now = 0, 1, 2

    def _renumber(self) -> None:
        for values in self.stamps:
            newer = (values > self.base).to(torch.uint8) + (values > self.saved).to(torch.uint8)
            values.copy_(newer)
        self.base, self.saved, self.now = 0, 1, 2


@dataclass(frozen=True, slots=True)
class RowStamps:
    """The stamps of a piece's rows: live memory, on the piece's device."""

    values: Tensor  # uint8 [rows]
    intervals: Intervals

    @torch.no_grad()
    def touch(self, rows: Tensor) -> None:
        """Rows [touched], int64, have changed or are about to."""
        self.values.index_fill_(0, rows, self.intervals.now)

    def restore(self, rows: Tensor) -> None:
        """Rows that a checkpoint's differentials hold."""
        self.values.index_fill_(0, rows, 1)

    def count(self, after: int) -> int:
        """How many rows were touched later than an interval."""
        if self.values.device.type != "cpu":
            return int((self.values > after).sum())
        parts = self.values.split(_COUNTED)
        return sum(int(torch.count_nonzero(part > after)) for part in parts)
