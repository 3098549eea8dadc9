"""Checkpoints: written by all ranks, counted once committed, read on any world size.

Importing the package imports no torch: the process that writes in the background has no use for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer.checkpoint.entry import Entry, Shard, State

if TYPE_CHECKING:
    from trainer.checkpoint.checkpointer import Checkpointer, CheckpointReport

__all__ = ["CheckpointReport", "Checkpointer", "Entry", "Shard", "State"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute
    if name not in {"CheckpointReport", "Checkpointer"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainer.checkpoint import checkpointer  # noqa: PLC0415 - it imports torch

    return getattr(checkpointer, name)
