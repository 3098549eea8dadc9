"""Endurance on a real Slurm: workers, agents and jobs are killed, and no sample is lost or repeated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.slurm.launcher import LAUNCHER, JobAddress
from tests.contract.slurm.support_slurm import PATIENCE_S, left_words, running_slurm, wait_for
from tests.trainer.support_dataset import write_dataset

CONFIG: dict[str, Any] = {
    "embedding_dim": 8,
    "dense_arch_layer_sizes": [8],
    "over_arch_layer_sizes": [8, 1],
    "global_batch_size": 50,
    "num_epochs": 60,
    "log_interval": 20,
    "checkpoint_interval": 100,
    "threads": 1,
}
SAME = ("samples_seen", "samples_digest")


@pytest.fixture(scope="module")
def slurm() -> Iterator[None]:
    with running_slurm() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def bench(
    tmp_path_factory: pytest.TempPathFactory,
    slurm: None,  # noqa: ARG001 - must be there first
) -> tuple[Path, dict[str, Any]]:
    """A home with a dataset, and the summary of an undisturbed run."""
    folder = tmp_path_factory.mktemp("bench")
    write_dataset(folder / "data", train_rows=1003, test_rows=200, num_dense=3, num_sparse=4)
    run = _launch(folder, "calm")
    wait_for(run, RunState.SUCCEEDED)
    return folder, _summary(run)


def _kill_rank(run: RunFolder) -> None:
    events = next((run.path / "pods").glob("n1-*/events.jsonl")).read_text().splitlines()
    started = [json.loads(line) for line in events if '"rank_started"' in line]
    os.kill(started[-1]["pid"], signal.SIGKILL)


def _kill_agent(run: RunFolder) -> None:
    for process in psutil.process_iter(["cmdline", "environ"]):
        words = process.info["cmdline"] or []
        name = (process.info["environ"] or {}).get("CLOUDREC_RUN")
        if "cloudrec.agent" in words and "slurm" in words and "srun" not in words[0] and name == run.name:
            process.kill()
            return
    raise AssertionError("no agent was found")


def _requeue(run: RunFolder) -> None:
    subprocess.run(["scontrol", "requeue", str(_job(run))], check=True)


def _preempt(_run: RunFolder) -> None:
    urgent = ["sbatch", "--partition=urgent", "--nodes=2", "--output=/dev/null", "--wrap=sleep 3"]
    subprocess.run(urgent, check=True, capture_output=True)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("disturb", [_kill_rank, _kill_agent, _requeue, _preempt])
def test_a_disturbed_run_trains_on_the_samples_of_an_undisturbed_one(
    bench: tuple[Path, dict[str, Any]], disturb: Callable[[RunFolder], None]
) -> None:
    folder, calm = bench
    (scratch := folder / "scratch").mkdir(exist_ok=True)
    run = _launch(folder, f"lost{disturb.__name__.replace('_', '-')}", scratch=str(scratch))
    give_up = time.monotonic() + PATIENCE_S
    while not list(run.path.glob("checkpoints/step-*/commit-*.json")):
        assert time.monotonic() < give_up, left_words(run)
        time.sleep(0.1)
    disturb(run)
    wait_until_over(run)
    status = LAUNCHER.state(run)
    assert status.state is RunState.SUCCEEDED, (status, left_words(run))
    summary = _summary(run)
    assert {key: summary[key] for key in SAME} == {key: calm[key] for key in SAME}
    assert status.attempt >= 1, run.ledger.path.read_text()
    assert list(scratch.iterdir()) == []
    assert status.preemptions == int(disturb in (_requeue, _preempt))


def wait_until_over(run: RunFolder) -> None:
    give_up = time.monotonic() + 2 * PATIENCE_S
    while not LAUNCHER.state(run).state.is_final:
        assert time.monotonic() < give_up, left_words(run)
        time.sleep(0.2)


def _launch(folder: Path, name: str, **settings: str) -> RunFolder:
    spec = RunSpec(
        name=name,
        launcher="slurm",
        nodes=2,
        stop_grace_s=15.0,
        settings=settings,
        trainer_config={**CONFIG, "dataset_path": str(folder / "data")},
    )
    LAUNCHER.preflight(spec)
    run = create_run(folder / "runs", spec)
    LAUNCHER.submit(run)
    return run


def _job(run: RunFolder) -> int:
    told = [event.details["job"] for event in run.ledger.read() if event.event == "started"]
    return JobAddress.parse(told[-1]).job


def _summary(run: RunFolder) -> dict[str, Any]:
    content = json.loads(run.summary_file.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content
