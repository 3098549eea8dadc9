"""Runs: what there is, and stopping one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.launch import launcher as find_launcher
from cloudrec.observe.runs import find_run, list_runs, load_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.launch.folder import RunFolder
    from cloudrec.observe.runs import RunView


def runs(app: AppContext, name: str | None = None) -> Sequence[RunView]:
    """Return every run, newest first, or the one named; UsageError when there is none of that name."""
    return [load_run(app.home.runs, name)] if name is not None else list_runs(app.home.runs)


def run_folder(app: AppContext, name: str | None) -> RunFolder:
    """Return a run's folder; without a name the newest run's. UsageError when there is none."""
    if name is None:
        known = list_runs(app.home.runs)
        name = known[0].name if known else ""
    return find_run(app.home.runs, name)


def stop_run(app: AppContext, name: str, *, grace_s: float | None = None) -> RunView:
    """Have a run commit a checkpoint and end; UsageError when it is not running.

    Args:
        app: what every use case works with.
        name: the run.
        grace_s: seconds until it is killed; the run's own stop_grace_s when absent.
    """
    folder = find_run(app.home.runs, name)
    find_launcher(folder.spec().launcher).stop(folder, grace_s=grace_s)
    return load_run(app.home.runs, name)
