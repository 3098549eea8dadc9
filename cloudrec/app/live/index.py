"""The runs of this home, each read again only if its files have changed, and in the time that a page has."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.app.run.manage import metered
from cloudrec.errors import CloudrecError
from cloudrec.launchers.base.ledger import RunState
from cloudrec.observe.page.curves import CurvesFile
from cloudrec.observe.runs import RunView, newest_folders, view_or_reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.launchers.base.run_folder import RunFolder

    Signature = tuple[tuple[int, int], ...]

_PATIENCE_S = 0.6  # of a page for the states of its runs
_FRESH_S = 1.0  # a run of this machine that is not over is looked at again after this time
_FRESH_AFAR_S = 10.0  # one whose cluster must be asked
_QUIET_S = 0.3  # after a page, in which the browser loads its files
_GIVES_WAY_S = 2.0  # at most, for each run that is read for the counts
_CURVES = 24  # runs whose curves are kept
_FILES = ("spec.json", "events.jsonl", "metrics.jsonl", "summary.json", "lock")


@dataclass(frozen=True, kw_only=True)
class _Known:
    """A run as it was seen: its files then, the time, and its state."""

    signature: Signature
    at: float
    view: RunView


class RunIndex:
    """Every run by its name; any thread may ask."""

    def __init__(self, app: AppContext) -> None:
        self._app = app
        self._known: dict[str, _Known] = {}
        self._curves: dict[str, tuple[CurvesFile, threading.Lock]] = {}
        self._lock = threading.Lock()
        self._pages = 0  # that are being made
        self._page_at = 0.0  # when the last one was made
        self._no_pages = threading.Condition()
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="runs")

    def close(self) -> None:
        """Take no more requests."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def folders(self) -> list[RunFolder]:
        """Return the folders of all runs, newest first, without a look into them."""
        return newest_folders(self._app.home.runs)

    def views(self, folders: Sequence[RunFolder]) -> list[RunView]:
        """Return the state of runs, in their order.

        A run whose state is not known in the time that a page has is PENDING with the reason as its cause. It
        is known a little later.
        """
        now = time.monotonic()
        missing = [run for run in folders if self._current(run, now) is None]
        if missing:
            wait([self._pool.submit(self._look, run) for run in missing], timeout=_PATIENCE_S)
        return self._metered([self._known_view(run) for run in folders])

    def view(self, run: RunFolder) -> RunView:
        """Return the state of one run, however long that takes."""
        (view,) = self._metered([self._current(run, time.monotonic()) or self._look(run)])
        return view

    @contextmanager
    def making_a_page(self) -> Iterator[None]:
        """Let `look_at_all` wait meanwhile: it would take most of the interpreter's time."""
        with self._no_pages:
            self._pages += 1
        try:
            yield
        finally:
            with self._no_pages:
                self._pages -= 1
                self._page_at = time.monotonic()
                self._no_pages.notify_all()

    def look_at_all(self) -> None:
        """Read the state of every run once, so that pages can count and sort them; pages are made first."""
        for run in self.folders():
            self._give_way()
            if self._current(run, time.monotonic()) is None:
                self._look(run)

    def _give_way(self) -> None:
        """Wait until no page is being made and its files were probably loaded; at most `_GIVES_WAY_S`."""
        end = time.monotonic() + _GIVES_WAY_S
        with self._no_pages:
            while (now := time.monotonic()) < end and (self._pages or now < self._page_at + _QUIET_S):
                self._no_pages.wait(end - now if self._pages else self._page_at + _QUIET_S - now)

    def known(self) -> dict[str, RunView]:
        """Return the runs that were looked at, by name, as they were then."""
        with self._lock:
            return {name: known.view for name, known in self._known.items()}

    def curves(self, run: RunFolder) -> tuple[CurvesFile, threading.Lock]:
        """Return the metrics of a run as they were read, and the lock to hold while they are used."""
        with self._lock:
            found = self._curves.pop(run.name, None) or (CurvesFile(path=run.metrics_file), threading.Lock())
            self._curves[run.name] = found  # the newest is last
            while len(self._curves) > _CURVES:
                del self._curves[next(iter(self._curves))]
            return found

    def forget(self, name: str) -> None:
        """Look at a run again the next time: it was just changed."""
        with self._lock:
            self._known.pop(name, None)

    def _known_view(self, run: RunFolder) -> RunView:
        with self._lock:
            known = self._known.get(run.name)
        if known is not None:
            return known.view
        return RunView(
            name=run.name,
            state=RunState.PENDING,
            cause="its state is not known yet: it is being read, or its cluster is being asked",
            folder=str(run.path),
        )

    def _current(self, run: RunFolder, now: float) -> RunView | None:
        """Return a run's state if it is as new as it must be."""
        with self._lock:
            known = self._known.get(run.name)
        if known is None or known.signature != signature(run):
            return None
        fresh = _FRESH_S if known.view.launcher in (None, "local") else _FRESH_AFAR_S
        return known.view if known.view.is_over or now - known.at < fresh else None

    def _metered(self, views: list[RunView]) -> list[RunView]:
        try:
            return list(metered(self._app, views))
        except CloudrecError:  # the costs that their specs give
            return views

    def _look(self, run: RunFolder) -> RunView:
        files = signature(run)
        view = view_or_reason(run)
        with self._lock:
            self._known[run.name] = _Known(signature=files, at=time.monotonic(), view=view)
        return view


def signature(run: RunFolder) -> Signature:
    """Return sizes and times of a run's files: they change with its state."""
    found = []
    for name in _FILES:
        try:
            stat = os.stat(run.path / name)  # noqa: PTH116 - of 1,000 runs for each page
        except OSError:
            found.append((0, 0))
        else:
            found.append((stat.st_mtime_ns, stat.st_size))
    return tuple(found)
