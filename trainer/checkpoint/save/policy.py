"""The kind of the next checkpoint: everything, the rows touched since the last one, or since the base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.checkpoint.save.saves import Sizes

if TYPE_CHECKING:
    from trainer.base.entry import State
    from trainer.checkpoint.history import Chain
    from trainer.checkpoint.save.saves import Kind, Mode
    from trainer.checkpoint.save.touched_bits import Touched

_WORTH = 0.5  # of a full checkpoint's bytes: a differential that saves less only makes a resume longer


def plan_kind(mode: Mode, chain: Chain | None, *, longest: int, alone: bool) -> Kind:
    """Return the kind of the next checkpoint, before sizes are considered.

    A chain of `longest` differentials is merged: the rows touched since its base are written again, from
    memory. That reads no file, survives a crash like any other save, and is as exact. If the newest
    checkpoint is `alone`, which means that every other one shares a file with it, the next one begins a
    chain that shares no file: a full checkpoint, or a merged one if the base is the initial state (which
    has no file).
    """
    if mode == "full" or chain is None:
        return "full"
    if alone:
        return "full" if chain.base is None else "merged"
    return "merged" if chain.differentials >= longest else "differential"


def is_base_due(chain: Chain, sizes: Sizes) -> bool:
    """Whether to end a chain above a full checkpoint with a new full one instead of merging it.

    True once the layers above the base have taken as many bytes as a full checkpoint. So new checkpoints
    depend on one old file for a limited time only, and at most twice the bytes are written.
    """
    return chain.base is None and chain.bytes_above >= sizes.full


def is_worth_it(mode: Mode, sizes: Sizes) -> bool:
    """Whether to write a differential instead of everything."""
    return mode == "incremental" or sizes.touched <= _WORTH * sizes.full


def measure(state: State, touched: Touched | None, *, first_rank: bool) -> Sizes:
    """Return the bytes that this rank would write: of everything, and of the touched rows only."""
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
