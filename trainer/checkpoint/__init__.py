"""Checkpoints: layers written by all ranks, counted once committed, read on any world size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer.checkpoint.entry import Entry, Shard, State
from trainer.checkpoint.saves import CheckpointReport, SavingOptions

if TYPE_CHECKING:
    from trainer.checkpoint.checkpointer import Checkpointer

__all__ = ["CheckpointReport", "Checkpointer", "Entry", "SavingOptions", "Shard", "State"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever is asked for
    """Import what needs torch when it is asked for: the process that writes in the background has none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainer.checkpoint import checkpointer  # noqa: PLC0415 - as above

    return getattr(checkpointer, name)
