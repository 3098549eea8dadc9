"""The list of runs; a damaged run never hides others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cloudrec.errors import DataError, UsageError
from cloudrec.home import locked
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.observe.metrics import latest_metrics
from cloudrec.observe.runs import find_run, list_runs, load_run, newest_folders

if TYPE_CHECKING:
    from pathlib import Path


def _run(runs: Path, name: str, *events: str, **spec: Any) -> RunFolder:
    run = create_run(runs, RunSpec(name=name, **spec))
    for event in events:
        run.ledger.append(event, launch=1)
    return run


def _metrics(run: RunFolder, *records: dict[str, Any]) -> None:
    run.metrics_file.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_without_a_folder_there_are_no_runs(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "runs") == []


def test_a_run_shows_its_newest_metrics(tmp_path: Path) -> None:
    run = _run(
        tmp_path, "one", "submitted", "started", "restarting", "running", "succeeded", nproc_per_node=2
    )
    _metrics(
        run,
        {"kind": "start", "world_size": 2, "step": 0, "total_steps": 40},
        {"kind": "train", "step": 10, "epoch": 0, "loss": 0.5, "samples_per_s": 100.0},
        {"kind": "eval", "step": 10, "auc": 0.7},
        {"kind": "train", "step": 20, "epoch": 1, "loss": 0.4, "samples_per_s": 120.0},
        {"kind": "checkpoint", "step": 25, "seconds": 0.1, "bytes": 7},
    )
    (run.path / "checkpoints" / "step-00000020").mkdir(parents=True)
    (run.path / "checkpoints" / "step-00000020" / "commit-00000001.json").touch()
    view = load_run(tmp_path, "one")
    assert view.state is RunState.SUCCEEDED
    assert (view.step, view.total_steps, view.epoch) == (25, 40, 1)
    assert (view.loss, view.samples_per_s, view.auc) == (0.4, 120.0, 0.7)
    assert (view.checkpoint, view.restarts, view.launches, view.world_size) == (20, 1, 1, 2)
    assert view.ended is not None
    assert view.is_over
    assert not view.is_resumable
    assert json.loads(json.dumps(view.to_json()))["state"] == "SUCCEEDED"


@pytest.mark.parametrize("summary_is_newer", [True, False])
def test_goodput_is_the_record_that_covers_most_time(tmp_path: Path, *, summary_is_newer: bool) -> None:
    """A summary of an earlier launch, and metrics older than the end of the run."""
    told = [
        {"goodput": 0.5, "goodput_parts": {"productive_s": 5.0, "lost_s": 5.0}},
        {"goodput": 0.6, "goodput_parts": {"productive_s": 60.0, "lost_s": 40.0}},
    ]
    in_metrics, in_summary = told if summary_is_newer else told[::-1]
    run = _run(tmp_path, "one", "submitted", "started")
    _metrics(run, {"kind": "train", "step": 10, **in_metrics}, {"kind": "eval", "step": 10})
    run.summary_file.write_text(json.dumps({"status": "stopped", **in_summary}))
    view = load_run(tmp_path, "one")
    assert view.to_json()["goodput"] == 0.6
    assert view.to_json()["goodput_parts"] == {"productive_s": 60.0, "lost_s": 40.0}


@pytest.mark.parametrize("parts", [None, [1], {"lost_s": "much"}])
def test_a_run_without_reported_goodput_has_none(tmp_path: Path, parts: object) -> None:
    run = _run(tmp_path, "one", "submitted", "started")
    _metrics(run, {"kind": "train", "step": 10, "goodput": "high", "goodput_parts": parts})
    assert load_run(tmp_path, "one").goodput is None


def test_a_checkpoint_in_an_object_store_is_the_reported_one(tmp_path: Path) -> None:
    run = _run(tmp_path, "one", trainer_flags=("--checkpoint_dir", "s3://bucket/one"))
    _metrics(run, {"kind": "checkpoint", "step": 30, "seconds": 1.0, "bytes": 5})
    assert load_run(tmp_path, "one").checkpoint == 30


def test_truncated_lines_and_invalid_numbers_are_skipped(tmp_path: Path) -> None:
    run = _run(tmp_path, "one")
    run.metrics_file.write_text(
        '{"kind": "train", "step": 1, "loss": 0.5}\n'
        '[1]\n{"kind": "train", "step": 2, "loss": NaN, "samples_per_s": "fast"}\n'
        '{"kind": "train", "step": 3, "lo'
    )
    view = load_run(tmp_path, "one")
    assert (view.step, view.loss, view.samples_per_s) == (2, None, None)


def test_records_count_by_their_kind_wherever_it_is_written(tmp_path: Path) -> None:
    run = _run(tmp_path, "one")
    run.metrics_file.write_text(
        '{"kind": "eval", "step": 1, "auc": 0.7}\n'
        '{"kind": "train", "step": 2, "loss": 0.5}\n'
        '{"step": 3, "auc": 0.8, "kind": "eval"}\n'
        '{"loss": 0.4, "step": 4, "kind":"train"}\n'
        '{"kind": "train", "step": 5, "loss": 0.3'
    )
    view = load_run(tmp_path, "one")
    assert (view.step, view.loss, view.auc) == (4, 0.4, 0.8)


def test_the_newest_evaluation_is_found_early_in_a_long_file(tmp_path: Path) -> None:
    run = _run(tmp_path, "one")
    steps = ({"kind": "train", "step": step, "loss": 0.5, "pad": "x" * 100} for step in range(20_000))
    _metrics(run, {"kind": "eval", "step": 1, "auc": 0.7}, *steps)
    view = load_run(tmp_path, "one")
    assert (view.step, view.auc) == (19_999, 0.7)


def test_damaged_runs_are_listed_with_the_reason(tmp_path: Path) -> None:
    _run(tmp_path, "good", "submitted", "interrupted")
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "spec.json").write_text('{"schema_version": 1, "na')
    _run(tmp_path, "alien", launcher="warp")
    (tmp_path / ".draft.1.new").mkdir()
    (tmp_path / "a-file").touch()
    views = {view.name: view for view in list_runs(tmp_path)}
    assert set(views) == {"good", "empty", "torn", "alien"}
    assert views["good"].state is RunState.INTERRUPTED
    assert "no spec.json" in (views["empty"].cause or "")
    assert "not JSON" in (views["torn"].cause or "")
    assert "no launcher 'warp'" in (views["alien"].cause or "")
    with pytest.raises(DataError, match="not JSON"):
        load_run(tmp_path, "torn")


@pytest.mark.parametrize("name", ["none", "", "../up", ".draft"])
def test_a_missing_run_is_refused_with_the_existing_runs(tmp_path: Path, name: str) -> None:
    _run(tmp_path, "one")
    with pytest.raises(UsageError, match="there is no run") as refused:
        find_run(tmp_path, name)
    assert "one" in (refused.value.remedy or "")


def test_time_between_a_killed_launch_and_its_resume_is_not_counted(tmp_path: Path) -> None:
    run = create_run(tmp_path, RunSpec(name="one"))
    told = [(0, "submitted", 1), (1, "started", 1), (11, "rank_ended", 1)]
    told += [(1000, "submitted", 2), (1001, "started", 2), (1021, "failed", 2)]
    lines = [json.dumps({"time": time, "event": event, "launch": launch}) for time, event, launch in told]
    run.ledger.path.write_text("\n".join(lines) + "\n")
    view = load_run(tmp_path, "one")
    assert (view.wall_s, view.created, view.started, view.ended, view.launches) == (30.0, 0, 1001, 1021, 2)


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    for name, time in [("a", 5), ("b", 9), ("c", 7)]:
        run = create_run(tmp_path, RunSpec(name=name))
        run.ledger.path.write_text(json.dumps({"time": time, "event": "submitted", "launch": 1}) + "\n")
    assert [view.name for view in list_runs(tmp_path)] == ["b", "c", "a"]


def test_the_newest_folder_is_found_without_a_look_at_any_other_event(tmp_path: Path) -> None:
    for name, moment in (("first", 100), ("second", 200), ("damaged", None)):
        run = _run(tmp_path, name)
        line = "{" if moment is None else json.dumps({"time": moment, "event": "submitted", "launch": 1})
        # A state that its engine would be asked for, and a spec that no view could read.
        run.ledger.path.write_text(f"{line}\n" + "x" * (1 << 20))
        (run.path / "spec.json").write_text("{")
    assert [run.name for run in newest_folders(tmp_path)] == ["second", "first", "damaged"]
    with pytest.raises(UsageError) as caught:
        find_run(tmp_path, "third")
    assert caught.value.remedy is not None
    assert "the newest are: second, first, damaged" in caught.value.remedy


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_damaged_checkpoint_is_an_alarm_until_the_next_one(tmp_path: Path, *, is_replaced: bool) -> None:
    run = _run(tmp_path, "one", "submitted", "started")
    later = [{"kind": "checkpoint", "step": 30, "content": "full"}] if is_replaced else []
    problem = "checkpoints/step-00000020/rank-00000.1.1.bin: the bytes have changed"
    damage = {"kind": "checkpoint_damage", "step": 25, "problem": problem}
    _metrics(run, {"kind": "checkpoint", "step": 20}, damage, *later)
    assert (latest_metrics(run.metrics_file).damage == problem) is not is_replaced
    with locked(run.lock_file, what="a run"):
        assert (problem in (load_run(tmp_path, "one").cause or "")) is not is_replaced
