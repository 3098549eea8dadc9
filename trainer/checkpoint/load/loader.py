"""Finding the newest intact checkpoint and loading it, collectively."""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from trainer.base.errors import CheckpointError
from trainer.checkpoint.format import catalogue
from trainer.checkpoint.format.commit import DamagedError
from trainer.checkpoint.format.runs import verify
from trainer.checkpoint.load.loading import load_checked, load_trusted, unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer.checkpoint.agreement import Ranks
    from trainer.checkpoint.format.commit import Commit
    from trainer.checkpoint.history import History
    from trainer.checkpoint.load.loading import LoadTarget
    from trainer.checkpoint.store.base import Store

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


class Loader:
    """Loads one store's checkpoints, and records which are intact. Every method is collective."""

    def __init__(self, ranks: Ranks, store: Store, history: History) -> None:
        self._ranks = ranks
        self._store = store
        self._history = history

    def newest(self) -> int | None:
        """See Checkpointer."""
        return self._newest(self._verify)

    def load_newest(self, target: LoadTarget) -> tuple[int, dict[str, Any]] | None:
        """See Checkpointer."""

        def load(step: int) -> tuple[int, dict[str, Any]]:
            sound = self._history.sound_files
            commit = load_checked(self._ranks, self._store, step, target, sound=sound).commit
            self._history.trust(commit)
            self._history.build_upon(commit)
            return step, dict(commit.extra)

        return self._newest(load)

    def load(self, step: int, target: LoadTarget) -> dict[str, Any]:
        """See Checkpointer."""
        commit = load_trusted(self._ranks, self._store, step, target).commit
        self._history.build_upon(commit)
        return dict(commit.extra)

    def _newest(self, attempt: Callable[[int], T]) -> T | None:
        """Return the result of `attempt` for the newest checkpoint for which it raises no DamagedError."""
        damages: list[str] = []
        for step in reversed(self._history.steps()):
            try:
                return attempt(step)
            except DamagedError as error:
                damages.append(str(error))
            self._history.distrust(step)
            if self._ranks.rank == 0:
                _LOG.warning("the checkpoint of step %d is damaged and passed over: %s", step, damages[-1])
        if damages:
            raise CheckpointError(
                f"{self._store.uri}: every checkpoint is damaged ({len(damages)} in all), the newest: "
                f"{damages[0]}; restore a copy, or start again in another checkpoint_dir"
            )
        return None

    def _verify(self, step: int) -> int:
        """Verify a checkpoint, each rank a part of its files; return its step.

        Raises:
            DamagedError: on all ranks; the message names the damage.
        """
        sound: list[str] = []

        def check() -> Commit:
            commit = catalogue.find_commit(self._store, step)
            references = sorted(commit.references, key=lambda reference: reference.name)
            unknown = [each for each in references if each.name not in self._history.sound_files]
            for reference in unknown[self._ranks.rank :: self._ranks.world_size]:
                verify(self._store, reference)
                sound.append(reference.name)
            return commit

        try:
            self._history.trust(self._ranks.trusting(unusable(step), check))
        except DamagedError:
            # Older checkpoints may share files with this one, so what was verified is not read again.
            self._history.trust_files(chain.from_iterable(self._ranks.gather(sound)))
            raise
        return step
