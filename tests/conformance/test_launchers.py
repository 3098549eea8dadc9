"""The guarantees that every launcher gives, on each engine.

The local launcher is always tested. The engines that must be started first (the Kubernetes stand-in with
real processes, a real Ray of two nodes, a real Slurm of two nodes) are soak tests: `make soak`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import UsageError
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.protocol import RunStatus
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.base.runspec import default_trainer_command
from tests.conformance.support_launchers import ENGINES, LONG, Engine, submit_and_die, worker
from tests.trainer.support_dataset import write_dataset

pytestmark = pytest.mark.timeout(600)
SHORT = {"steps": 12, "step_s": 0.05, "checkpoint_interval": 10**6}
MODEL: dict[str, Any] = {
    "embedding_dim": 8,
    "dense_arch_layer_sizes": [8],
    "over_arch_layer_sizes": [8, 1],
    "global_batch_size": 50,
    "num_epochs": 40,
    "log_interval": 20,
    "deterministic": True,
    "threads": 1,
}
WITH_ALL = [pytest.param(name, marks=[] if name == "local" else pytest.mark.soak) for name in ENGINES]


@pytest.fixture(scope="module", params=WITH_ALL)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with ENGINES[request.param](tmp_path_factory.mktemp(request.param)) as engine:
        yield engine
        for path in (engine.folder / "runs").glob("[!.]*"):
            run = RunFolder(path=path)
            if not engine.launcher.state(run).state.is_final:
                engine.launcher.stop(run, grace_s=5)


def _goes_on_in(engine: Engine, run: RunFolder, steps: int) -> None:
    """Set the number of steps of the next launch."""
    spec = run.spec()
    run.write_spec(replace(spec, trainer_config={**spec.trainer_config, "steps": steps, "step_s": 0.0}))
    engine.launcher.submit(run)


def test_a_run_reports_its_state_and_the_lines_of_each_rank_and_succeeds(engine: Engine) -> None:
    run = engine.launch("whole", SHORT)
    assert engine.launcher.state(run).state in (RunState.PENDING, RunState.RUNNING)
    followed = list(engine.launcher.logs(run, rank=1, follow=True))
    status = engine.end(run)
    assert (status.state, status.cause) == (RunState.SUCCEEDED, None)
    assert [line for line in followed if line.startswith("rank ")] == [
        "rank 1 begins at step 0",
        *(f"rank 1 step {step}" for step in range(1, 13)),
        "rank 1 has finished",
    ]
    assert engine.lines(run, 0, tail=1) == ["rank 0 has finished"]
    with pytest.raises(UsageError, match="has finished"):
        engine.launcher.submit(run)


def test_a_stopped_run_commits_a_checkpoint_and_resumes_from_it(engine: Engine) -> None:
    run = engine.launch("stopped", {**LONG, "checkpoint_interval": 10**6})
    engine.wait_for_step(run, 3)
    with pytest.raises(UsageError):
        engine.launcher.submit(run)
    status = engine.launcher.stop(run)
    assert status.state is RunState.INTERRUPTED
    assert "stopped on request; the newest checkpoint is at step" in (status.cause or "")
    with pytest.raises(UsageError, match="is not running"):
        engine.launcher.stop(run)
    step = int((status.cause or "").rpartition(" ")[2])
    _goes_on_in(engine, run, step + 3)
    assert engine.end(run).state is RunState.SUCCEEDED
    assert engine.begun_at(run) == [0, step]


def test_bad_data_fails_the_run_at_once_with_the_message_of_the_trainer(engine: Engine) -> None:
    crashes = [{"rank": 0, "attempt": 0, "step": 2, "how": 65}]
    run = engine.launch("refused", {**LONG, "crashes": crashes})
    status = engine.end(run)
    assert status.state is RunState.FAILED
    assert "asked to fail at step 2" in (status.cause or "")
    assert status.attempt == 0
    assert engine.begun_at(run) == [0]


def test_a_killed_worker_is_restarted_from_the_newest_checkpoint(engine: Engine) -> None:
    run = engine.launch("killed", LONG)
    engine.wait_for_step(run, 8)
    worker(run, 1).kill()
    engine.wait(run, lambda _: len(engine.begun_at(run)) == 2)
    engine.wait(run, lambda status: (status.state, status.attempt) == (RunState.RUNNING, 1))
    assert engine.launcher.stop(run).state is RunState.INTERRUPTED
    first, second = engine.begun_at(run)
    assert (first, second >= 5) == (0, True)


def test_a_run_that_lost_a_node_resumes_from_the_newest_checkpoint(engine: Engine) -> None:
    run = engine.launch("preempted", LONG)
    engine.wait_for_step(run, 8)
    engine.take_machine(run)
    if not engine.restores:
        assert engine.end(run).state is RunState.INTERRUPTED, engine.last_words(run)
        engine.launcher.submit(run)
    engine.wait(run, lambda _: len(engine.begun_at(run)) > 1)
    assert engine.launcher.stop(run).state is RunState.INTERRUPTED
    first, *later = engine.begun_at(run)
    assert first == 0
    assert min(later) >= 5


@pytest.mark.parametrize("event", ["submitted", pytest.param("started", marks=pytest.mark.soak)])
def test_an_interrupted_submission_is_repeated_without_a_duplicate_run(engine: Engine, event: str) -> None:
    run = engine.create(f"orphan-{event}", SHORT)
    submit_and_die(run, event)
    try:
        engine.launcher.submit(run)
    except UsageError:  # it was in progress
        assert event == "started" or engine.launcher.state(run).state is not RunState.FAILED
    assert engine.end(run).state is RunState.SUCCEEDED, engine.last_words(run)
    assert engine.lines(run, 0).count("rank 0 has finished") == 1


def test_two_concurrent_runs_do_not_affect_each_other(engine: Engine) -> None:
    one, other = (
        engine.launch(name, {"steps": 60, "step_s": 0.05}, nodes=1, nproc_per_node=1)
        for name in ("one", "other")
    )
    assert [engine.end(run).state for run in (one, other)] == [RunState.SUCCEEDED, RunState.SUCCEEDED]
    for run in (one, other):
        assert engine.lines(run, 0, tail=1) == ["rank 0 has finished"]
        assert engine.begun_at(run) == [0]


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_killed_worker_of_a_run_with_defaults_changes_no_digest(engine: Engine, tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", train_rows=1003, test_rows=200, num_dense=3, num_sparse=4)
    data = str(tmp_path / "data")
    if engine.bucket:
        import s3fs  # noqa: PLC0415 - an extra

        endpoint = engine.usual["environment"]["AWS_ENDPOINT_URL"]
        data = f"{engine.bucket}/data"
        s3fs.S3FileSystem(endpoint_url=endpoint).put(str(tmp_path / "data"), data, recursive=True)
    epochs = MODEL["num_epochs"] * (
        2 if engine.bucket else 1
    )  # uploads of pods are visible some seconds later
    config = {**MODEL, "dataset_path": data, "num_epochs": epochs}
    summaries = []
    for name in ("calm", "struck"):
        run = engine.launch(name, config, trainer_command=default_trainer_command())
        if name == "struck":
            engine.wait(run, partial(_has_checkpoint, run))
            worker(run, 1).kill()
        status = engine.end(run)
        assert status.state is RunState.SUCCEEDED, engine.last_words(run)
        engine.launcher.collect(run)
        summaries.append(json.loads(run.summary_file.read_text(encoding="utf-8")))
    calm, struck = summaries
    assert struck["restarts"] >= 1
    assert struck["samples_seen"] == calm["samples_seen"]
    assert struck["samples_digest"] == calm["samples_digest"]
    assert struck["model_digest"] == calm["model_digest"]


def _has_checkpoint(run: RunFolder, _: RunStatus) -> bool:
    return run.metrics_file.exists() and '"kind": "checkpoint"' in run.metrics_file.read_text("utf-8")
