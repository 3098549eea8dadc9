"""A run whose store fails for a while: it trains on, tries again, and ends as if nothing had happened."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cloudrec.observe.metrics import latest_metrics
from tests.standins.faults import Fault
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import Outcome, command, kill, run_here, start, wait_until
from tests.trainer.support_state import global_tensors, same_bits, whole, zeros_like
from trainer.base.errors import SaveError
from trainer.checkpoint import Checkpointer
from trainer.checkpoint.save.saves import SavingOptions
from trainer.loop.session import checkpoints as run_checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.trainer.support_clouds import CloudPlace

EXACT = {"deterministic": True, "num_epochs": 60, "checkpoint_interval": 40, "lr_decay": "none"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    write_dataset(path, train_rows=1000, test_rows=200, num_dense=3, num_sparse=4)
    return path


@pytest.fixture(scope="module")
def undisturbed(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_here(dataset, tmp_path_factory.mktemp("whole"), **EXACT)


def _committed(run: Path) -> list[Path]:
    return [*run.glob("checkpoints/step-*/commit-*.json")]


def _failures(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_text().count('"kind": "save_failure"') if path.exists() else 0


def _block(run: Path) -> Path:
    """Take the place of the folder in which the store begins each file, so that every write fails."""
    place = run / "checkpoints" / ".tmp"
    while True:
        try:
            with place.open("x"):
                return place
        except (FileExistsError, FileNotFoundError, IsADirectoryError):
            time.sleep(0.001)


@contextmanager
def _outage(run: Path, *, begin: Callable[[], bool], end: Callable[[], bool]) -> Iterator[list[str | None]]:
    """Block the store from when `begin` holds until `end` does; yields the problem that `status` shows."""
    over = threading.Event()
    seen: list[str | None] = []

    def work() -> None:
        while not begin() and not over.is_set():
            time.sleep(0.002)
        if over.is_set():
            return
        place = _block(run)
        while not end() and not over.is_set():
            time.sleep(0.002)
        seen.append(latest_metrics(run / "metrics.jsonl").save_problem)
        place.unlink()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_checkpoints, "_FIRST_WAIT_S", 0.05)


@pytest.mark.parametrize("in_background", [True, False], ids=["in the background", "at once"])
def test_a_run_outlives_an_outage_of_its_store_and_ends_with_the_same_model(
    dataset: Path, undisturbed: Outcome, tmp_path: Path, *, in_background: bool
) -> None:
    run = tmp_path / "run"
    with _outage(run, begin=lambda: bool(_committed(run)), end=lambda: _failures(run) > 1) as seen:
        outcome = run_here(dataset, run, **EXACT, checkpoint_async=in_background)
    assert outcome.code == 0
    assert seen[0] is not None
    assert "earlier ones are intact" in seen[0]
    assert latest_metrics(run / "metrics.jsonl").save_problem is None  # a later save succeeded
    for name in ("model_digest", "samples_digest", "auc", "step"):
        assert outcome.summary[name] == undisturbed.summary[name]
    assert outcome.summary["checkpoint"]["last_step"] == outcome.summary["step"]
    again = run_here(dataset, run, **EXACT)
    assert again.summary["model_digest"] == undisturbed.summary["model_digest"]


def test_a_failed_save_is_retried_long_before_the_next_one_is_due(dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with _outage(run, begin=lambda: bool(_committed(run)), end=lambda: _failures(run) > 0):
        outcome = run_here(dataset, run, **EXACT | {"checkpoint_interval": 500})
    assert _failures(run) > 0
    steps = [line["step"] for line in outcome.lines("checkpoint")]
    assert [step for step in steps[:-1] if step % 500]  # the last one is that of the end


def test_two_ranks_continue_together_when_the_store_fails(dataset: Path, tmp_path: Path) -> None:
    whole_run, run = tmp_path / "whole", tmp_path / "run"
    settings = {**EXACT, "num_epochs": 20}
    for output in (whole_run, run):
        with _outage(run, begin=lambda: bool(_committed(run)), end=lambda: _failures(run) > 1):
            process = start(command(dataset, output, ranks=2, **settings), tmp_path / "log")
            try:
                assert process.wait(300) == 0, (tmp_path / "log").read_text()
            finally:
                kill(process)
    assert _failures(run) > 1
    ends = [Outcome(0, output).summary for output in (whole_run, run)]
    assert ends[0]["model_digest"] == ends[1]["model_digest"]


def test_the_first_failure_ends_a_run_that_asks_for_it(dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with (
        _outage(run, begin=lambda: bool(_committed(run)), end=lambda: False),
        pytest.raises(SaveError, match="earlier ones are intact"),
    ):
        run_here(dataset, run, **EXACT, save_failure_seconds=0)
    assert _failures(run) == 0


def test_a_store_that_fails_for_too_long_ends_the_run_with_the_step_to_resume_from(
    dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with (
        _outage(run, begin=lambda: bool(_committed(run)), end=lambda: False),
        pytest.raises(
            SaveError, match=r"saves have failed for \d+ s \(save_failure_seconds is 1\).*the last good"
        ),
    ):
        run_here(dataset, run, **{**EXACT, "num_epochs": 2000}, save_failure_seconds=1)
    assert _failures(run) > 1


def test_a_run_without_any_checkpoint_ends_at_the_first_failure(dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = {**EXACT, "checkpoint_interval": 1000}
    with (
        _outage(run, begin=(run / "sharding_plan.json").exists, end=lambda: False),
        pytest.raises(SaveError, match="step 1000 was not written"),
    ):
        run_here(dataset, run, **settings)


def test_a_stop_during_an_outage_leaves_the_last_good_checkpoint_to_resume_from(
    dataset: Path, undisturbed: Outcome, tmp_path: Path
) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    settings: dict[str, Any] = {**EXACT, "save_failure_seconds": 6.0}
    with _outage(run, begin=lambda: bool(_committed(run)), end=lambda: False):
        process = start(command(dataset, run, **{**settings, "num_epochs": 20000}), log)
        try:
            wait_until(lambda: _failures(run) > 0, process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 75
        finally:
            kill(process)
    assert "the last checkpoint could not be written" in log.read_text()
    outcome = run_here(dataset, run, **EXACT)
    assert outcome.lines("start")[-1]["resumed_from"] > 0
    assert outcome.summary["model_digest"] == undisturbed.summary["model_digest"]


def _open(uri: str, *, in_background: bool) -> Checkpointer:
    options = SavingOptions(in_background=in_background)
    return Checkpointer(uri, keep=2, rank=0, world_size=1, options=options)


@pytest.mark.parametrize("in_background", [True, False], ids=["in the background", "at once"])
def test_a_commit_that_exists_counts_although_the_store_reports_a_failure(
    enter_cloud: Callable[[str], CloudPlace], *, in_background: bool
) -> None:
    cloud = enter_cloud("s3")
    uri = cloud.new_uri()
    with _open(uri, in_background=in_background) as checkpointer:
        checkpointer.save(1, whole(global_tensors(1)), {}, {})
        cloud.proxy.faults.append(Fault("lose", method="PUT", holding="commit"))
        cloud.proxy.faults.append(cloud.refusal(403, method="PUT", holding="commit", times=1))
        report = checkpointer.save(2, whole(global_tensors(2)), {}, {})
        assert report is not None
        assert not any(fault.times for fault in cloud.proxy.faults)
        checkpointer.save(3, whole(global_tensors(3)), {}, {})
        assert checkpointer.steps() == (2, 3)
        state = whole(zeros_like(global_tensors()))
        checkpointer.load(2, state)
        assert same_bits(state, whole(global_tensors(2)))


@pytest.mark.parametrize("in_background", [True, False], ids=["in the background", "at once"])
def test_the_files_of_a_save_stay_while_it_is_unknown_whether_it_is_committed(
    enter_cloud: Callable[[str], CloudPlace], *, in_background: bool
) -> None:
    cloud = enter_cloud("s3")
    with _open(cloud.new_uri(), in_background=in_background) as checkpointer:
        before = len(cloud.proxy.requests)
        checkpointer.save(1, whole(global_tensors(1)), {}, {})
        made = cloud.proxy.requests[before:]
        commit = next(at for at, each in enumerate(made) if each.method == "PUT" and "commit" in each.path)
        reads = sum(each.method == "GET" for each in made[:commit])
        cloud.proxy.faults.append(Fault("lose", method="PUT", holding="commit"))
        cloud.proxy.faults.append(cloud.refusal(403, method="PUT", holding="commit", times=1))
        # The first read after the commit: whether it is there.
        cloud.proxy.faults.append(cloud.refusal(403, method="GET", skip=reads, times=1))
        with pytest.raises(SaveError, match="give this process's identity the permission"):
            checkpointer.save(2, whole(global_tensors(2)), {}, {})
        cloud.proxy.clear()
        assert checkpointer.newest() == 2


_FULL_FOR_A_WHILE = """
import resource, sys
from pathlib import Path
from trainer.report.report import LineFile

file = LineFile(Path(sys.argv[1]))
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
for number in range(30):
    file.write(f"line {number}")
assert Path(sys.argv[1]).stat().st_size == 100
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
for number in range(30, 40):
    file.write(f"line {number}")
file.close()
"""


def test_lines_that_a_full_disk_refuses_are_written_once_there_is_room(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _FULL_FOR_A_WHILE, str(tmp_path / "lines")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "lines").read_text().splitlines() == [f"line {number}" for number in range(40)]
    assert done.stderr.count("cannot be written now") == 1


def test_a_report_that_cannot_be_written_does_not_end_a_run(dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").symlink_to("/dev/full")
    outcome = run_here(dataset, run, **EXACT | {"num_epochs": 2})
    assert outcome.code == 0
    assert outcome.summary["step"] == 80
