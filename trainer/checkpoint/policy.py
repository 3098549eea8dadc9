"""What the next checkpoint holds: everything, the rows touched since the last one, or since the base."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from trainer.checkpoint.entry import State
    from trainer.checkpoint.snapshot import Touched

Kind = Literal["full", "differential", "merged"]
Mode = Literal["auto", "full", "incremental"]

_WORTH = 0.5  # of a full checkpoint's bytes: a differential that saves less only lengthens the way back


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes that one rank, or all, would write."""

    full: int
    touched: int  # of the rows that were touched, and of all tensors that are written whole

    def plus(self, other: Sizes) -> Sizes:
        """Of two ranks together."""
        return Sizes(self.full + other.full, self.touched + other.touched)


def plan_kind(mode: Mode, *, differentials: int | None, longest: int) -> Kind:
    """The kind of the next checkpoint, as far as sizes play no part.

    `differentials` is how many the chain has; None where there is nothing to build upon. A chain of
    `longest` is merged: what was touched since its base is written anew from memory. That reads nothing back,
    loses nothing to a crash, and is as exact as any other save.
    """
    if mode == "full" or differentials is None:
        return "full"
    return "merged" if differentials >= longest else "differential"


def is_worth_it(mode: Mode, sizes: Sizes) -> bool:
    """Whether not to write everything."""
    return mode == "incremental" or sizes.touched <= _WORTH * sizes.full


def measure(state: State, touched: Touched | None, *, first_rank: bool) -> Sizes:
    """What this rank would write of these rows."""
    full = some = 0
    for entry in state.values():
        for shard in entry.shards if first_rank or not entry.replicated else ():
            size = shard.tensor.numel() * shard.tensor.element_size()
            full += size
            if shard.stamps is None or touched is None:
                some += size
            else:
                rows = max(len(shard.stamps.values), 1)
                some += len(touched[id(shard.stamps)]) * (size // rows)
    return Sizes(full, some)
