"""Commits of several runs in one folder: their validity and their removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trainer.checkpoint.format import catalogue
from trainer.checkpoint.format.commit import (
    Commit,
    DamagedError,
    ManifestReference,
    SaveId,
    commit_name,
    encode_commit,
)
from trainer.checkpoint.store.base import open_store
from trainer.checkpoint.store.owner import claim

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.checkpoint.store.base import Store


def _commit(store: Store, step: int, owner: int, *, whose: str = "") -> None:
    commit = Commit(
        step=step,
        owner=owner,
        number=1,
        world_size=1,
        base=None,
        layers=((ManifestReference(f"step-{step:08d}/rank-00000.{owner}.1.json", 4, 0),),),
        fingerprint={},
        extra={"whose": whose},
    )
    store.create(commit_name(step, owner), encode_commit(commit))


def _claim(store: Store) -> int:
    return claim(store, lambda: catalogue.adoptable(store)).number


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "checkpoints"))


def test_a_late_commit_of_a_fenced_run_is_ignored(store: Store) -> None:
    older, newer = _claim(store), _claim(store)
    _commit(store, 100, newer, whose="newer")
    _commit(store, 100, older, whose="older")
    assert [each.step for each in catalogue.list_commits(store)] == [100]
    assert catalogue.find_commit(store, 100).extra == {"whose": "newer"}


def test_a_fenced_run_cannot_delete_commits_of_the_newer_run(store: Store) -> None:
    older = _claim(store)
    _commit(store, 50, older)
    newer = _claim(store)
    for step in (60, 70):
        _commit(store, step, newer)
    catalogue.prune(store, keep=1, keep_every=0, damaged={60, 70}, newest=SaveId(older, 9))
    assert [each.step for each in catalogue.list_commits(store)] == [50, 60, 70]


def test_a_step_rewritten_by_a_newer_run_belongs_to_the_newer_run(store: Store) -> None:
    _commit(store, 10, _claim(store), whose="first")
    _commit(store, 10, _claim(store), whose="second")
    assert catalogue.find_commit(store, 10).extra == {"whose": "second"}
    assert len(catalogue.list_commits(store)) == 1


def test_a_step_without_a_valid_commit_is_reported_as_such(store: Store) -> None:
    older = _claim(store)
    _claim(store)
    _commit(store, 10, older)
    with pytest.raises(DamagedError, match="step-00000010: has no commit that counts"):
        catalogue.find_commit(store, 10)
