"""CHECKPOINT_DIR as rank 0 keeps it: what is committed, what is half-written, what is too old.

.lock                     held by the run that writes here
.step-00001234.tmp/       being written, or left by a dead attempt
step-00001234/            a checkpoint, if it holds commit.json
"""

from __future__ import annotations

import logging
import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from trainer.checkpoint import commit as commits
from trainer.errors import CheckpointError, ConfigError
from trainer.location import local_path

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from trainer.checkpoint.commit import Commit

_LOG = logging.getLogger(__name__)
_COMMITTED = re.compile(r"step-(\d{8,})")
_UNFINISHED = re.compile(r"\.step-\d{8,}\.tmp")


class CheckpointFolder:
    """Names and changes the folders of checkpoints; each change can be cut off at any point."""

    def __init__(self, uri: str) -> None:
        try:
            self.path = local_path(uri)
        except ValueError as error:
            raise ConfigError(f"checkpoint_dir {error}") from error

    def of_step(self, step: int) -> Path:
        """Where a step's checkpoint lies."""
        return self.path / f"step-{step:08d}"

    def unfinished(self, step: int) -> Path:
        """Where a step's files lie before they are complete."""
        return self.path / f".step-{step:08d}.tmp"

    def steps(self) -> tuple[int, ...]:
        """The committed steps, oldest first."""
        matches = (_COMMITTED.fullmatch(path.name) for path in self.path.iterdir())
        steps = (int(match[1]) for match in matches if match)
        return tuple(sorted(step for step in steps if self._is_committed(step)))

    def prepare(self, step: int, damaged: Collection[int]) -> None:
        """Make room for a step's files; what dead attempts left is removed."""
        for path in self.path.iterdir():
            if _UNFINISHED.fullmatch(path.name):
                shutil.rmtree(path)
        if self._is_committed(step) and step not in damaged:
            raise CheckpointError(
                f"{self.of_step(step)}: is there already, from a run that this one did not go on from; "
                "give another checkpoint_dir"
            )
        self._remove(step)
        self.unfinished(step).mkdir()

    def commit(self, commit: Commit) -> None:
        """Make a step's files, complete and on stable storage, count."""
        unfinished, folder = self.unfinished(commit.step), self.of_step(commit.step)
        found = {path.name: path.stat().st_size for path in unfinished.iterdir()}
        if found != commit.files:
            raise CheckpointError(
                f"{unfinished}: rank 0 finds {sorted(found)}, the ranks wrote {sorted(commit.files)}; "
                "checkpoint_dir must be a folder that all nodes share"
            )
        commit.check_complete()
        commits.sync_directory(unfinished)
        unfinished.rename(folder)
        commits.sync_directory(self.path)
        commits.write(folder, commit)

    def abandon(self, step: int) -> None:
        """Remove a failed attempt; what was committed stays."""
        shutil.rmtree(self.unfinished(step), ignore_errors=True)
        if not self._is_committed(step):
            with suppress(OSError):
                self._remove(step)

    def prune(self, keep: int, damaged: Collection[int]) -> None:
        """Remove damaged checkpoints and all but the newest sound ones, which never fails the run."""
        try:
            steps = self.steps()
            sound = [step for step in steps if step not in damaged]
            for step in sorted({*sound[:-keep], *(step for step in steps if step in damaged)}):
                self._remove(step)
        except OSError as error:
            _LOG.warning("an old checkpoint could not be removed, which costs space only: %s", error)

    def _is_committed(self, step: int) -> bool:
        return (self.of_step(step) / commits.FILE_NAME).exists()

    def _remove(self, step: int) -> None:
        folder = self.of_step(step)
        if folder.exists():
            (folder / commits.FILE_NAME).unlink(missing_ok=True)  # first: half a folder must not count
            commits.sync_directory(folder)
            shutil.rmtree(folder)
