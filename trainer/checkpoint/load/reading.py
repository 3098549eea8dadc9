"""Reading a checkpoint outside the run that writes it: one process, without a lock, read-only."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trainer.base.errors import CheckpointError
from trainer.checkpoint.format import catalogue
from trainer.checkpoint.format.commit import Commit, DamagedError, read_commit
from trainer.checkpoint.format.runs import verify
from trainer.checkpoint.load.storage import Layers
from trainer.checkpoint.store.base import open_store

if TYPE_CHECKING:
    import torch

    from trainer.base.entry import Initial, State
    from trainer.checkpoint.store.base import Store

_LOG = logging.getLogger(__name__)


class CommittedCheckpoint:
    """A committed checkpoint, verified by this process or by another one."""

    def __init__(self, store: Store, commit: Commit) -> None:
        self.place = f"{store.uri} at step {commit.step}"
        self.store = store
        self.commit = commit
        self._layers = Layers(store, commit)

    def dtypes(self) -> dict[str, torch.dtype]:
        """Return the type of every tensor, by name."""
        return self._layers.dtypes()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        return self._layers.shapes()

    def fill(self, state: State, initial: Initial | None = None) -> None:
        """Copy the tensors that `state` names into it, in place; the checkpoint may hold others, too.

        `initial` makes the state that the run began with: a checkpoint may hold only the changes since.

        Raises:
            CheckpointError: it lacks a name, or has it with another type or shape.
        """
        if missing := sorted(set(state) - set(self._layers.named)):
            raise CheckpointError(f"{self.place}: lacks {missing[0]}; it is of another kind of model")
        self._layers.fill(state, initial)


def open_committed(uri: str, step: int | None = None, *, check: bool = True) -> CommittedCheckpoint:
    """Open the checkpoint of a step, or the newest intact one; a damaged one is skipped with a warning.

    Without `check`, its bytes are not verified: another rank has done so.

    Raises:
        CheckpointError: there is no such checkpoint, or all are damaged.
    """
    store = open_store(uri)
    listed = {each.step: each.name for each in catalogue.list_commits(store)}
    steps = list(listed)
    if not steps:
        raise CheckpointError(
            f"{store.uri}: holds no committed checkpoint (step-*/commit-*.json); give the run's "
            "checkpoint_dir, or OUTPUT_DIR/checkpoints"
        )
    if step is not None and step not in steps:
        raise CheckpointError(
            f"{store.uri}: has no checkpoint of step {step}; it has {', '.join(map(str, steps))}"
        )
    damages: list[str] = []
    for candidate in reversed(steps) if step is None else (step,):
        try:
            commit = read_commit(store, listed[candidate])
            for reference in commit.references if check else ():
                verify(store, reference)
            return CommittedCheckpoint(store, commit)
        except DamagedError as error:
            damages.append(str(error))
            _LOG.warning("the checkpoint of step %d is damaged: %s", candidate, error)
    raise CheckpointError(f"{store.uri}: no checkpoint can be trusted: {damages[0]}; put back a copy")
