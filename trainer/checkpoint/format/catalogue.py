"""The catalogue of a store: which checkpoints count, and which files no checkpoint needs."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.base.errors import CheckpointError
from trainer.checkpoint.format.commit import Commit, DamagedError, SaveId, commit_name, folder_of, read_commit
from trainer.checkpoint.store.base import StoreError
from trainer.checkpoint.store.owner import current_owner

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from trainer.checkpoint.store.base import Store

_LOG = logging.getLogger(__name__)
_COMMITTED = re.compile(r"step-(\d{8,})/commit-(\d{8,})\.json")
_WRITTEN = re.compile(r"step-\d{8,}/rank-\d+\.(\d+)\.(\d+)\.(?:bin|json)")


@dataclass(frozen=True, slots=True)
class Listed:
    """A commit file with its contents, or with the reason why it cannot be read."""

    step: int
    name: str
    commit: Commit | None
    problem: CheckpointError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The checkpoint that a run can resume from if any one file of another checkpoint is damaged.

    Args:
        step: the newest kept checkpoint that shares no file with the other one; None if there is none.
        shared_layers: if `step` is None, the number of layers shared with the checkpoint before it.
        shared_with: the step of that earlier checkpoint; None if there is no earlier checkpoint.
    """

    step: int | None
    shared_layers: int = 0
    shared_with: int | None = None


def list_commits(store: Store) -> list[Listed]:
    """Return every commit that counts, oldest step first; of several for one step, the newest run's."""
    owner = current_owner(store)
    counting = {step: name for step, number, name in _names(store) if owner.counts(name, number)}
    return [_read(store, step, name) for step, name in sorted(counting.items())]


def find_commit(store: Store, step: int) -> Commit:
    """Return the commit of a step that counts.

    Raises:
        DamagedError: there is none, or its checksum does not match.
        CheckpointError: it was written by another version.
    """
    owner = current_owner(store)
    names = [name for found, number, name in _names(store) if found == step and owner.counts(name, number)]
    if not names:
        raise DamagedError(f"{store.uri}/{folder_of(step)}: has no commit that counts")
    return read_commit(store, names[-1])


def adoptable(store: Store) -> dict[str, int]:
    """Return the owner's number of every commit, by the commit's name, as `owner.claim` needs it."""
    return {name: number for _, number, name in _names(store)}


def _read(store: Store, step: int, name: str) -> Listed:
    try:
        return Listed(step, name, read_commit(store, name))
    except StoreError:
        raise
    except CheckpointError as error:
        return Listed(step, name, None, error)


def prune(
    store: Store, *, keep: int, keep_every: int, damaged: Collection[int], newest: SaveId
) -> Fallback | None:
    """Remove damaged and old checkpoints; return the fallback of the newest one, None if it is not known.

    Keeps the `keep` newest sound checkpoints, and those at multiples of `keep_every` steps (0: none). With a
    `keep` of 2 or more, it also keeps the newest one that shares no file with the last, since all in between
    may be differentials above one layer. Files that no kept checkpoint needs are removed, except those of
    saves later than `newest`, which may be in progress. An error of the store is a warning, not an exception.
    """
    try:
        return _prune(store, keep, keep_every, damaged, newest)
    except CheckpointError as error:
        _LOG.warning("an old checkpoint could not be removed, which costs space only: %s", error)
        return None


def find_fallback(store: Store, step: int, damaged: Collection[int]) -> Fallback:
    """Return the checkpoint to resume from if a file of this step's checkpoint is damaged."""
    sound = [each.commit for each in list_commits(store) if each.commit and each.step not in damaged]
    of_step = [commit for commit in sound if commit.step == step]
    if not of_step:
        return Fallback(step=None)
    return _fallback(of_step[0], [commit for commit in sound if commit.step < step])


def _fallback(commit: Commit, older: Sequence[Commit]) -> Fallback:
    apart = [each.step for each in older if not _shared_layers(commit, each)]
    if apart or not older:
        return Fallback(step=max(apart, default=None))
    return Fallback(step=None, shared_layers=_shared_layers(commit, older[-1]), shared_with=older[-1].step)


def _shared_layers(commit: Commit, other: Commit) -> int:
    return len({*commit.layers} & {*other.layers})


def _prune(
    store: Store, keep: int, keep_every: int, damaged: Collection[int], newest: SaveId
) -> Fallback | None:
    listed = list_commits(store)
    if any(each.problem is not None and not isinstance(each.problem, DamagedError) for each in listed):
        # A commit of another format version may need any of these files, so none is removed.
        return None
    sound = [each.commit for each in listed if each.commit is not None and each.step not in damaged]
    if not sound:
        return None
    fallback = _fallback(sound[-1], sound[:-1]) if keep > 1 else Fallback(step=None)
    kept = [
        each
        for number, each in enumerate(reversed(sound))
        if number < keep or each.step == fallback.step or (keep_every and each.step % keep_every == 0)
    ]
    needed = {name for commit in kept for name in (*commit.files, commit_name(commit.step, commit.owner))}
    old = [name for _, number, name in _names(store) if number <= newest.owner and name not in needed]
    names = store.sizes("step-")
    # Commits first: a crash in between must not leave a commit that names missing files.
    store.remove(old)
    store.remove([name for name in names if name not in needed and _is_old(name, newest)])
    return fallback


def remove_save(store: Store, step: int, save: SaveId) -> None:
    """Remove the files of a failed save; committed files are not touched."""
    endings = (f".{save.owner}.{save.number}.bin", f".{save.owner}.{save.number}.json")
    try:
        prefix = f"{folder_of(step)}/rank-"
        store.remove([name for name in store.sizes(prefix) if name.endswith(endings)])
    except CheckpointError as error:
        _LOG.warning("what a failed save left could not be removed, which costs space only: %s", error)


def _names(store: Store) -> list[tuple[int, int, str]]:
    """Return (step, owner, name) of every commit, oldest first."""
    matches: Iterable[re.Match[str] | None] = (_COMMITTED.fullmatch(name) for name in store.sizes("step-"))
    return sorted((int(match[1]), int(match[2]), match[0]) for match in matches if match)


def _is_old(name: str, newest: SaveId) -> bool:
    match = _WRITTEN.fullmatch(name)
    return match is not None and (int(match[1]), int(match[2])) <= (newest.owner, newest.number)
