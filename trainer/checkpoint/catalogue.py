"""What a store holds: which checkpoints count, and which files none of them needs any more."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.checkpoint.commit import Commit, DamagedError, SaveId, commit_name, read_commit
from trainer.checkpoint.owner import current_owner
from trainer.checkpoint.store import StoreError
from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from trainer.checkpoint.store import Store

_LOG = logging.getLogger(__name__)
_COMMITTED = re.compile(r"step-(\d{8,})/commit\.json")
_WRITTEN = re.compile(r"step-\d{8,}/rank-\d+\.(\d+)\.(\d+)\.(?:bin|json)")


@dataclass(frozen=True, slots=True)
class Listed:
    """A commit file, and what is in it or why that cannot be told."""

    step: int
    commit: Commit | None
    problem: CheckpointError | None = None


def list_commits(store: Store) -> list[Listed]:
    """Every commit that counts or cannot be read, oldest step first."""
    owner = current_owner(store)
    listed = []
    for step in _steps(store):
        try:
            commit = read_commit(store, step)
        except StoreError:
            raise
        except CheckpointError as error:
            listed.append(Listed(step, None, error))
            continue
        if owner.counts(key_of(commit), commit.owner):
            listed.append(Listed(step, commit))
    return listed


def adoptable(store: Store) -> dict[str, int]:
    """For `owner.claim`: every commit that can be read, with its owner."""
    found = {}
    for step in _steps(store):
        try:
            commit = read_commit(store, step)
        except StoreError:
            raise
        except CheckpointError:
            continue  # damaged: whoever resumes tells
        found[key_of(commit)] = commit.owner
    return found


def key_of(commit: Commit) -> str:
    """What a commit is known by: no two have the same, though they be of one step."""
    return f"{commit_name(commit.step)} of {commit.owner}.{commit.number}"


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
    needed = {name for commit in kept for name in commit.files} | {commit_name(each.step) for each in kept}
    names = store.sizes("step-")
    store.remove([name for name in names if _COMMITTED.fullmatch(name) and name not in needed])  # these first
    store.remove([name for name in names if name not in needed and _is_old(name, newest)])


def remove_save(store: Store, step: int, save: SaveId) -> None:
    """Remove what a failed save wrote; nothing committed is touched."""
    endings = (f".{save.owner}.{save.number}.bin", f".{save.owner}.{save.number}.json")
    try:
        prefix = commit_name(step).rpartition("/")[0] + "/rank-"
        store.remove([name for name in store.sizes(prefix) if name.endswith(endings)])
    except CheckpointError as error:
        _LOG.warning("what a failed save left could not be removed, which costs space only: %s", error)


def _steps(store: Store) -> list[int]:
    matches: Iterable[re.Match[str] | None] = (_COMMITTED.fullmatch(name) for name in store.sizes("step-"))
    return sorted(int(match[1]) for match in matches if match)


def _is_old(name: str, newest: SaveId) -> bool:
    match = _WRITTEN.fullmatch(name)
    return match is not None and (int(match[1]), int(match[2])) <= (newest.owner, newest.number)
