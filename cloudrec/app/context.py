"""The context of every use case: the home folder, the environment, the clock and the progress report."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from cloudrec import providers
from cloudrec.engine.clock import Clock
from cloudrec.engine.context import Context
from cloudrec.engine.journal import Journal
from cloudrec.home import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cloudrec.engine.graph import Driver
    from cloudrec.home import Home
    from cloudrec.providers.base.protocol import Provider

_LOCK_WAIT_S = 5.0  # most commands are shorter; for a longer one, the error names the process with the lock


@dataclass(frozen=True, kw_only=True)
class AppContext:
    """The context of a use case.

    Attributes:
        home: the folder of runs, journal and clusters.
        environment: the process's environment variables.
        report: called with a line for each action.
        step: called with the key and the event of each step of a resource; None reports a line.
        now: returns the time of day, which decides when a cluster ends; a stand-in does not change it.
    """

    home: Home
    environment: Mapping[str, str]
    report: Callable[[str], None] = field(default=lambda _line: None)
    step: Callable[[str, str], None] | None = None
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    @cached_property
    def journal(self) -> Journal:
        """The journal of this home."""
        return Journal(self.home.journal)

    @property
    def clock(self) -> Clock:
        """The clock for waiting: real time, or the faster time of a stand-in."""
        return Clock.of(self.environment)

    def provider(self, name: str, *, complete: bool = False) -> Provider:
        """Return the provider of this name.

        Args:
            name: the provider's name.
            complete: also check the packages that its other commands need. Commands that change resources set
                it, so that they do not fail in the middle.

        Raises:
            MissingExtraError: a package is missing; it names the extra.
        """
        return providers.load(name, home=self.home, environment=self.environment, complete=complete)

    def engine(self, drivers: Mapping[str, Driver]) -> Context:
        """Return the engine's context for these drivers."""
        return Context(
            journal=self.journal,
            drivers=drivers,
            report=self.step or (lambda key, event: self.report(f"{key}: {event}")),
            clock=self.clock,
        )

    @contextmanager
    def cluster_lock(self, name: str) -> Iterator[None]:
        """Lock a cluster while it or its runs change."""
        with locked(self.home.cluster_lock(name), what=f"cluster {name!r}", wait_s=_LOCK_WAIT_S):
            yield
