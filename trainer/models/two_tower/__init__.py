"""Two towers: vectors of users and of items, for retrieval."""

from trainer.models.two_tower.model import build

__all__ = ["build"]
