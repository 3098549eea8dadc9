"""A run's record of its checkpoints, without a trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.support_layers import INCREMENTAL, checkpointer, save, trained
from trainer.base.errors import CheckpointError
from trainer.checkpoint.agreement import Ranks
from trainer.checkpoint.claimed_store import ClaimedStore
from trainer.checkpoint.format.catalogue import Fallback, find_commit
from trainer.checkpoint.format.commit import ManifestReference, SaveId
from trainer.checkpoint.history import Chain, History, Written
from trainer.checkpoint.store.base import open_store

ALONE = Ranks(0, 1)


def _written(name: str, size: int) -> Written:
    return Written((ManifestReference(f"{name}.0", size, 0), ManifestReference(f"{name}.1", 1, 0)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two checkpoints above the initial state that share no file."""
    model = trained(0)
    with checkpointer(str(tmp_path), options=INCREMENTAL) as writer:
        for step in (1, 2):
            model.train(step)
            save(writer, model, step)
    return tmp_path


def test_a_full_layer_ends_a_chain_and_a_differential_extends_it(tmp_path: Path) -> None:
    history = History(ALONE, open_store(str(tmp_path)))
    history.add(1, _written("a", 100), above=Chain(None, ()))
    assert history.chain == Chain(None, (_written("a", 100).layer,), bytes_above=0)
    history.add(2, _written("b", 7), above=history.chain)
    history.add(3, _written("c", 9), above=history.chain)
    assert [history.size_of(step) for step in (1, 2, 3, 4)] == [101, 8, 10, None]
    assert history.chain.bytes_above == 18
    assert history.chain.differentials == 2
    history.add(4, _written("d", 20), above=Chain(None, history.chain.bottom))  # merged
    assert history.chain.differentials == 1
    assert history.chain.bytes_above == 18 + 21
    history.add(5, _written("e", 100), above=Chain(None, ()))
    assert (history.chain.differentials, history.chain.bytes_above) == (0, 0)


def test_the_bytes_above_an_initial_state_are_counted_from_the_first_layer(tmp_path: Path) -> None:
    history = History(ALONE, open_store(str(tmp_path)))
    history.add(1, _written("a", 100), above=Chain("drawn from a seed", ()))
    assert history.chain is not None
    assert (history.chain.differentials, history.chain.bytes_above) == (1, 101)


def test_a_loaded_checkpoint_is_the_base_and_damage_is_remembered_until_a_rewrite(
    folder: Path,
) -> None:
    store = open_store(str(folder))
    history = History(ALONE, store)
    commit = find_commit(store, 2)
    assert (history.steps(), history.newest_extra()) == ((1, 2), {"step": 2})
    assert not history.is_newest_alone  # it is not known yet
    history.build_upon(find_commit(store, 1))
    assert history.is_newest_alone
    history.build_upon(commit)
    assert not history.is_newest_alone
    assert history.chain is not None
    assert (history.chain.layers, history.chain.base) == (commit.layers, commit.base)
    assert history.chain.bytes_above == commit.bytes
    history.trust(commit)
    assert set(history.sound_files) == {reference.name for reference in commit.references}
    assert history.size_of(2) == commit.bytes
    history.distrust(9)
    history.distrust(1)
    assert history.damaged == (1, 9)
    history.add(1, _written("a", 100), above=Chain(None, ()))
    assert history.damaged == (9,)


def test_a_save_is_found_if_it_is_the_current_one_of_its_step(folder: Path) -> None:
    store = open_store(str(folder))
    history = History(ALONE, store)
    commit = find_commit(store, 2)
    found = history.find(2, SaveId(commit.owner, commit.number))
    assert found == Written(commit.layers[-1], Fallback(step=1))
    assert history.find(2, SaveId(commit.owner, commit.number + 1)) is None
    assert history.find(2, SaveId(commit.owner + 1, commit.number)) is None
    assert history.find(3, SaveId(commit.owner, commit.number)) is None


def test_a_store_has_one_owner_at_a_time_and_every_save_has_a_unique_name(tmp_path: Path) -> None:
    first = ClaimedStore(str(tmp_path / "new"), ALONE)
    with pytest.raises(CheckpointError, match=r"checkpoint_dir cannot be used: .*another run"):
        ClaimedStore(str(tmp_path / "new"), ALONE)
    assert [first.next_save(), first.next_save()] == [SaveId(1, 1), SaveId(1, 2)]
    first.release()
    first.release()
    second = ClaimedStore(str(tmp_path / "new"), ALONE)
    assert second.next_save() == SaveId(2, 1)
    second.release()
