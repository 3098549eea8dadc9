"""Which head a run's jobs are sent to: one that is named, or one that is started for the run alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.launch._ray.client import GoneHeadError
from cloudrec.launch._ray.settings import Head, named_head
from cloudrec.providers.local import ray_head

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.runspec import RunSpec


def own_folder(run: RunFolder) -> Path:
    """Return where a head of the run's own keeps its files."""
    return run.path / "ray"


def head_of(run: RunFolder, spec: RunSpec) -> Head:
    """Return the head that the run is on; GoneHeadError where its own one is gone."""
    named = named_head(spec)
    if named:
        return named
    own = ray_head.read_head(own_folder(run))
    if own is None or not own.is_alive:
        raise GoneHeadError("the Ray head that was started for this run is gone")
    return Head(url=own.url, token_file=str(ray_head.token_file(own_folder(run))))
