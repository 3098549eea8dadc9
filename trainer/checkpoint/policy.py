"""What the next checkpoint holds: everything, the rows touched since the last one, or since the base."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from trainer.checkpoint.entry import State

Kind = Literal["full", "differential", "merged"]
Mode = Literal["auto", "full", "incremental"]

SINCE: dict[Kind, Literal["saved", "base"] | None] = {"full": None, "differential": "saved", "merged": "base"}
_WORTH = 0.5  # of a full checkpoint's bytes: a differential that saves less only lengthens the way back


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes that one rank, or all, would write."""

    full: int
    touched: int  # since the last checkpoint
    since_base: int

    def plus(self, other: Sizes) -> Sizes:
        """Of two ranks together."""
        return Sizes(self.full + other.full, self.touched + other.touched, self.since_base + other.since_base)


def choose_kind(mode: Mode, *, differentials: int | None, longest: int, sizes: Sizes) -> Kind:
    """The kind of the next checkpoint.

    `differentials` is how many the chain has; None where there is nothing to build upon. A chain of
    `longest` is merged: what was touched since its base is written anew from memory. That reads nothing back,
    loses nothing to a crash, and is as exact as any other save.
    """
    if mode == "full" or differentials is None:
        return "full"
    kind: Kind = "merged" if differentials >= longest else "differential"
    size = sizes.since_base if kind == "merged" else sizes.touched
    return "full" if mode == "auto" and size > _WORTH * sizes.full else kind


def measure(state: State, *, first_rank: bool, since_base: bool) -> Sizes:
    """What this rank would write; rows since the base are counted only where that is asked for."""
    full = touched = older = 0
    counts: dict[int, tuple[int, int]] = {}
    for entry in state.values():
        for shard in entry.shards if first_rank or not entry.replicated else ():
            size = shard.tensor.numel() * shard.tensor.element_size()
            full += size
            stamps = shard.stamps
            if stamps is None or not len(stamps.values):
                touched, older = touched + size, older + size
                continue
            if id(stamps) not in counts:
                intervals = stamps.intervals
                counts[id(stamps)] = (
                    stamps.count(intervals.saved),
                    stamps.count(intervals.base) if since_base else 0,
                )
            row = size // len(stamps.values)
            touched += counts[id(stamps)][0] * row
            older += counts[id(stamps)][1] * row
    return Sizes(full, touched, older)
