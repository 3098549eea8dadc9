"""Resuming reads a checkpoint once, and trusts no byte that it has not checked."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.trainer.support_damage import DAMAGES, flip
from tests.trainer.support_layers import (
    ALONE,
    FINGERPRINT,
    INCREMENTAL,
    Model,
    checkpointer,
    same,
    save,
    trained,
)
from tests.trainer.support_state import cut, global_tensors, same_bits, whole, zeros_like
from trainer.base.errors import CheckpointError
from trainer.checkpoint import SavingOptions
from trainer.checkpoint.format.runs import runs_of
from trainer.checkpoint.load.reading import open_committed
from trainer.checkpoint.load.storage import Layers
from trainer.checkpoint.store.base import open_store

if TYPE_CHECKING:
    from tests.trainer.support_ranks import Place, RankPool

FULL = SavingOptions()
STEPS = 2


def _save_steps(place: Place, directory: str, options: SavingOptions) -> None:
    model = Model(place)
    with checkpointer(directory, place, options=options) as writer:
        for step in range(1, STEPS + 1):
            model.train(step)
            save(writer, model, step)


def _restored(place: Place, directory: str, options: SavingOptions) -> tuple[int, bool]:
    """Which step the state now is of, and whether it and what training makes of it are bit-exact."""
    model = Model(place)
    model.spoil()
    with checkpointer(directory, place, options=options) as writer:
        loaded = writer.load_newest(model.state, FINGERPRINT, initial=model)
        assert loaded is not None
        step, extra = loaded
        good = extra == {"step": step} and same(model, trained(step, place))
        model.train(step + 1)
        save(writer, model, step + 1)  # over a damaged one, where that is passed over
        again = Model(place)
        again.spoil()
        assert writer.load_newest(again.state, FINGERPRINT, initial=again) == (step + 1, {"step": step + 1})
    return step, good and same(again, trained(step + 1, place))


def _run_bytes(directory: Path) -> list[tuple[Path, int]]:
    """The middle of every run of the newest layer."""
    store = open_store(str(directory))
    layers = Layers(store, open_committed(str(directory)).commit)
    newest = [part for by_layer in layers.named.values() for part in by_layer[-1]]
    return [(directory / run.file, run.position + run.length // 2) for run in runs_of(newest) if run.length]


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (1, 2), (2, 1), (2, 3)])
@pytest.mark.parametrize("options", [FULL, INCREMENTAL], ids=["full", "incremental"])
def test_a_flipped_bit_in_any_part_is_found_on_any_plan_and_the_one_before_is_restored(
    ranks: RankPool, tmp_path: Path, before: int, after: int, options: SavingOptions
) -> None:
    pristine, copy = tmp_path / "pristine", tmp_path / "copy"
    ranks.run(before, _save_steps, str(pristine), options)
    places = _run_bytes(pristine)
    assert len(places) >= len(global_tensors())
    for path, position in places:
        shutil.copytree(pristine, copy)
        flip(copy / path.relative_to(pristine), position)
        assert ranks.run(after, _restored, str(copy), options) == [(1, True)] * after, (path, position)
        shutil.rmtree(copy)
    assert ranks.run(after, _restored, str(pristine), options) == [(2, True)] * after


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_kind_of_damage_falls_back_to_the_state_before(
    ranks: RankPool, tmp_path: Path, damage: str, world_size: int
) -> None:
    ranks.run(1, _save_steps, str(tmp_path), FULL)
    DAMAGES[damage](tmp_path / "step-00000002")
    assert ranks.run(world_size, _restored, str(tmp_path), FULL) == [(1, True)] * world_size


def test_a_skipped_checkpoint_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _save_steps(ALONE, str(tmp_path), FULL)
    DAMAGES["a flipped bit"](tmp_path / "step-00000002")
    with caplog.at_level(logging.WARNING):
        assert _restored(ALONE, str(tmp_path), FULL) == (1, True)
    assert "the checkpoint of step 2 is damaged and passed over: " in caplog.text
    assert "the bytes of tables/a/sums at (0,) have changed" in caplog.text


def test_quantised_rows_are_checked_as_they_are_stored(tmp_path: Path) -> None:
    options = replace(INCREMENTAL, quantization="int8")
    _save_steps(ALONE, str(tmp_path), options)
    for path, position in _run_bytes(tmp_path):
        flip(path, position)
        model = Model()
        with checkpointer(str(tmp_path), options=options) as writer:
            loaded = writer.load_newest(model.state, FINGERPRINT, initial=model)
        assert loaded == (1, {"step": 1})
        flip(path, position)


def test_a_load_without_a_checkpoint_changes_nothing(tmp_path: Path) -> None:
    state = whole(global_tensors())
    with checkpointer(str(tmp_path), options=FULL) as writer:
        assert writer.load_newest(state) is None
    assert same_bits(state, whole(global_tensors()))


def _error(directory: Path, fingerprint: dict[str, Any]) -> str:
    model = Model()
    with (
        checkpointer(str(directory), options=FULL) as writer,
        pytest.raises(CheckpointError) as caught,
    ):
        writer.load_newest(model.state, fingerprint, initial=model)
    return str(caught.value)


def test_where_all_are_damaged_or_of_something_else_nothing_starts_again(tmp_path: Path) -> None:
    _save_steps(ALONE, str(tmp_path), FULL)
    assert "dataset is 'abc' in the checkpoint and 'xyz' in this run" in _error(tmp_path, {"dataset": "xyz"})
    for folder in tmp_path.glob("step-*"):
        DAMAGES["a flipped bit"](folder)
    assert "every checkpoint is damaged (2 in all), the newest: " in _error(tmp_path, FINGERPRINT)
    path = tmp_path / "step-00000002" / "commit-00000001.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 99}))
    assert "step 2 cannot be used: " in _error(tmp_path, FINGERPRINT)
    assert "schema_version is 99, this trainer reads 2" in _error(tmp_path, FINGERPRINT)


def _large() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "tables/a/weight": torch.randn(200_000, 8, generator=generator),
        "tables/a/sums": torch.rand(200_000, generator=generator),
        "tables/c/weight": torch.randn(50_000, 6, generator=generator),
        "dense/kernel": torch.randn(30, 40, generator=generator),
    }


def _save_large(place: Place, directory: str) -> None:
    with checkpointer(directory, place, options=FULL) as writer:
        writer.save(1, cut(place, _large()), {}, FINGERPRINT)


def _bytes_read(place: Place, directory: str) -> int:
    """What the system has read for this process while it resumed."""
    expected = _large()
    state = cut(place, zeros_like(expected))
    with checkpointer(directory, place, options=FULL) as writer:
        before = _read_by_system_calls()
        loaded = writer.load_newest(state, FINGERPRINT)
        read = _read_by_system_calls() - before
    assert loaded == (1, {})
    assert same_bits(state, cut(place, expected))
    return read


def _read_by_system_calls() -> int:
    name, number = Path("/proc/self/io").read_text(encoding="ascii").splitlines()[0].split()
    assert name == "rchar:"
    return int(number)


@pytest.mark.parametrize(("before", "after", "most"), [(1, 1, 1.05), (2, 2, 1.05), (2, 1, 1.05), (1, 2, 2.3)])
def test_resuming_reads_a_checkpoint_once_or_twice_where_no_rank_wants_its_parts_whole(
    ranks: RankPool, tmp_path: Path, before: int, after: int, most: float
) -> None:
    ranks.run(before, _save_large, str(tmp_path))
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.bin"))
    read = sum(ranks.run(after, _bytes_read, str(tmp_path)))
    assert size <= read <= most * size
