from __future__ import annotations

import logging
import os
import shutil
import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tests.trainer.support_damage import DAMAGES_OF_A_FILE, commit_of
from tests.trainer.support_layers import (
    ALONE,
    FINGERPRINT,
    INCREMENTAL,
    Model,
    checkpointer,
    die_at,
    load,
    same,
    save,
    trained,
)
from trainer.base.arguments import make_config
from trainer.base.errors import CheckpointError, ConfigError
from trainer.base.row_stamps import Intervals, RowStamps
from trainer.checkpoint.format.catalogue import Fallback
from trainer.checkpoint.format.coding import decode_rows, dequantize, encode_rows, quantize
from trainer.checkpoint.load.reading import open_committed
from trainer.checkpoint.save.saves import SavingOptions
from trainer.checkpoint.store.lock import FILE_NAME as LOCK
from trainer.checkpoint.store.owner import FencedError

if TYPE_CHECKING:
    from tests.trainer.support_ranks import Place, RankPool


def _train_and_save(place: Place, directory: str, steps: int, options: SavingOptions) -> list[int]:
    model = Model(place)
    sizes = []
    with checkpointer(directory, place, options=options) as writer:
        for step in range(1, steps + 1):
            model.train(step)
            save(writer, model, step)
            sizes.append(step)
    return sizes


def _go_on(place: Place, directory: str, step: int, options: SavingOptions) -> bool:
    """Load, compare with an unbroken run, take three steps more, save each, and compare again."""
    with checkpointer(directory, place, options=options) as writer:
        assert writer.newest() == step
        model = load(writer, step, place)
        good = same(model, trained(step, place))
        for later in range(step + 1, step + 4):
            model.train(later)
            save(writer, model, later)
        again = load(writer, step + 3, place)
        return good and same(again, trained(step + 3, place))


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_chain_continues_bit_for_bit_on_any_world_size(
    ranks: RankPool, tmp_path: Path, before: int, after: int
) -> None:
    ranks.run(before, _train_and_save, str(tmp_path), 2, INCREMENTAL)
    assert ranks.run(after, _go_on, str(tmp_path), 2, INCREMENTAL) == [True] * after


@pytest.mark.parametrize("mode", ["auto", "full", "incremental"])
def test_every_mode_restores_bit_for_bit_however_long_the_chain(tmp_path: Path, mode: str) -> None:
    options = SavingOptions(mode=mode, chain=2)  # type: ignore[arg-type]
    model = Model()
    with checkpointer(str(tmp_path), options=options) as writer:
        for step in range(1, 9):
            model.train(step)
            save(writer, model, step)
            assert same(load(writer, step), trained(step)), step


def test_a_differential_holds_what_was_touched_and_a_merged_one_what_was_touched_since_the_base(
    tmp_path: Path,
) -> None:
    model = Model()
    with checkpointer(str(tmp_path), keep=9, options=INCREMENTAL) as writer:
        kinds = []
        for step in range(1, 7):
            model.train(step)
            report = writer.save(step, model.state, {}, {}, initial=model)
            assert report is not None
            kinds.append((report.kind, len(open_committed(str(tmp_path)).commit.layers)))
    chain = [("merged", 1), ("differential", 2), ("differential", 3)]
    assert kinds == [("differential", 1), *chain, *chain[:2]]


def test_auto_writes_everything_where_most_rows_were_touched(tmp_path: Path) -> None:
    model = Model()
    with checkpointer(str(tmp_path), options=replace(INCREMENTAL, mode="auto")) as writer:
        for step, rows, kind in ((1, 3, "differential"), (2, 2000, "full"), (3, 3, "differential")):
            model.train(step, rows=rows)
            report = writer.save(step, model.state, {}, {}, initial=model)
            assert report is not None
            assert report.kind == kind


def test_without_an_initial_state_the_first_checkpoint_is_full(tmp_path: Path) -> None:
    model = trained(1)
    with checkpointer(str(tmp_path), options=INCREMENTAL) as writer:
        for step, kind in ((1, "full"), (2, "full"), (3, "differential")):
            report = writer.save(step, model.state, {}, {})
            assert report is not None
            assert report.kind == kind
        other = Model()
        other.spoil()
        writer.load(3, other.state)
    assert same(model, other)


def test_a_checkpoint_of_another_initial_state_is_refused(tmp_path: Path) -> None:
    model = trained(1)
    with checkpointer(str(tmp_path), options=INCREMENTAL) as writer:
        save(writer, model, 1)
        other = Model()
        other.identity = "drawn otherwise"
        with pytest.raises(CheckpointError, match="initial state, which is drawn otherwise here"):
            writer.load(1, other.state, initial=other)
        with pytest.raises(CheckpointError, match="initial state"):
            writer.load(1, other.state)


def test_quantised_weights_are_within_a_step_and_everything_else_is_exact(tmp_path: Path) -> None:
    options = replace(INCREMENTAL, quantization="int8")
    _train_and_save(ALONE, str(tmp_path), 2, options)
    with checkpointer(str(tmp_path), options=options) as writer:
        found, expected = load(writer, 2).tensors, trained(2).tensors
    for name, tensor in expected.items():
        if name.endswith("/weight") and tensor.dtype == torch.float32:
            span = tensor.max(dim=1).values - tensor.min(dim=1).values
            assert bool(((found[name] - tensor).abs().max(dim=1).values <= span / 255).all()), name
            assert not torch.equal(found[name], tensor)
        else:
            assert torch.equal(found[name], tensor), name


def test_eight_bits_take_a_quarter_of_the_weights_bytes_and_rows_that_are_not_finite_stay_so() -> None:
    rows = torch.randn(50, 65).numpy()
    rows[3, 4] = float("nan")
    rows[5] = 0.25
    coded = quantize(rows)
    assert coded.shape == (50, 8 + 65)
    back = dequantize(coded, 65, "int8")
    assert torch.isnan(torch.from_numpy(back[3])).all()
    assert (back[5] == 0.25).all()


def test_rows_in_four_bits_of_an_earlier_version_are_read() -> None:
    step_and_least = struct.pack("<ff", 0.5, -1.0)
    coded = np.frombuffer(step_and_least + bytes([0x21, 0xF0, 0x03]), dtype=np.uint8).reshape(1, 11)
    assert dequantize(coded, 5, "int4").tolist() == [[-0.5, 0.0, -1.0, 6.5, 0.5]]  # low bits first


def test_four_bits_are_no_longer_offered() -> None:
    with pytest.raises(
        ConfigError, match="checkpoint_quantization: input should be 'none' or 'int8', but it is 'int4'"
    ):
        make_config({"checkpoint_quantization": "int4"})


@pytest.mark.parametrize("rows", [[], [0], [7, 9, 62], list(range(64)), list(range(0, 64, 2)), [63]])
def test_rows_are_encoded_in_the_shortest_way(rows: list[int]) -> None:
    coding, data = encode_rows(torch.tensor(rows, dtype=torch.int64).numpy(), 64)
    assert decode_rows(coding, data, 64).tolist() == rows
    assert len(data) <= 8


def test_stamps_show_what_was_touched_since_a_cut_through_more_cuts_than_a_byte_counts() -> None:
    intervals = Intervals()
    stamps = RowStamps(intervals.add(600, torch.device("cpu")), intervals)
    for number in range(600):
        stamps.touch(torch.tensor([number]))
        cut = intervals.cut()
        assert stamps.count(intervals.saved) == 1 + (number % 3 != 0) * (number % 3)
        assert stamps.count(intervals.base) == number + 1
        if number % 3 == 2:  # two writes of three fail
            intervals.commit(cut, base=False)
    intervals.commit(intervals.cut(), base=True)
    assert stamps.count(intervals.base) == 0


def test_layers_in_older_folders_stay_as_long_as_a_kept_checkpoint_needs_them(tmp_path: Path) -> None:
    model = Model()
    with checkpointer(str(tmp_path), keep=1, options=INCREMENTAL) as writer:
        for step in range(1, 4):
            model.train(step)
            save(writer, model, step)
        assert writer.steps() == (3,)
        files = {path.parent.name for path in tmp_path.rglob("*.bin")}
        assert files == {"step-00000001", "step-00000002", "step-00000003"}
        model.train(4)
        save(writer, model, 4)  # merged: the older ones can go
        assert {path.parent.name for path in tmp_path.rglob("*.bin")} == {"step-00000004"}
        assert same(load(writer, 4), trained(4))


def test_every_so_many_steps_a_checkpoint_is_kept_forever(tmp_path: Path) -> None:
    model = Model()
    options = replace(INCREMENTAL, keep_every=4)
    with checkpointer(str(tmp_path), keep=1, options=options) as writer:
        for step in range(1, 11):
            model.train(step)
            save(writer, model, step)
        assert writer.steps() == (4, 8, 10)
        assert all(same(load(writer, step), trained(step)) for step in writer.steps())


def test_damage_in_a_layer_that_several_need_falls_back_to_the_one_before_all_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _train_and_save(ALONE, str(tmp_path), 3, replace(INCREMENTAL, keep_every=1))
    layer = next((tmp_path / "step-00000002").glob("*.bin"))
    content = bytearray(layer.read_bytes())
    content[70] ^= 1
    layer.write_bytes(content)
    with checkpointer(str(tmp_path), options=INCREMENTAL) as writer, caplog.at_level(logging.WARNING):
        assert writer.newest() == 1
        model = load(writer, 1)
        assert same(model, trained(1))
        for step in (2, 3):
            model.train(step)
            save(writer, model, step)
        assert writer.newest() == 3
        assert same(load(writer, 3), trained(3))
    assert "the checkpoint of step 3 is damaged" in caplog.text
    assert "step-00000002" in caplog.text


@pytest.mark.parametrize("damage", DAMAGES_OF_A_FILE)
@pytest.mark.parametrize("mode", ["auto", "full", "incremental"])
@pytest.mark.parametrize("steps", [2, 3, 7])
def test_no_damage_to_one_file_costs_every_checkpoint(
    tmp_path: Path, damage: str, mode: str, steps: int
) -> None:
    options = replace(INCREMENTAL, mode=mode)  # type: ignore[arg-type]
    _train_and_save(ALONE, str(tmp_path / "whole"), steps, options)
    files = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.*")]
    for file in (each for each in files if each.suffix in (".bin", ".json")):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", copy)
        DAMAGES_OF_A_FILE[damage](copy / file)
        with checkpointer(str(copy), options=options) as writer:
            newest = writer.newest()
            assert newest is not None, file
            assert same(load(writer, newest), trained(newest)), file


def test_a_checkpoint_without_a_fallback_is_reported_and_the_next_begins_a_chain(
    tmp_path: Path,
) -> None:
    model = Model()
    with checkpointer(str(tmp_path), options=INCREMENTAL) as writer:
        reports = []
        for step in range(1, 6):
            model.train(step)
            report = writer.save(step, model.state, {"step": step}, FINGERPRINT, initial=model)
            assert report is not None
            reports.append((report.kind, report.fallback))
            if step == 3:
                commit_of(tmp_path / "step-00000001").unlink()
    assert reports == [
        ("differential", Fallback(step=None)),
        ("merged", Fallback(step=1)),
        ("differential", Fallback(step=1)),
        ("differential", Fallback(step=None, shared_layers=2, shared_with=3)),
        ("merged", Fallback(step=4)),
    ]


def test_a_run_resumed_from_the_only_checkpoint_begins_a_chain(
    tmp_path: Path,
) -> None:
    for kind in ("differential", "merged", "differential"):
        with checkpointer(str(tmp_path), options=INCREMENTAL) as writer:
            step = writer.newest() or 0
            model = load(writer, step) if step else Model()
            model.train(step + 1)
            report = writer.save(step + 1, model.state, {"step": step + 1}, FINGERPRINT, initial=model)
            assert report is not None
            assert report.kind == kind


def test_a_chain_above_a_full_checkpoint_ends_with_another_once_it_took_as_many_bytes(tmp_path: Path) -> None:
    model, reports = Model(), []
    with checkpointer(str(tmp_path), options=replace(INCREMENTAL, chain=2)) as writer:
        for step in range(1, 60):
            model.train(step, rows=1)
            report = writer.save(step, model.state, {"step": step}, FINGERPRINT)  # without an initial state
            assert report is not None
            reports.append(report)
        assert same(load(writer, 59), model)
    full = reports[0].bytes
    bases = [number for number, report in enumerate(reports) if report.kind == "full"][1:]
    assert len(bases) > 3
    for base, following in pairwise(bases):
        assert full <= sum(report.bytes for report in reports[base + 1 : following]) < 2 * full
        assert reports[following].fallback == Fallback(step=following)  # the step before it


def test_a_failed_save_loses_no_row_for_the_next_one(tmp_path: Path) -> None:
    model = Model()
    with checkpointer(str(tmp_path), options=INCREMENTAL) as writer:
        for step in (1, 2, 3):
            model.train(step)
            if step == 2:
                with pytest.raises(CheckpointError, match="step 2 was not written"):
                    writer.save(step, model.state, {"bad": object()}, {}, initial=model)
            else:
                save(writer, model, step)
        assert same(load(writer, 3), trained(3))


def _crash_at_every_point(_place: Place, pristine: str, directory: str) -> int:
    """Save step 4, which merges the chain and removes older files, dying one change later each time."""
    for point in range(1, 200):
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(pristine, directory)
        child = os.fork()
        if child == 0:
            with checkpointer(directory, keep=1, options=INCREMENTAL) as writer:
                model = load(writer, 3)
                model.train(4)
                die_at(point)
                save(writer, model, 4)
            os._exit(0)
        died = os.waitpid(child, 0)[1] != 0
        with checkpointer(directory, keep=1, options=INCREMENTAL) as writer:
            newest = writer.newest()
            assert newest in ({3, 4} if died else {4}), f"point {point}: {newest}"
            model = load(writer, newest)
            assert same(model, trained(newest)), f"point {point}"
            model.train(5)
            save(writer, model, 5)
            assert writer.newest() == 5
            assert writer.steps() == (5,)
        if not died:
            return point - 1
    raise AssertionError("the save never came to its end")


def test_a_death_at_any_point_of_a_merge_leaves_a_whole_newest_checkpoint(
    ranks: RankPool, tmp_path: Path
) -> None:
    _train_and_save(ALONE, str(tmp_path / "pristine"), 3, INCREMENTAL)
    (points,) = ranks.run(1, _crash_at_every_point, str(tmp_path / "pristine"), str(tmp_path / "copy"))
    assert points > 12


def test_the_older_of_two_runs_stops_without_harm(tmp_path: Path) -> None:
    older, model = checkpointer(str(tmp_path), options=INCREMENTAL), trained(1)
    save(older, model, 1)
    (tmp_path / LOCK).unlink()  # as on another machine, where the lock is not seen
    with checkpointer(str(tmp_path), options=INCREMENTAL) as newer:
        assert newer.newest() == 1
        going_on = load(newer, 1)
        going_on.train(2)
        save(newer, going_on, 2)
        with pytest.raises(FencedError, match="another run"):
            save(older, model, 3)
        assert newer.steps() == (1, 2)
        assert same(load(newer, 2), trained(2))
    older.close()


def test_reading_needs_no_lock_and_changes_nothing(tmp_path: Path) -> None:
    _train_and_save(ALONE, str(tmp_path), 3, INCREMENTAL)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with checkpointer(str(tmp_path), options=INCREMENTAL):
        found = open_committed(str(tmp_path))
        model = Model()
        model.spoil()
        found.fill(model.state, model)
    assert same(model, trained(3))
    after = {path: path.stat().st_mtime_ns for path in before if path.is_file() and path.name != ".lock"}
    assert all(before[path] == time for path, time in after.items())
    assert list((tmp_path / "step-00000003").iterdir())
