"""The launcher `ray` on a real Ray cluster: two nodes, with a token, on loopback addresses."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from cloudrec.errors import PreflightError, UsageError
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.outputs import json_lines
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec, default_trainer_command
from cloudrec.launchers.ray.launcher import LAUNCHER, RayLauncher
from cloudrec.observe.runs import find_run
from cloudrec.observe.status import wait_for_end
from tests.standins.ray_cluster import RayCluster, skip_without_ray

FAKE_TRAINER = (sys.executable, str(Path(__file__).parents[2] / "e2e" / "fake_trainer.py"))
LONG = {"steps": 100_000, "step_s": 0.05}
SECONDS = 150.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    skip_without_ray()
    with RayCluster(tmp_path_factory.mktemp("ray")) as cluster:
        alone = cluster.listening()
        assert alone
        assert {str(address) for address in alone if not address.is_loopback} == set()
        cluster.add(2)  # a node at another address than 127.0.0.1 listens on all of them
        yield cluster


@pytest.fixture
def launch(cluster: RayCluster, tmp_path: Path) -> Iterator[Callable[..., RunFolder]]:
    """Yield a function that launches a run of two nodes; its processes are stopped at the end."""

    def act(config: dict[str, Any], **changes: Any) -> RunFolder:
        settings = {"address": cluster.url, "token_file": str(cluster.token_file)}
        settings |= changes.pop("settings", {})
        spec = RunSpec(
            name="try",
            launcher="ray",
            nodes=2,
            max_restarts=1,
            stop_grace_s=10.0,
            trainer_config=config,
            trainer_command=FAKE_TRAINER,
            storage=str(tmp_path / "storage"),
            settings=settings,
        )
        spec = replace(spec, **changes)
        LAUNCHER.preflight(spec)
        run = create_run(tmp_path / "runs", spec)
        LAUNCHER.submit(run)
        return run

    yield act
    for path in (tmp_path / "runs").glob("*"):
        run = RunFolder(path=path)
        if not LAUNCHER.state(run).state.is_final:
            LAUNCHER.stop(run)


def _until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.2)


def _lines(run: RunFolder, rank: int) -> list[str]:
    return list(LAUNCHER.logs(run, rank=rank, follow=False))


def _entries(run: RunFolder, event: str) -> list[dict[str, Any]]:
    return [dict(entry.details) for entry in run.ledger.read() if entry.event == event]


def _begun(run: RunFolder) -> list[int]:
    """Return the steps at which attempts of rank 0 began."""
    begun = [line for line in _lines(run, 0) if line.startswith("rank 0 begins at step")]
    return [int(line.rpartition(" ")[2]) for line in begun]


def _at_work(run: RunFolder) -> bool:
    status = LAUNCHER.state(run)
    assert not status.state.is_final, status
    return status.state is RunState.RUNNING


@pytest.mark.soak
def test_a_run_resumes_from_the_last_commit_after_a_killed_rank_and_after_a_stop(
    launch: Callable[..., RunFolder], tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    (folder / "big").mkdir(parents=True)
    (folder / "big" / "left.out").write_text("x" * 1000)
    (folder / "list.sh").write_text(f'ls -d * big/*; exec {FAKE_TRAINER[0]} {FAKE_TRAINER[1]} "$@"')
    run = launch(
        {**LONG, "crashes": [{"rank": 1, "attempt": 0, "step": 8, "how": "kill"}]},
        trainer_command=("bash", "list.sh"),
        settings={"working_dir": str(folder), "excludes": ["big/*"], "working_dir_limit_mb": 0.0005},
    )
    _until(lambda: _at_work(run) and _entries(run, "restarting") and len(_begun(run)) > 1)
    assert {worker.node for worker in LAUNCHER.state(run).workers} == {"127.0.0.1", "127.0.0.2"}
    assert _begun(run)[0] == 0
    assert _begun(run)[1] >= 5, "from a checkpoint, which is made every 5 steps"
    assert "list.sh" in _lines(run, 0), "the working directory was sent along"
    assert "big/left.out" not in _lines(run, 0), "without what is excluded"
    (started,) = _entries(run, "started")
    assert started["id"].startswith("ray://127.0.0.1:8265/cloudrec-try-1-")
    assert find_run(run.path.parent, started["id"]) == run
    with pytest.raises(UsageError, match="the run 'try' is RUNNING"):
        LAUNCHER.submit(run)

    status = LAUNCHER.stop(run)

    assert (status.state, status.attempt) == (RunState.INTERRUPTED, 1)
    assert "stopped on request; the newest checkpoint is at step" in str(status.cause)
    spec = run.spec()
    shorter = {**spec.trainer_config, "step_s": 0.0, "steps": 1000, "crashes": []}
    run.write_spec(replace(spec, trainer_config=shorter))
    LAUNCHER.submit(run)
    assert wait_for_end(run, timeout_s=SECONDS).state is RunState.SUCCEEDED
    assert _begun(run)[2] > _begun(run)[1]
    assert "rank 1 has finished" in _lines(run, 1)
    jobs = [entry["id"].rpartition("/")[2] for entry in _entries(run, "started")]
    left = [path for job in jobs for path in Path(tempfile.gettempdir()).glob(f"cloudrec-*/{job}-*")]
    assert left == [], "the nodes' disks are left clean"


def test_a_run_too_large_for_the_cluster_is_pending_and_fails_after_the_timeout(
    launch: Callable[..., RunFolder],
) -> None:
    run = launch(LONG, nodes=3, settings={"gpus_per_node": 8, "wait_s": 4.0})
    _until(lambda: "waiting for machines" in str(LAUNCHER.state(run).cause))
    status = LAUNCHER.state(run)
    assert status.state is RunState.PENDING
    assert "the run needs 3 nodes with 1 CPUs and 8 GPUs each" in str(status.cause)
    assert "127.0.0.2 (2 CPUs, 0 GPUs)" in str(status.cause)
    status = wait_for_end(run, timeout_s=SECONDS)
    assert status.state is RunState.FAILED
    assert "not found within 4 s" in str(status.cause)


def test_a_missing_or_wrong_token_is_refused_with_the_remedy(
    launch: Callable[..., RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    wrong = tmp_path / "wrong"
    wrong.write_text("no")
    with pytest.raises(PreflightError, match="refuses the token") as refused:
        launch(LONG, settings={"token_file": str(wrong)})
    assert "RAY_AUTH_TOKEN" in str(refused.value.remedy)
    with pytest.raises(PreflightError, match="asks for a token"):
        launch(LONG, settings={"token_file": ""})


def test_an_unknown_job_is_lost_and_not_running(cluster: RayCluster, tmp_path: Path) -> None:
    settings = {"address": cluster.url, "token_file": str(cluster.token_file)}
    spec = RunSpec(name="try", launcher="ray", storage=str(tmp_path / "storage"), settings=settings)
    run = create_run(tmp_path / "runs", spec)
    run.ledger.append("submitted", launch=1)
    assert LAUNCHER.state(run).state is RunState.PENDING, "its launcher may be at work"
    run.ledger.append("started", launch=1)
    status = RayLauncher().state(run)
    assert status.state is RunState.FAILED
    assert "has no job 'cloudrec-try-1-" in str(status.cause)


@pytest.mark.soak
def test_failed_requirements_are_reported_with_the_output_of_pip(
    launch: Callable[..., RunFolder],
) -> None:
    run = launch(LONG, settings={"requirements": ["no-such-thing-at-all==1.0"]})
    status = wait_for_end(run, timeout_s=280)
    assert status.state is RunState.FAILED
    assert "requirements do not install: ERROR: Could not find a version" in str(status.cause)


@pytest.mark.soak
def test_a_run_waits_for_a_lost_node_and_continues(
    launch: Callable[..., RunFolder], cluster: RayCluster
) -> None:
    run = launch(LONG)
    _until(lambda: _at_work(run) and _begun(run) and "rank 1 step 20" in _lines(run, 1))
    cluster.lose(2)  # the rendezvous may be on that node
    _until(lambda: LAUNCHER.state(run).state is RunState.RESTARTING)
    cluster.add(3)
    _until(lambda: _at_work(run) and len(_begun(run)) > 1)
    assert {worker.node for worker in LAUNCHER.state(run).workers} == {"127.0.0.1", "127.0.0.3"}
    assert LAUNCHER.stop(run).state is RunState.INTERRUPTED


@pytest.mark.soak
def test_a_killed_trainer_ends_with_the_samples_of_an_undisturbed_run(
    launch: Callable[..., RunFolder], tmp_path: Path
) -> None:
    _cloudrec("data", "synth", str(tmp_path / "raw"), "--rows", "60000", "--seed", "1")
    _cloudrec("data", "prepare", str(tmp_path / "raw"), str(tmp_path / "data"))
    flags = ("--batch_size", "256", "--embedding_dim", "8", "--dense_arch_layer_sizes", "16,8")
    config = {"dataset_path": str(tmp_path / "data"), "checkpoint_interval": 10, "num_epochs": 2}
    real = {
        "trainer_command": default_trainer_command(),
        "trainer_flags": (*flags, "--over_arch_layer_sizes=16,1"),
    }
    digests = {}
    for name in ("undisturbed", "killed"):
        run = launch(config, name=name, **real)
        if name == "killed":
            _kill_a_rank(run, after_step=30)
        status = wait_for_end(run, timeout_s=280)
        assert status.state is RunState.SUCCEEDED, status
        assert status.attempt == (name == "killed")
        digests[name] = json.loads((run.path / "summary.json").read_text())["samples_digest"]
    assert digests["killed"] == digests["undisturbed"]


def _cloudrec(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "cloudrec", *words], check=True, capture_output=True)


def _kill_a_rank(run: RunFolder, *, after_step: int) -> None:
    """Kill one of a run's trainers with SIGKILL once the run has reached a step."""
    _until(lambda: _at_work(run) and _steps(run) > after_step)
    _ranks(run)[-1].kill()


def _steps(run: RunFolder) -> int:
    """Return the newest step in the run's metrics."""
    if not run.metrics_file.exists():
        return 0
    return max(
        (record.get("step", 0) for record in json_lines((run.path / "metrics.jsonl").read_text())), default=0
    )


def _ranks(run: RunFolder) -> list[psutil.Process]:
    """Return the trainer processes of a run on this machine."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words[1:4] == ["-P", "-m", "trainer"] and any(f"cloudrec-{run.name}-" in word for word in words):
            found.append(process)
    return found


@pytest.mark.soak
def test_a_lost_head_ends_the_run(launch: Callable[..., RunFolder], cluster: RayCluster) -> None:
    run = launch(LONG, settings={"lost_after_s": 5.0})
    _until(lambda: _at_work(run) and _begun(run))
    cluster.lose_head()
    _until(lambda: "no Ray dashboard answers" in str(LAUNCHER.state(run).cause))
    status = wait_for_end(run, timeout_s=SECONDS)
    assert status.state is RunState.FAILED
    assert "the Ray head is lost" in str(status.cause)
