"""The clusters as their clouds describe them, asked in the background: a page does not wait for a cloud."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.app.lifecycle import ClusterView

_EVERY_S = 20.0
_IDLE_S = 60.0  # without a page that asks, no cloud is asked


@dataclass(frozen=True, kw_only=True)
class ClustersNow:
    """The clusters at one time.

    Attributes:
        clusters: them.
        at: when they were asked, in seconds since the epoch; None before the first answer.
        problem: why they could not be asked; empty if they were.
        names: the clusters of the journal, which need no answer of a cloud.
    """

    clusters: Sequence[ClusterView] = ()
    at: float | None = None
    problem: str = ""
    names: Sequence[str] = ()


class ClusterWatch:
    """Asks for the clusters again and again, while pages ask for them."""

    def __init__(self, app: AppContext) -> None:
        self._app = app
        self._now = ClustersNow()
        self._wanted = threading.Event()
        self._answered = threading.Event()
        self._asked_at = 0.0
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="clusters", daemon=True).start()

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()
        self._wanted.set()

    def now(self, *, patience_s: float = 0.0) -> ClustersNow:
        """Return what is known; the first time, wait so long for it."""
        self._asked_at = time.monotonic()
        self._wanted.set()
        if patience_s and self._now.at is None:
            self._answered.wait(patience_s)
        if self._now.at is None:
            return replace(self._now, names=[record.name for record in self._app.journal.clusters()])
        return self._now

    def _watch(self) -> None:
        from cloudrec.app.lifecycle import clusters  # noqa: PLC0415 - takes time, and a thread has it

        while self._wanted.wait() and not self._closed.is_set():
            try:
                self._now = ClustersNow(clusters=clusters(self._app), at=time.time())
            except CloudrecError as error:
                self._now = replace(self._now, problem=error.message, at=self._now.at or time.time())
            except Exception as error:  # noqa: BLE001 - the page says it, and the next round tries again
                self._now = replace(self._now, problem=f"{type(error).__name__}: {error}", at=time.time())
            self._answered.set()
            self._closed.wait(_EVERY_S)
            if time.monotonic() - self._asked_at > _IDLE_S:
                self._wanted.clear()
