from __future__ import annotations

import logging
import os
import resource
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.trainer.support_damage import DAMAGES, commit_of
from tests.trainer.support_layers import die_at
from tests.trainer.support_ranks import RankPool
from tests.trainer.support_state import cut, global_tensors, same_bits, whole, zeros_like
from trainer.base.errors import CheckpointError
from trainer.checkpoint import Checkpointer
from trainer.checkpoint.store.lock import DirectoryLock

if TYPE_CHECKING:
    from tests.trainer.support_ranks import Place


def _open(directory: Path, keep: int = 2) -> Checkpointer:
    return Checkpointer(str(directory), keep=keep, rank=0, world_size=1)


@pytest.fixture
def two_steps(tmp_path: Path) -> Path:
    """A folder with the checkpoints of steps 1 and 2."""
    with _open(tmp_path) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, whole(global_tensors(step)), {}, {})
    return tmp_path


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    two_steps: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    DAMAGES[damage](two_steps / "step-00000002")
    state = whole(zeros_like(global_tensors()))
    with _open(two_steps) as checkpointer, caplog.at_level(logging.WARNING):
        assert checkpointer.newest() == 1
        checkpointer.load(1, state)
    assert same_bits(state, whole(global_tensors(1)))
    assert "the checkpoint of step 2 is damaged" in caplog.text
    assert "step-00000002" in caplog.text


def test_the_good_checkpoint_stays_until_a_new_one_replaces_the_damaged(two_steps: Path) -> None:
    DAMAGES["a flipped bit"](two_steps / "step-00000002")
    with _open(two_steps, keep=1) as checkpointer:
        assert checkpointer.newest() == 1
        checkpointer.save(2, whole(global_tensors(7)), {}, {})
        assert checkpointer.newest() == 2
        assert checkpointer.steps() == (2,)


def test_a_damaged_checkpoint_does_not_count_among_those_kept(two_steps: Path) -> None:
    DAMAGES["a missing file"](two_steps / "step-00000002")
    with _open(two_steps, keep=2) as checkpointer:
        assert checkpointer.newest() == 1
        checkpointer.save(3, whole(global_tensors(3)), {}, {})
        assert checkpointer.steps() == (1, 3)


def test_when_all_are_damaged_nothing_starts_again_by_itself(two_steps: Path) -> None:
    for folder in two_steps.glob("step-*"):
        DAMAGES["a flipped bit"](folder)
    with (
        _open(two_steps) as checkpointer,
        pytest.raises(CheckpointError, match="every checkpoint is damaged"),
    ):
        checkpointer.newest()


def test_uncommitted_files_do_not_count_and_are_removed_by_the_next_save(two_steps: Path) -> None:
    commit_of(two_steps / "step-00000002").unlink()
    (two_steps / ".tmp").mkdir(exist_ok=True)
    (two_steps / ".tmp" / "left").write_bytes(b"by a dead attempt")
    with _open(two_steps) as checkpointer:
        assert checkpointer.newest() == 1
        checkpointer.save(2, whole(global_tensors(2)), {}, {})
        assert checkpointer.newest() == 2
    assert not list(two_steps.glob(".tmp/*"))
    assert len(list((two_steps / "step-00000002").iterdir())) == 3


def test_a_second_run_in_the_same_folder_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    with (
        _open(tmp_path),
        pytest.raises(CheckpointError, match=rf"another run writes .* \(process {os.getpid()} on"),
    ):
        _open(tmp_path)
    _open(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"checkpoint_dir cannot be used: .*file"):
        _open(tmp_path / "file" / "checkpoints")


def _save_with_a_full_disk(place: Place, directory: str) -> str:
    """Save step 1; then step 2 where the last rank's disk takes no more than 1 KiB a file."""
    state = cut(place, global_tensors())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Checkpointer(
        directory, keep=2, rank=place.rank, world_size=place.world_size, group=place.group
    ) as checkpointer:
        checkpointer.save(1, state, {}, {})
        if place.rank == place.world_size - 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
        try:
            with pytest.raises(CheckpointError) as caught:
                checkpointer.save(2, state, {}, {})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert checkpointer.newest() == 1
        assert checkpointer.steps() == (1,)
        checkpointer.save(3, state, {}, {})
    return str(caught.value)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_disk_that_is_full_on_one_rank_fails_the_save_on_all_and_spoils_nothing(
    ranks: RankPool, tmp_path: Path, world_size: int
) -> None:
    messages = ranks.run(world_size, _save_with_a_full_disk, str(tmp_path))
    assert len(set(messages)) == 1
    assert messages[0].startswith("the checkpoint of step 2 was not written, earlier ones are intact: ")
    assert "File too large" in messages[0]
    folders = sorted(path.name for path in tmp_path.glob("step-*"))
    assert folders == ["step-00000001", "step-00000003"]


def _save_with_an_unwritable_extra(place: Place, directory: str) -> str:
    with Checkpointer(
        directory, keep=2, rank=place.rank, world_size=place.world_size, group=place.group
    ) as checkpointer:
        extra: dict[str, Any] = {"bad": object() if place.rank == 0 else 1}
        with pytest.raises(CheckpointError) as caught:
            checkpointer.save(1, cut(place, global_tensors()), extra, {})
        assert checkpointer.newest() is None
    return str(caught.value)


def test_a_commit_that_fails_on_rank_0_fails_on_all(ranks: RankPool, tmp_path: Path) -> None:
    messages = ranks.run(2, _save_with_an_unwritable_extra, str(tmp_path))
    assert messages[0] == messages[1]
    assert not list(tmp_path.glob("step-*"))


def _crash_at_every_point(_place: Place, pristine: str, directory: str) -> int:
    """Save step 3 over a copy of `pristine` again and again, dying one change later each time.

    After every death the newest checkpoint must be whole, and a new attempt must succeed.
    """
    expected = {step: whole(global_tensors(step)) for step in (1, 2, 3)}
    for point in range(1, 200):
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(pristine, directory)
        child = os.fork()
        if child == 0:
            with _open(Path(directory)) as checkpointer:
                checkpointer.newest()
                die_at(point)
                checkpointer.save(3, expected[3], {}, {})
            os._exit(0)
        died = os.waitpid(child, 0)[1] != 0
        state = whole(zeros_like(global_tensors()))
        with _open(Path(directory)) as checkpointer:
            newest = checkpointer.newest()
            assert newest in ({2, 3} if died else {3}), f"point {point}: {newest}"
            checkpointer.load(newest, state)
            assert same_bits(state, expected[newest]), f"point {point}"
            checkpointer.save(4, expected[3], {}, {})
            assert checkpointer.newest() == 4
        if not died:
            return point - 1
    raise AssertionError("the save never came to its end")


def test_a_death_at_any_point_of_a_save_leaves_a_whole_newest_checkpoint(
    ranks: RankPool, two_steps: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (points,) = ranks.run(
        1, _crash_at_every_point, str(two_steps), str(tmp_path_factory.mktemp("copy") / "c")
    )
    assert points > 8


def _save_while_a_rank_dies(place: Place, directory: str) -> None:
    state = cut(place, global_tensors())
    checkpointer = Checkpointer(
        directory, keep=2, rank=place.rank, world_size=place.world_size, group=place.group
    )
    checkpointer.save(1, state, {}, {})
    if place.rank == 1:
        die_at(1)  # before it opens its file
    with pytest.raises(RuntimeError, match=r"(?i)connection|peer"):
        checkpointer.save(2, state, {}, {})
    checkpointer.close()


def test_a_rank_that_dies_in_a_save_keeps_no_one_waiting_and_spoils_nothing(tmp_path: Path) -> None:
    with (
        RankPool(2, tmp_path) as own,
        pytest.raises(AssertionError, match="rank 1: its process died"),
    ):
        own.run(2, _save_while_a_rank_dies, str(tmp_path / "checkpoints"))
    state = whole(zeros_like(global_tensors()))
    with _open(tmp_path / "checkpoints") as checkpointer:
        assert checkpointer.newest() == 1
        checkpointer.load(1, state)
    assert same_bits(state, whole(global_tensors()))


def _hold(_place: Place, directory: str) -> int:
    """Die silently while holding the lock."""
    child = os.fork()
    if child == 0:
        _open(Path(directory))
        os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_lock_of_a_dead_process_holds_no_one_up(ranks: RankPool, tmp_path: Path) -> None:
    assert ranks.run(1, _hold, str(tmp_path)) == [9]
    _open(tmp_path).close()


def test_the_files_of_a_rank_that_holds_nothing_are_fine(tmp_path: Path) -> None:
    with _open(tmp_path) as checkpointer:
        checkpointer.save(1, {}, {"only": "extra"}, {})
        assert checkpointer.newest() == 1
        assert checkpointer.load(1, {}) == {"only": "extra"}


def test_numbers_of_every_kind_survive(tmp_path: Path) -> None:
    kinds = [torch.float64, torch.float16, torch.int8, torch.uint8, torch.int32, torch.bool]
    tensors = {str(kind): torch.tensor([0, 1, 1]).to(kind) for kind in kinds}
    tensors["nan"] = torch.tensor([float("nan"), -0.0, float("inf")])
    state = whole(zeros_like(tensors))
    with _open(tmp_path) as checkpointer:
        checkpointer.save(1, whole(tensors), {}, {})
        checkpointer.load(1, state)
    for name, tensor in tensors.items():
        assert torch.equal(state[name].shards[0].tensor.view(torch.uint8), tensor.view(torch.uint8)), name


def test_a_run_waits_a_moment_for_one_that_is_ending(tmp_path: Path) -> None:
    ending = DirectoryLock(tmp_path)
    leaves = threading.Timer(0.3, ending.release)
    leaves.start()
    DirectoryLock(tmp_path).release()
    leaves.join()
