"""The whole account saved under a name, and taken up again, with its moment.

What the clients did meanwhile stays in the list of calls; faults and deaths in force stay in force.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Generic

from cloudrec.sandbox.book import W


class Snapshots(Generic[W]):
    """What has been saved, by name."""

    def __init__(self) -> None:
        self._saved: dict[str, Any] = {}

    def save(self, name: str, world: W) -> None:
        """Keep a copy of everything."""
        world.settle()
        self._saved[name] = self.copied(self.gathered(world))

    def restore(self, name: str, world: W) -> None:
        """Make everything as it was; ValueError for a name that was never saved."""
        if name not in self._saved:
            saved = ", ".join(sorted(self._saved)) or "none"
            raise ValueError(f"nothing was saved as {name!r}; there are: {saved}")
        self.put_back(self.copied(self._saved[name]), world)

    def gathered(self, world: W) -> Any:  # noqa: ANN401 - whatever `put_back` takes
        """All that there is, not copied yet."""
        return world.export(), world.now()

    def put_back(self, everything: Any, world: W) -> None:  # noqa: ANN401 - what `gathered` gave
        """Make it all that there is."""
        known, moment = everything
        world.take_up(known, moment)

    def copied(self, everything: Any) -> Any:  # noqa: ANN401 - what `gathered` gave
        """A deep copy in one go, so that what refers to each other still does."""
        return deepcopy(everything)
