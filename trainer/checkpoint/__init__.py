"""Checkpoints: written by all ranks, counted once committed, read on any world size."""

from trainer.checkpoint.checkpointer import Checkpointer, CheckpointReport
from trainer.checkpoint.entry import Entry, Shard, State

__all__ = ["CheckpointReport", "Checkpointer", "Entry", "Shard", "State"]
