from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.trainer.support_state import cut, global_tensors, same_bits, whole, zeros_like
from trainer.base.errors import CheckpointError
from trainer.checkpoint import Checkpointer, Entry, TensorShard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.trainer.support_ranks import Place, RankPool

FINGERPRINT = {"dataset": "abc", "tables": {"a": [300, 8]}}


@pytest.fixture
def checkpointer(tmp_path: Path) -> Iterator[Checkpointer]:
    with Checkpointer(str(tmp_path), keep=2, rank=0, world_size=1) as checkpointer:
        yield checkpointer


def _save(place: Place, directory: str, step: int) -> tuple[int, int]:
    with Checkpointer(
        directory, keep=2, rank=place.rank, world_size=place.world_size, group=place.group
    ) as checkpointer:
        report = checkpointer.save(step, cut(place, global_tensors(step)), {"rank": place.rank}, FINGERPRINT)
    assert report is not None
    return report.step, report.bytes


def _load(place: Place, directory: str, expected_step: int) -> tuple[bool, dict[str, Any]]:
    expected = global_tensors(expected_step)
    state = cut(place, zeros_like(expected))
    with Checkpointer(
        directory, keep=2, rank=place.rank, world_size=place.world_size, group=place.group
    ) as checkpointer:
        step = checkpointer.newest()
        assert step == expected_step
        extra = checkpointer.load(step, state, FINGERPRINT)
    return same_bits(state, cut(place, expected)), extra


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_any_world_size_loads_bit_for_bit_what_another_saved(
    ranks: RankPool, tmp_path: Path, before: int, after: int
) -> None:
    reports = ranks.run(before, _save, str(tmp_path), 7)
    assert set(reports) == {(7, sum(path.stat().st_size for path in tmp_path.glob("step-*/*.bin")))}
    assert ranks.run(after, _load, str(tmp_path), 7) == [(True, {"rank": 0})] * after


def test_a_checkpoint_holds_a_file_and_a_manifest_a_rank_and_the_commit(
    ranks: RankPool, tmp_path: Path
) -> None:
    ranks.run(2, _save, str(tmp_path), 3)
    names = sorted(path.name for path in (tmp_path / "step-00000003").iterdir())
    ranks_names = [f"rank-{rank:05d}.1.1.{kind}" for rank in (0, 1) for kind in ("bin", "json")]
    assert names == ["commit-00000001.json", *ranks_names]


def test_an_empty_folder_has_no_newest_checkpoint(checkpointer: Checkpointer) -> None:
    assert checkpointer.newest() is None
    assert checkpointer.steps() == ()


def test_only_the_newest_are_kept(checkpointer: Checkpointer) -> None:
    for step in (1, 5, 30, 31):
        checkpointer.save(step, whole(global_tensors(step)), {}, FINGERPRINT)
    assert checkpointer.steps() == (30, 31)


def test_a_load_fills_the_given_tensors_in_place(checkpointer: Checkpointer) -> None:
    parameter = torch.nn.Parameter(torch.ones(4, 2))
    state = {"w": Entry((4, 2), (TensorShard(parameter, (0, 0)),))}
    checkpointer.save(1, state, {}, FINGERPRINT)
    with torch.no_grad():
        parameter.zero_()
    checkpointer.load(1, state)
    assert torch.equal(parameter, torch.ones(4, 2))


def test_saving_a_step_again_keeps_the_good_checkpoint(checkpointer: Checkpointer) -> None:
    first = checkpointer.save(4, whole(global_tensors(1)), {"n": 1}, FINGERPRINT)
    again = checkpointer.save(4, whole(global_tensors(2)), {"n": 2}, FINGERPRINT)
    state = whole(zeros_like(global_tensors(1)))
    assert first is not None
    assert again is not None
    assert again.bytes == first.bytes
    assert checkpointer.load(4, state) == {"n": 1}
    assert same_bits(state, whole(global_tensors(1)))


def test_a_step_of_another_run_is_never_overwritten(tmp_path: Path) -> None:
    for attempt in range(2):
        with Checkpointer(str(tmp_path), keep=2, rank=0, world_size=1) as checkpointer:
            if attempt:
                with pytest.raises(CheckpointError, match="from a run that this one did not resume from"):
                    checkpointer.save(4, whole(global_tensors(2)), {}, FINGERPRINT)
            else:
                checkpointer.save(4, whole(global_tensors(1)), {}, FINGERPRINT)
    assert (tmp_path / "step-00000004" / "commit-00000001.json").exists()


def _without(name: str) -> Callable[[dict[str, Entry]], object]:
    return lambda state: state.pop(name)


def _with(name: str, tensor: torch.Tensor) -> Callable[[dict[str, Entry]], object]:
    return lambda state: state.update({name: whole({name: tensor})[name]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("dense/step"), "this run has no place for dense/step"),
        (_with("dense/new", torch.zeros(1)), "it lacks dense/new"),
        (
            _with("tables/a/sums", torch.zeros(301)),
            r"tables/a/sums: float32 \[300\] in the checkpoint, float32 \[301\] in this run",
        ),
        (
            _with("tables/b/weight", torch.zeros(50, 8)),
            r"bfloat16 \[50, 8\] in the checkpoint, float32 \[50, 8\]",
        ),
    ],
)
def test_a_load_that_would_drop_or_invent_state_names_it(
    checkpointer: Checkpointer, change: Callable[[dict[str, Entry]], object], message: str
) -> None:
    checkpointer.save(1, whole(global_tensors()), {}, FINGERPRINT)
    state = dict(whole(global_tensors()))
    change(state)
    with pytest.raises(CheckpointError, match=message):
        checkpointer.load(1, state, FINGERPRINT)


def test_a_checkpoint_of_another_model_or_dataset_is_refused_with_the_difference(
    checkpointer: Checkpointer,
) -> None:
    checkpointer.save(1, whole(global_tensors()), {}, FINGERPRINT)
    other = {"dataset": "xyz", "tables": {"a": (200, 8)}}
    with pytest.raises(CheckpointError) as caught:
        checkpointer.load(1, whole(global_tensors()), other)
    assert "dataset is 'abc' in the checkpoint and 'xyz' in this run" in str(caught.value)
    assert "tables.a is [300, 8] in the checkpoint and [200, 8] in this run" in str(caught.value)


def test_a_checkpoint_of_another_schema_version_is_refused_not_passed_over(
    checkpointer: Checkpointer, tmp_path: Path
) -> None:
    for step in (1, 2):
        checkpointer.save(step, whole(global_tensors()), {}, FINGERPRINT)
    path = tmp_path / "step-00000002" / "commit-00000001.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 99}))
    with pytest.raises(CheckpointError, match="schema_version is 99, this trainer reads 2"):
        checkpointer.newest()


@pytest.mark.parametrize(
    "shards",
    [
        [TensorShard(torch.zeros(5, 2), (0, 0))],  # half is missing
        [
            TensorShard(torch.zeros(5, 2), (0, 0)),
            TensorShard(torch.zeros(5, 2), (0, 0)),
        ],  # half is there twice
    ],
)
def test_state_that_is_not_all_there_is_not_committed(
    checkpointer: Checkpointer, tmp_path: Path, shards: list[TensorShard]
) -> None:
    with pytest.raises(CheckpointError, match="w: the ranks hold"):
        checkpointer.save(1, {"w": Entry((10, 2), tuple(shards))}, {}, FINGERPRINT)
    assert not list(tmp_path.glob("step-*"))
