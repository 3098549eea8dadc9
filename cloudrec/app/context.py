"""What every use case works with: where things are kept, the environment, and who is told of progress."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
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
    from cloudrec.provider import Provider

_LOCK_WAIT_S = 5.0  # most commands are shorter than this; for a longer one the user is told who holds it


@dataclass(frozen=True, kw_only=True)
class AppContext:
    """Given to every use case.

    Attributes:
        home: where runs, journal and clusters are kept.
        environment: the process's environment variables.
        report: is told each thing done, for progress.
    """

    home: Home
    environment: Mapping[str, str]
    report: Callable[[str], None] = field(default=lambda _line: None)

    @cached_property
    def journal(self) -> Journal:
        """The journal of this home."""
        return Journal(self.home.journal)

    @property
    def clock(self) -> Clock:
        """What a command waits by: real time, but where a stand-in says that it lives faster."""
        return Clock.of(self.environment)

    def provider(self, name: str) -> Provider:
        """Return the provider of this name."""
        return providers.load(name, home=self.home, environment=self.environment)

    def engine(self, drivers: Mapping[str, Driver]) -> Context:
        """Return what the engine works with."""
        return Context(
            journal=self.journal,
            drivers=drivers,
            report=lambda key, event: self.report(f"{key}: {event}"),
            clock=self.clock,
        )

    @contextmanager
    def cluster_lock(self, name: str) -> Iterator[None]:
        """Hold a cluster while it, or what runs on it, changes."""
        path = self.home.locks / f"cluster-{name}.lock"
        with locked(path, what=f"cluster {name!r}", wait_s=_LOCK_WAIT_S):
            yield
