"""What a store holds: which checkpoints count, and which files none of them needs any more."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.checkpoint.commit import (
    Commit,
    DamagedError,
    SaveId,
    commit_name,
    folder_of,
    read_commit,
)
from trainer.checkpoint.owner import current_owner
from trainer.checkpoint.store import StoreError
from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from trainer.checkpoint.store import Store

_LOG = logging.getLogger(__name__)
_COMMITTED = re.compile(r"step-(\d{8,})/commit-(\d{8,})\.json")
_WRITTEN = re.compile(r"step-\d{8,}/rank-\d+\.(\d+)\.(\d+)\.(?:bin|json)")


@dataclass(frozen=True, slots=True)
class Listed:
    """A commit file, and what is in it or why that cannot be told."""

    step: int
    name: str
    commit: Commit | None
    problem: CheckpointError | None = None


def list_commits(store: Store) -> list[Listed]:
    """Every commit that counts, oldest step first; of a step's several the newest run's."""
    owner = current_owner(store)
    counting = {step: name for step, number, name in _names(store) if owner.counts(name, number)}
    return [_read(store, step, name) for step, name in sorted(counting.items())]


def find_commit(store: Store, step: int) -> Commit:
    """The commit of a step that counts.

    Raises:
        DamagedError: there is none, or it is not what was written.
        CheckpointError: it was written by another version.
    """
    owner = current_owner(store)
    names = [name for found, number, name in _names(store) if found == step and owner.counts(name, number)]
    if not names:
        raise DamagedError(f"{store.uri}/{folder_of(step)}: has no commit that counts")
    return read_commit(store, names[-1])


def adoptable(store: Store) -> dict[str, int]:
    """For `owner.claim`: every commit, with its owner."""
    return {name: number for _, number, name in _names(store)}


def _read(store: Store, step: int, name: str) -> Listed:
    try:
        return Listed(step, name, read_commit(store, name))
    except StoreError:
        raise
    except CheckpointError as error:
        return Listed(step, name, None, error)


def prune(store: Store, *, keep: int, keep_every: int, damaged: Collection[int], newest: SaveId) -> None:
    """Remove what is damaged or too old, which never fails the run.

    The `keep` newest sound checkpoints stay, and those of every `keep_every` steps (0: none). What no
    kept one needs goes, unless a later save than `newest` wrote it: it may be under way.
    """
    try:
        _prune(store, keep, keep_every, damaged, newest)
    except CheckpointError as error:
        _LOG.warning("an old checkpoint could not be removed, which costs space only: %s", error)


def _prune(store: Store, keep: int, keep_every: int, damaged: Collection[int], newest: SaveId) -> None:
    listed = list_commits(store)
    if any(each.problem is not None and not isinstance(each.problem, DamagedError) for each in listed):
        return  # of another version: nothing here is understood well enough to be removed
    sound = [each.commit for each in listed if each.commit is not None and each.step not in damaged]
    kept = sound[-keep:] + [each for each in sound[:-keep] if keep_every and each.step % keep_every == 0]
    if not kept:
        return
    needed = {name for commit in kept for name in (*commit.files, commit_name(commit.step, commit.owner))}
    old = [name for _, number, name in _names(store) if number <= newest.owner and name not in needed]
    names = store.sizes("step-")
    store.remove(old)  # these first
    store.remove([name for name in names if name not in needed and _is_old(name, newest)])


def remove_save(store: Store, step: int, save: SaveId) -> None:
    """Remove what a failed save wrote; nothing committed is touched."""
    endings = (f".{save.owner}.{save.number}.bin", f".{save.owner}.{save.number}.json")
    try:
        prefix = f"{folder_of(step)}/rank-"
        store.remove([name for name in store.sizes(prefix) if name.endswith(endings)])
    except CheckpointError as error:
        _LOG.warning("what a failed save left could not be removed, which costs space only: %s", error)


def _names(store: Store) -> list[tuple[int, int, str]]:
    """Step, owner and name of every commit, oldest first."""
    matches: Iterable[re.Match[str] | None] = (_COMMITTED.fullmatch(name) for name in store.sizes("step-"))
    return sorted((int(match[1]), int(match[2]), match[0]) for match in matches if match)


def _is_old(name: str, newest: SaveId) -> bool:
    match = _WRITTEN.fullmatch(name)
    return match is not None and (int(match[1]), int(match[2])) <= (newest.owner, newest.number)
