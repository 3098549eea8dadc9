"""HSTU: layers of attention over the history and the candidate."""

from trainer.models.hstu.model import build

__all__ = ["build"]
