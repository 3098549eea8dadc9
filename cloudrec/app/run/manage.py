"""The use cases of runs: list them, stop one, and copy a run's files."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.errors import UsageError
from cloudrec.home import storage_error
from cloudrec.launchers import launcher as find_launcher
from cloudrec.launchers.base.protocol import Skipped
from cloudrec.observe.runs import find_run, list_runs, load_run, newest_folders
from cloudrec.safe_path import UnsafeNameError, safe_join

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cloudrec.app.context import AppContext
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.observe.runs import RunView


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """The copied files, by their names below the folder, and the skipped ones with the reason."""

    files: Sequence[str]
    skipped: Sequence[Skipped]


def runs(app: AppContext, name: str | None = None) -> Sequence[RunView]:
    """Return every run, newest first, or the named one; UsageError if there is no such run."""
    found = [load_run(app.home.runs, name)] if name is not None else list_runs(app.home.runs)
    return metered(app, found)


def runs_of(app: AppContext, name: str) -> Sequence[RunView]:
    """Return the run of this name and the runs on the cluster of this name, newest first; no others."""
    return metered(app, list_runs(app.home.runs, of=name))


def metered(app: AppContext, views: Sequence[RunView]) -> Sequence[RunView]:
    """Return runs with their metered costs, if any was read."""
    if not app.home.costs.is_dir():
        return views
    from cloudrec.app.money.kept import metered_runs  # noqa: PLC0415 - not for runs on this machine

    return metered_runs(app, views)


def run_folder(app: AppContext, name: str | None) -> RunFolder:
    """Return the folder of a run, of the newest one if `name` is None; UsageError if there is none."""
    if name is not None:
        return find_run(app.home.runs, name)
    known = newest_folders(app.home.runs)
    if not known:
        raise UsageError(f"there are no runs in {app.home.runs}", remedy="`cloudrec train` starts one")
    return known[0]


def stop_run(app: AppContext, name: str, *, grace_s: float | None = None) -> RunView:
    """Stop a run after a last checkpoint; UsageError if it is not running.

    Args:
        app: the context of the use case.
        name: the run.
        grace_s: seconds until it is killed; None for the run's stop_grace_s.
    """
    folder = find_run(app.home.runs, name)
    find_launcher(folder.spec().launcher).stop(folder, grace_s=grace_s)
    return load_run(app.home.runs, name)


def fetch(app: AppContext, name: str, target: Path, *, checkpoints: bool = False) -> Fetched:
    """Copy a run's files to a folder; return their names there, and the skipped files.

    Args:
        app: the context of the use case.
        name: the run; its files in the cluster's storage are first copied to the run's folder.
        target: the folder; it is created if needed, and files in it are replaced.
        checkpoints: also copy the files of the checkpoints that are kept, which may be large.

    Raises:
        UsageError: there is no such run.
        StorageError: the disk, or the cluster's storage, refuses.
    """
    run = find_run(app.home.runs, name)
    skipped = [*find_launcher(run.spec().launcher).collect(run, checkpoints=checkpoints)]
    names: list[str] = []
    try:
        for file in _files(run, checkpoints=checkpoints):
            try:
                source, place = safe_join(run.path, file), safe_join(target, file)
            except UnsafeNameError as error:
                skipped.append(Skipped(name=file, reason=error.message))
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
            names.append(file)
    except OSError as error:
        raise storage_error(target, error) from error
    return Fetched(files=names, skipped=skipped)


def _files(run: RunFolder, *, checkpoints: bool) -> Iterator[str]:
    """Yield the names of a run's files, relative to its folder."""
    left_out = set() if checkpoints else {run.path / "checkpoints"}
    for source in sorted(path for path in run.path.rglob("*") if path.is_file()):
        if source != run.lock_file and not left_out.intersection(source.parents):
            yield source.relative_to(run.path).as_posix()
