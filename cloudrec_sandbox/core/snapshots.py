"""Snapshots: the whole account is saved under a name with its moment, and restored later.

The list of calls, and faults and kills in force, are not part of a snapshot: a restore does not change them.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Generic

from cloudrec_sandbox.core.book import W


class Snapshots(Generic[W]):
    """The snapshots, by name."""

    def __init__(self) -> None:
        self._saved: dict[str, Any] = {}

    def save(self, name: str, world: W) -> None:
        """Save a copy of everything."""
        world.settle()
        self._saved[name] = self.copied(self.gathered(world))

    def restore(self, name: str, world: W) -> None:
        """Restore everything; ValueError for a name that was never saved."""
        if name not in self._saved:
            saved = ", ".join(sorted(self._saved)) or "none"
            raise ValueError(f"nothing was saved as {name!r}; there are: {saved}")
        self.put_back(self.copied(self._saved[name]), world)

    def gathered(self, world: W) -> Any:  # noqa: ANN401 - whatever `put_back` takes
        """Return everything that a snapshot has, not copied yet."""
        return world.export(), world.now()

    def put_back(self, everything: Any, world: W) -> None:  # noqa: ANN401 - what `gathered` gave
        """Make `everything` the state of the world."""
        known, moment = everything
        world.take_up(known, moment)

    def copied(self, everything: Any) -> Any:  # noqa: ANN401 - what `gathered` gave
        """Return a deep copy, made in one call, so that shared references stay shared."""
        return deepcopy(everything)
