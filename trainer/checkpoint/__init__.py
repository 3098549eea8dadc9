"""Checkpoints: written by all ranks, counted once committed, read on any world size."""

from trainer.checkpoint.entry import Entry, Shard, State

__all__ = ["Entry", "Shard", "State"]
