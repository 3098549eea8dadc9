"""Checkpoints: layers written by all ranks, counted once committed, read on any world size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer.base.entry import Entry, State, TensorShard
from trainer.checkpoint.save.saves import CheckpointReport, SavingOptions

if TYPE_CHECKING:
    from trainer.checkpoint.checkpointer import Checkpointer

__all__ = ["CheckpointReport", "Checkpointer", "Entry", "SavingOptions", "State", "TensorShard"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module attribute can be any type
    """Import Checkpointer on first use: the background writer imports this package without torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainer.checkpoint import checkpointer  # noqa: PLC0415 - as above

    return getattr(checkpointer, name)
