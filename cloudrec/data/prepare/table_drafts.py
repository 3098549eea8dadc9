"""Arrays of shards that wait for what all rows say: codes whose ids are not known yet, and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.data.prepare.table_shards import keep_draft, take_draft

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.data.prepare.table_shards import Arrays

_IN_MEMORY = 32 << 20  # bytes


class Drafts:
    """Keeps arrays in memory, and from a limit on in files of a folder. Several threads may take them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[tuple[str, int], Arrays] = {}
        self._bytes = 0

    def keep(self, split: str, number: int, arrays: Arrays) -> None:
        """Keep arrays of a shard."""
        size = sum(each.nbytes for each in arrays.values())
        if self._bytes + size > _IN_MEMORY:
            keep_draft(self._path(split, number), arrays)
            return
        self._bytes += size
        self._kept[split, number] = arrays

    def take(self, split: str, number: int) -> Arrays:
        """Return the arrays of a shard, once."""
        arrays = self._kept.pop((split, number), None)
        return take_draft(self._path(split, number)) if arrays is None else arrays

    def _path(self, split: str, number: int) -> Path:
        return self._folder / f"{split}-{number}.draft"
