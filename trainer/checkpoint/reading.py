"""Reading a checkpoint from outside the run that writes it: one process, no lock, nothing changed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from trainer.checkpoint import commit as commits
from trainer.checkpoint.commit import Commit, DamagedError
from trainer.checkpoint.folder import CheckpointFolder
from trainer.checkpoint.storage import fill, verify_file
from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.checkpoint.entry import State

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommittedCheckpoint:
    """A checkpoint whose every byte is as written."""

    directory: Path
    commit: Commit

    def dtypes(self) -> dict[str, torch.dtype]:
        """The type of every tensor."""
        return {part.name: getattr(torch, part.dtype) for part in self.commit.parts}

    def fill(self, state: State) -> None:
        """Copy what `state` names into it, in place; the checkpoint may hold more.

        Raises:
            CheckpointError: it lacks a name, or has it with another type or shape.
        """
        stored = {part.name for part in self.commit.parts}
        if missing := sorted(set(state) - stored):
            raise CheckpointError(f"{self.directory}: lacks {missing[0]}; it is of another kind of model")
        fill(self.directory, self.commit, state)


def open_committed(uri: str, step: int | None = None) -> CommittedCheckpoint:
    """The checkpoint of a step, or the newest sound one; a damaged one is passed over with a warning."""
    folder = CheckpointFolder(uri)
    steps = folder.steps() if folder.path.is_dir() else ()
    if not steps:
        raise CheckpointError(
            f"{folder.path}: holds no committed checkpoint (step-NNNNNNNN/commit.json); give the run's "
            "checkpoint_dir, or OUTPUT_DIR/checkpoints"
        )
    if step is not None and step not in steps:
        raise CheckpointError(
            f"{folder.path}: has no checkpoint of step {step}; it has {', '.join(map(str, steps))}"
        )
    damages: list[str] = []
    for candidate in reversed(steps) if step is None else (step,):
        try:
            return _verified(folder.of_step(candidate))
        except DamagedError as error:
            damages.append(str(error))
            _LOG.warning("the checkpoint of step %d is damaged: %s", candidate, error)
    raise CheckpointError(f"{folder.path}: no checkpoint can be trusted: {damages[0]}; put back a copy")


def _verified(directory: Path) -> CommittedCheckpoint:
    commit = commits.read(directory)
    for name in sorted(commit.files):
        verify_file(directory, commit, name)
    return CommittedCheckpoint(directory, commit)
