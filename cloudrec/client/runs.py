"""A run as the Python API gives it: its state, lines, metrics and files, and how to stop or resume it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec import app
from cloudrec.errors import DeclinedError, RunFailedError
from cloudrec.launchers import launcher
from cloudrec.observe.metrics import read_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cloudrec.app import AppContext, PreparedRun
    from cloudrec.app.run.manage import Fetched
    from cloudrec.observe.runs import RunView

_POLL_S = 0.5


class LaunchedRun:
    """One run. `Client.train`, `Client.run` and `Client.runs` return it.

    Attributes:
        name: the run's name.
    """

    def __init__(self, context: AppContext, name: str) -> None:
        self._context = context
        self.name = name

    def __repr__(self) -> str:
        """Return the name; the state needs the run's engine."""
        return f"LaunchedRun({self.name!r})"

    def view(self) -> RunView:
        """Return its present state and figures, as `cloudrec status RUN` shows them."""
        (found,) = app.runs(self._context, self.name)
        return found

    def wait(self, *, timeout_s: float | None = None, check: bool = True) -> RunView:
        """Wait until the run has ended; return its final state and figures.

        Args:
            timeout_s: the most seconds to wait; None for no limit.
            check: whether a run that failed raises an error.

        Raises:
            RunFailedError: the run failed, and `check` is true.
            TimeoutError: the run has not ended in time. It continues.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        folder = app.run_folder(self._context, self.name)
        engine = launcher(folder.spec().launcher)
        while not engine.state(folder).state.is_final:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"run {self.name} has not ended after {timeout_s:g} s")
            time.sleep(_POLL_S)
        view = self.view()
        if check and view.state == "FAILED":
            raise RunFailedError(
                f"run {self.name} failed: {view.cause or 'unknown cause'}",
                remedy=f"`cloudrec logs {self.name}` shows its output; `LaunchedRun.resume` resumes it",
            )
        return view

    def logs(self, *, rank: int = 0, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        """Yield the lines that a rank has printed.

        Args:
            rank: the rank.
            follow: also yield new lines, until the run has ended.
            tail: the number of present lines to begin with; None for all.
        """
        folder = app.run_folder(self._context, self.name)
        yield from launcher(folder.spec().launcher).logs(folder, rank=rank, follow=follow, tail=tail)

    def metrics(self) -> Iterator[dict[str, Any]]:
        """Yield the records of metrics.jsonl, oldest first; a run that has written none yields nothing."""
        folder = app.run_folder(self._context, self.name)
        launcher(folder.spec().launcher).collect(folder)
        if folder.metrics_file.exists():
            yield from read_records(folder.metrics_file)

    def stop(self, *, grace_s: float | None = None) -> RunView:
        """Stop the run after a last checkpoint; return its state.

        Args:
            grace_s: the seconds until it is killed; None for the run's own `stop_grace_s`.

        Raises:
            UsageError: the run is not in progress.
        """
        return app.stop_run(self._context, self.name, grace_s=grace_s)

    def resume(
        self, *, nproc_per_node: int | None = None, approve: Callable[[PreparedRun], bool] | None = None
    ) -> None:
        """Resume a run that was stopped or failed, from its newest committed checkpoint.

        Args:
            nproc_per_node: processes on each node; None for as many as before.
            approve: called with what would be launched and its price; False launches nothing. None approves.

        Raises:
            UsageError: the run is in progress or has succeeded.
            DeclinedError: `approve` returned False.
        """
        decide = approve or (lambda _prepared: True)
        if app.resume(self._context, self.name, nproc_per_node=nproc_per_node, decide=decide) is None:
            raise DeclinedError(f"run {self.name} is not resumed: `approve` returned False")

    def fetch(self, folder: Path | str, *, checkpoints: bool = False) -> Fetched:
        """Copy the run's files to a folder; return the names of the copied and the skipped ones.

        Args:
            folder: the folder; it is created if needed.
            checkpoints: whether to copy the checkpoints as well, which may be large.
        """
        return app.fetch(self._context, self.name, Path(folder), checkpoints=checkpoints)
