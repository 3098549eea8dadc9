"""DIN: attention of the candidate over the history."""

from trainer.models.din.model import build

__all__ = ["build"]
