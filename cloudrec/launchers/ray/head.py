"""The Ray head of a run: the one that its settings name, or one that is started for the run alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.launchers.ray.client import GoneHeadError
from cloudrec.launchers.ray.settings import Head, named_head
from cloudrec.process import ray_head

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec


def own_folder(run: RunFolder) -> Path:
    """Return the folder for the files of a head that is started for the run."""
    return run.path / "ray"


def head_of(run: RunFolder, spec: RunSpec) -> Head:
    """Return the run's head; GoneHeadError if it was started for the run and has ended."""
    named = named_head(spec)
    if named:
        return named
    own = ray_head.read_head(own_folder(run))
    if own is None or not own.is_alive:
        raise GoneHeadError("the Ray head that was started for this run is gone")
    return Head(url=own.url, token_file=str(ray_head.token_file(own_folder(run))))
