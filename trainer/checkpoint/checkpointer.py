"""Saving and loading by all ranks together."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from trainer.checkpoint import commit as commits
from trainer.checkpoint.agreement import Ranks
from trainer.checkpoint.commit import Commit, DamagedError
from trainer.checkpoint.folder import CheckpointFolder
from trainer.checkpoint.lock import DirectoryLock
from trainer.checkpoint.storage import fill, verify_file, write_file
from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from torch.distributed import ProcessGroup

    from trainer.checkpoint.entry import State

_LOG = logging.getLogger(__name__)
_SHOWN = 5  # differences named in a message


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """What a save cost."""

    step: int
    seconds: float
    bytes: int  # over all ranks


class Checkpointer:
    """Keeps the newest checkpoints of one run in a folder that all ranks see.

    Every method but `close` is collective: all ranks call it, in the same order, and an error on one
    rank is raised on all of them. `group` must carry CPU objects (gloo).
    """

    def __init__(
        self, uri: str, *, keep: int, rank: int, world_size: int, group: ProcessGroup | None = None
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least one checkpoint must stay")
        self._folder = CheckpointFolder(uri)
        self._keep = keep
        self._ranks = Ranks(rank, world_size, group)
        self._good: set[int] = set()  # written or verified by this run
        self._damaged: set[int] = set()
        self._lock: DirectoryLock | None = None
        self._ranks.first("checkpoint_dir cannot be used", self._take_lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another run use the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def steps(self) -> tuple[int, ...]:
        """The steps of all committed checkpoints, oldest first, unverified."""
        return self._ranks.first("checkpoints cannot be listed", self._folder.steps)

    def newest(self) -> int | None:
        """The step of the newest checkpoint whose every byte is as written; None if there is none.

        A damaged one is passed over with a warning that names what is wrong with it.

        Raises:
            CheckpointError: there are checkpoints, but all are damaged, or of another version.
        """
        damages: list[str] = []
        for step in reversed(self.steps()):
            damage = self._verify(step)
            if damage is None:
                self._good.add(step)
                return step
            damages.append(damage)
            self._damaged.add(step)
            if self._ranks.rank == 0:
                _LOG.warning("the checkpoint of step %d is damaged and passed over: %s", step, damage)
        if damages:
            raise CheckpointError(
                f"{self._folder.path}: every checkpoint is damaged ({len(damages)} in all), the newest: "
                f"{damages[0]}; put back a copy, or start afresh in another checkpoint_dir"
            )
        return None

    def save(
        self, step: int, state: State, extra: Mapping[str, Any], fingerprint: Mapping[str, Any]
    ) -> CheckpointReport:
        """Write a checkpoint and commit it; older ones beyond `keep` are then removed.

        `extra` and `fingerprint` are JSON and taken from rank 0. Where the step has a good
        checkpoint already, as right after a resume, that one stays as it is.

        Raises:
            CheckpointError: on all ranks; what was committed before is intact.
        """
        started = time.perf_counter()
        if step in self._good:
            kept = self._ranks.first(
                "the checkpoint is gone", lambda: commits.read(self._folder.of_step(step))
            )
            return CheckpointReport(step, time.perf_counter() - started, kept.bytes)
        commit = self._write(step, state, extra, fingerprint)
        self._good.add(step)
        if self._ranks.rank == 0:
            self._folder.prune(self._keep, self._damaged - self._good)
        return CheckpointReport(step, time.perf_counter() - started, commit.bytes)

    def load(self, step: int, state: State, fingerprint: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Copy a committed checkpoint into `state`, in place; give back its `extra`.

        Any world size and any cut into shards will do. All ranks together must want every name
        that the checkpoint holds, and no other.

        Raises:
            CheckpointError: it belongs to another model or dataset, or names do not match.
        """
        problem = f"the checkpoint of step {step} in {self._folder.path} cannot be loaded"
        directory = self._folder.of_step(step)
        commit = self._ranks.together(problem, lambda: commits.read(directory))[0]
        wanted = set(chain.from_iterable(self._ranks.gather(sorted(state))))
        self._ranks.together(problem, lambda: _check_fits(commit, wanted, fingerprint))
        self._ranks.together(problem, lambda: fill(directory, commit, state))
        return dict(commit.extra)

    def _take_lock(self) -> None:
        self._folder.path.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(self._folder.path)

    def _write(
        self, step: int, state: State, extra: Mapping[str, Any], fingerprint: Mapping[str, Any]
    ) -> Commit:
        problem = f"the checkpoint of step {step} was not written, earlier ones are intact"
        rank = self._ranks.rank
        path = self._folder.unfinished(step) / f"rank-{rank:05d}.bin"
        try:
            self._ranks.first(problem, lambda: self._folder.prepare(step, self._damaged))
            written = self._ranks.together(problem, lambda: write_file(path, state, first_rank=rank == 0))
            files = {file.name: file.size for file in written}
            parts = tuple(chain.from_iterable(file.parts for file in written))
            commit = Commit(step, self._ranks.world_size, fingerprint, extra, files, parts)
            self._ranks.first(problem, lambda: self._folder.commit(commit))
        except CheckpointError:
            if rank == 0:
                self._folder.abandon(step)
            raise
        return commit

    def _verify(self, step: int) -> str | None:
        """What is wrong with a checkpoint, if anything; every rank reads some of its files."""
        directory = self._folder.of_step(step)

        def damage() -> str | None:
            try:
                commit = commits.read(directory)
                for name in sorted(commit.files)[self._ranks.rank :: self._ranks.world_size]:
                    verify_file(directory, commit, name)
            except DamagedError as error:
                return str(error)
            return None

        found = self._ranks.together(f"the checkpoint of step {step} cannot be used", damage)
        return next((each for each in found if each is not None), None)


def _check_fits(commit: Commit, wanted: set[str], fingerprint: Mapping[str, Any] | None) -> None:
    differences = () if fingerprint is None else commits.differences(fingerprint, commit.fingerprint)
    if found := list(differences):
        raise CheckpointError(
            f"it belongs to something else: {_some(found)}; use the configuration and the dataset that it "
            "was made with, or another checkpoint_dir"
        )
    stored = {part.name for part in commit.parts}
    if missing := sorted(wanted - stored):
        raise CheckpointError(f"it lacks {_some(missing)}; use the configuration that it was made with")
    if superfluous := sorted(stored - wanted):
        raise CheckpointError(
            f"this run has no place for {_some(superfluous)}; use the configuration that it was made with"
        )


def _some(found: list[str]) -> str:
    more = len(found) - _SHOWN
    return "; ".join(found[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
