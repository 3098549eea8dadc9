"""All that the stand-in knows."""

from __future__ import annotations

from cloudrec_sandbox.core import world
from cloudrec_sandbox.gcp.api.registry import book


class World(world.World):
    """One organisation's part of Google Cloud."""

    def __init__(self) -> None:
        super().__init__(book.default_durations)
