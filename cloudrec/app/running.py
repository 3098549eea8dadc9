"""Runs: what there is, stopping one, and taking along what it has left."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from cloudrec.home import storage_error
from cloudrec.launch import launcher as find_launcher
from cloudrec.observe.runs import find_run, list_runs, load_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cloudrec.app.context import AppContext
    from cloudrec.launch.folder import RunFolder
    from cloudrec.observe.runs import RunView


def runs(app: AppContext, name: str | None = None) -> Sequence[RunView]:
    """Return every run, newest first, or the one named; UsageError when there is none of that name."""
    return [load_run(app.home.runs, name)] if name is not None else list_runs(app.home.runs)


def runs_of(app: AppContext, name: str) -> Sequence[RunView]:
    """Return the run of this name and those on the cluster of this name, newest first; no other is asked."""
    return list_runs(app.home.runs, of=name)


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


def fetch(app: AppContext, name: str, target: Path, *, checkpoints: bool = False) -> Sequence[str]:
    """Copy a run's files into a folder; returns their names there.

    Args:
        app: what every use case works with.
        name: the run; what lies in its cluster's storage is brought here first.
        target: the folder; it is made where it is not there, and files in it are replaced.
        checkpoints: take what belongs to the newest checkpoint along, which may be large.

    Raises:
        UsageError: there is no such run.
        StorageError: the disk, or the cluster's storage, refuses.
    """
    run = find_run(app.home.runs, name)
    find_launcher(run.spec().launcher).collect(run)
    skipped = set() if checkpoints else {run.path / "checkpoints"}
    names: list[str] = []
    try:
        for source in sorted(path for path in run.path.rglob("*") if path.is_file()):
            if skipped.intersection(source.parents) or source == run.lock_file:
                continue
            place = target / source.relative_to(run.path)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
            names.append(str(source.relative_to(run.path)))
    except OSError as error:
        raise storage_error(target, error) from error
    return names
