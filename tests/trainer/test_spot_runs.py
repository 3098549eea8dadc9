"""Runs on spot machines: the time after a notice, and the goodput of killed runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_metadata import QUIET, Metadata, run_metadata
from tests.trainer.support_runs import Outcome, command, kill, run_here, start, wait_until
from trainer.report.ledger import read_ledger

EXACT = {"deterministic": True, "num_epochs": 60, "log_interval": 20}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    write_dataset(path, train_rows=1000, test_rows=200, num_dense=3, num_sparse=4)
    return path


@pytest.fixture(scope="module")
def undisturbed(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_here(dataset, tmp_path_factory.mktemp("whole"), **EXACT)


@pytest.fixture(scope="module")
def metadata() -> Iterator[Metadata]:
    with run_metadata() as running:
        yield running


def _committed(run: Path) -> list[int]:
    return sorted(
        int(path.parent.name.removeprefix("step-")) for path in run.glob("checkpoints/step-*/commit-*.json")
    )


def _step(run: Path) -> int:
    """The newest step in the metrics."""
    lines = (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").exists() else []
    steps = [json.loads(line)["step"] for line in lines if line.endswith("}")]
    return max(steps, default=0)


def _training_s(run: Path) -> float:
    """Seconds from the first step to the newest one in the ledger."""
    attempts, _ = read_ledger(run / "goodput.jsonl")
    begun = attempts[0].begun if attempts else None
    return 0.0 if begun is None else attempts[0].elapsed - begun


def _ends_alike(first: Outcome, second: Outcome) -> bool:
    names = ("model_digest", "samples_digest", "samples_seen", "auc", "step")
    return all(first.summary[name] == second.summary[name] for name in names)


def _noticed_run(
    dataset: Path, run: Path, metadata: Metadata, notice: dict[str, Any], **settings: Any
) -> None:
    """Run until a checkpoint and some more, then announce; the run ends with 75."""
    metadata.control(**QUIET)
    urls: dict[str, Any] = {f"{cloud}_metadata_url": metadata.url for cloud in ("aws", "azure", "gcp")}
    process = start(command(dataset, run, **EXACT, **settings, **urls), run.with_suffix(".log"))
    try:
        wait_until(lambda: bool(_committed(run)) and _step(run) > _committed(run)[0] + 20, process)
        metadata.control(**notice)
        assert process.wait(300) == 75, run.with_suffix(".log").read_text()
    finally:
        kill(process)
        metadata.control(**QUIET)


def test_after_a_notice_training_continues_until_a_save_and_the_run_resumes_from_it(
    dataset: Path, tmp_path: Path, metadata: Metadata, undisturbed: Outcome
) -> None:
    run = tmp_path / "run"
    notice = {"azure": {"event": "Preempt", "in_s": 7}}
    _noticed_run(dataset, run, metadata, notice, preemption_notices="azure", checkpoint_interval=100)
    stopped = Outcome(75, run).summary
    assert stopped["status"] == "stopped"
    assert _committed(run)[-1] == stopped["checkpoint"]["last_step"] == stopped["step"]
    assert stopped["model_digest"] is None  # no time to read all tables
    log = run.with_suffix(".log").read_text()
    assert "stopping: azure: Preempt of this machine at" in log
    resumed = run_here(dataset, run, **EXACT)
    assert _ends_alike(resumed, undisturbed)
    assert resumed.summary["goodput_parts"]["lost_s"] == 0


def test_a_drained_machine_trains_until_its_end_though_it_has_a_signal(
    dataset: Path, tmp_path: Path, metadata: Metadata
) -> None:
    run = tmp_path / "run"
    settings = {"deterministic": True, "num_epochs": 600, "log_interval": 20, "checkpoint_interval": 100}
    metadata.control(**QUIET)
    words = command(
        dataset,
        run,
        **settings,
        preemption_notices="azure",
        azure_metadata_url=metadata.url,
        stop_grace_seconds=60,
    )
    process = start(words, run.with_suffix(".log"))
    try:
        wait_until(lambda: bool(_committed(run)) and _step(run) > _committed(run)[0] + 20, process)
        before_s = _training_s(run)
        process.terminate()
        metadata.control(azure={"event": "Preempt", "in_s": 12})
        assert process.wait(300) == 75, run.with_suffix(".log").read_text()
        assert _training_s(run) - before_s > 4  # with the signal alone, ranks stop in a second
    finally:
        kill(process)
        metadata.control(**QUIET)
    stopped = Outcome(75, run).summary
    assert _committed(run)[-1] == stopped["checkpoint"]["last_step"] == stopped["step"]


def test_with_too_little_time_the_last_commit_is_kept_without_a_save(
    dataset: Path, tmp_path: Path, metadata: Metadata, undisturbed: Outcome
) -> None:
    run = tmp_path / "run"
    notice = {"azure": {"status": "Started"}}
    _noticed_run(dataset, run, metadata, notice, preemption_notices="azure", checkpoint_interval=300)
    stopped = Outcome(75, run).summary
    assert stopped["status"] == "stopped"
    assert stopped["step"] > stopped["checkpoint"]["last_step"] == _committed(run)[-1]
    assert "0 s left are too few for a checkpoint" in run.with_suffix(".log").read_text()
    assert read_ledger(run / "goodput.jsonl")[0][-1].saved is False
    resumed = run_here(dataset, run, **EXACT)
    assert _ends_alike(resumed, undisturbed)
    assert resumed.summary["goodput_parts"]["lost_s"] > 0


def test_invalid_unresponsive_or_missing_endpoints_do_not_affect_a_run(
    dataset: Path, tmp_path: Path, metadata: Metadata
) -> None:
    settings = {"num_epochs": 2, "deterministic": True}
    plain = run_here(dataset, tmp_path / "plain", **settings)
    for number, fault in enumerate(({"kind": "garbage"}, {"kind": "silence"}, {"kind": "trickle"})):
        metadata.control(**QUIET)
        metadata.control(fault=fault, aws={"action": "terminate"})
        outcome = run_here(
            dataset,
            tmp_path / str(number),
            **settings,
            preemption_notices=("aws", "azure", "gcp"),
            aws_metadata_url=metadata.url,
            azure_metadata_url=metadata.url,
            gcp_metadata_url="http://127.0.0.1:1",
        )
        assert outcome.code == 0
        assert _ends_alike(outcome, plain)
    metadata.control(**QUIET)


def test_a_killed_run_with_default_settings_resumes_from_a_checkpoint(dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(command(dataset, run, num_epochs=10**5), tmp_path / "log")
    try:
        wait_until(lambda: bool(_committed(run)) and _step(run) > _committed(run)[-1], process)
    finally:
        kill(process)
    kept = _committed(run)[-1]
    outcome = run_here(dataset, run, num_epochs=10**5, num_iterations=kept + 5)
    assert outcome.lines("start")[-1]["resumed_from"] == kept > 0
    assert outcome.summary["step"] == kept + 5


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"checkpoint_interval": 0}, id="an interval of 0"),
        pytest.param({"dataset": "tests.trainer.test_data_formats:once"}, id="a loader that cannot resume"),
    ],
)
def test_unwanted_or_unresumable_checkpoints_are_saved_only_at_a_stop(
    dataset: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    path = None if "dataset" in settings else dataset
    process = start(command(path, run, num_epochs=10**5, **settings), tmp_path / "log")
    try:
        wait_until(lambda: _training_s(run) > 2, process)  # the default's first save comes after one second
        assert not _committed(run)
        process.terminate()
        assert process.wait(60) == 75, (tmp_path / "log").read_text()
    finally:
        kill(process)
    assert _committed(run) == [Outcome(75, run).summary["step"]]


@pytest.mark.soak
def test_the_ledger_of_a_killed_run_records_the_lost_time(
    dataset: Path, tmp_path: Path, undisturbed: Outcome
) -> None:
    run = tmp_path / "run"
    before = time.monotonic()
    words = command(dataset, run, **EXACT, checkpoint_interval=500, keep_checkpoints=9)
    process = start(words, tmp_path / "log")
    try:
        # The ledger has a commit's cost some steps after the commit itself is there.
        wait_until(lambda: read_ledger(run / "goodput.jsonl")[1].known, process)
        wait_until(lambda: _step(run) > _committed(run)[-1] + 300, process)
    finally:
        kill(process)
    kept = _committed(run)[-1]
    (killed,), costs = read_ledger(run / "goodput.jsonl")
    cut = next(mark for mark in killed.marks if mark.step == kept)
    process = start(words, tmp_path / "log")
    try:
        assert process.wait(300) == 0, (tmp_path / "log").read_text()
    finally:
        kill(process)
    outside_s = time.monotonic() - before
    outcome = Outcome(0, run)
    parts = outcome.summary["goodput_parts"]
    assert _ends_alike(outcome, undisturbed)
    assert parts["lost_s"] == pytest.approx(killed.elapsed - cut.elapsed, abs=0.002)
    assert parts["lost_s"] > 0
    assert parts["restart_s"] > 0  # two starts of a process that imports torch
    assert min(parts.values()) >= 0
    assert sum(parts.values()) <= outside_s
    assert outcome.summary["goodput"] == pytest.approx(parts["productive_s"] / sum(parts.values()), rel=0.01)
    train = outcome.lines("train")
    assert [line["step"] for line in train].count(kept + 100) == 2  # done, lost and done again
    assert all(0 <= line["goodput"] <= 1 for line in train)
    assert costs.known


@pytest.mark.soak
@pytest.mark.parametrize(("interval", "fewest"), [("0.2s", 4), ("auto", 2)])
def test_all_ranks_commit_checkpoints_by_time_or_auto_at_the_same_steps(
    dataset: Path, tmp_path: Path, interval: str, fewest: int
) -> None:
    settings = {"num_epochs": 12, "global_batch_size": 26, "keep_checkpoints": 1000}
    words = command(dataset, tmp_path / "run", ranks=2, **settings, checkpoint_interval=interval)
    process = start(words, tmp_path / "log")
    try:
        assert process.wait(300) == 0, (tmp_path / "log").read_text()
    finally:
        kill(process)
    outcome = Outcome(0, tmp_path / "run")
    alone = run_here(dataset, tmp_path / "alone", **settings)
    steps = [line["step"] for line in outcome.lines("checkpoint")]
    assert len(steps) >= fewest
    assert _committed(tmp_path / "run") == sorted(set(steps)) == steps
    names = ("step", "samples_digest", "samples_seen")
    assert [outcome.summary[name] for name in names] == [alone.summary[name] for name in names]
    assert outcome.summary["logloss"] == pytest.approx(alone.summary["logloss"], rel=1e-4)
