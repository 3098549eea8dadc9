"""A run continues with the remaining ranks, and accepts new ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from cloudrec.process.ports import free_port
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import command, run_here, start, wait_until
from trainer.base.arguments import make_config
from trainer.base.errors import ConfigError
from trainer.loop.elastic import StepCount, fit_batch
from trainer.loop.progress import Progress

SETTINGS: dict[str, Any] = {
    "num_epochs": 300,
    "global_batch_size": 50,
    "log_interval": 20,
    "over_arch_layer_sizes": (256, 256, 1),
    "learning_rate": 0.002,  # gently: rounding differs with the ranks, and overfitting would magnify it
    "dense_learning_rate": 2e-5,
}
AGENT = (
    *("--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=20", "--local-addr=127.0.0.1"),
    *("--rdzv-backend=c10d", "--rdzv-id=elastic", "--monitor-interval=0.5"),
)
REACTIONS = "--rdzv-conf=last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=6,join_timeout=300"
# torch 2.13's agent of rank 0 does not announce its shared store to a later node
ALONE_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    write_dataset(path, train_rows=1003, test_rows=200, num_dense=3, num_sparse=4)
    return path


@pytest.fixture
def nodes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Agents, each as it would run on its own node; all are ended."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        _kill_node(process)


def _kill_node(agent: subprocess.Popen[bytes]) -> None:
    """As when a node is lost: kill the agent and its ranks, which are separate sessions, at once."""
    if agent.poll() is None:
        family = psutil.Process(agent.pid).children(recursive=True)
        agent.kill()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    agent.wait()


def _starts(run: Path) -> list[dict[str, Any]]:
    if not (run / "metrics.jsonl").exists():
        return []
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if '"kind": "start"' in line and line.endswith("}")]


def _works(run: Path, world_size: int, attempts: int) -> Callable[[], bool]:
    """Whether the attempt with this number has that many ranks and has saved a checkpoint."""

    def true() -> bool:
        starts = _starts(run)
        if len(starts) <= attempts or starts[-1]["world_size"] != world_size:
            return False
        begun = starts[-1]["step"]
        return any(
            int(path.parent.name.removeprefix("step-")) > begun
            for path in run.glob("checkpoints/step-*/commit-*.json")
        )

    return true


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_killed_node_is_replaced_and_every_sample_counts_once(
    dataset: Path, tmp_path: Path, nodes: list[subprocess.Popen[bytes]]
) -> None:
    run = tmp_path / "run"
    trainer = command(dataset, run, **SETTINGS, checkpoint_interval=50)[1:]
    endpoint = f"--rdzv-endpoint=127.0.0.1:{free_port()}"

    def add_node() -> subprocess.Popen[bytes]:
        is_host = f"{REACTIONS},is_host={int(not nodes)}"  # the rendezvous lives with the first
        agent = [sys.executable, "-m", "torch.distributed.run", *AGENT, endpoint, is_host]
        nodes.append(start([*agent, *trainer], tmp_path / f"node-{len(nodes)}.log", **ALONE_STORE))
        return nodes[-1]

    first, second = add_node(), add_node()
    wait_until(_works(run, 2, 0), first)
    _kill_node(second)
    wait_until(_works(run, 1, 1), first)
    add_node()
    wait_until(_works(run, 2, 2), first)
    for node in nodes:
        _kill_node(node)
    assert run_here(dataset, run, **SETTINGS).code == 0  # the rest, quickly

    alone = run_here(dataset, tmp_path / "alone", **SETTINGS)
    summary = json.loads((run / "summary.json").read_text())
    for name in ("status", "step", "samples_seen", "samples_digest"):
        assert summary[name] == alone.summary[name]
    assert summary["logloss"] == pytest.approx(alone.summary["logloss"], rel=1e-3)
    assert [begun["world_size"] for begun in _starts(run)] == [2, 1, 2, 1]
    assert all(begun["resumed_from"] for begun in _starts(run)[1:])


def _course(ranks: int, progress: Progress, **settings: Any) -> StepCount:
    config = make_config({"dataset_path": "data", "batch_size": 10, "num_epochs": 3, **settings})
    return StepCount(config, progress, rows=105, ranks=ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_an_uninterrupted_course_counts_its_steps(ranks: int) -> None:
    progress, course = Progress(), _course(ranks, Progress())
    total = course.left
    for step in range(total + 1):
        course = _course(ranks, progress)
        assert (course.done, course.left) == (step, total - step)
        progress.advance(min(10 * ranks, 105 - progress.position), 105, 0.0)
    assert progress.epoch == 3 or total == 0


def test_a_course_that_changes_its_world_size_sees_every_sample() -> None:
    progress, ranks = Progress(), 1
    while (course := _course(ranks, progress)).left:
        for _ in range(min(course.left, 4)):
            progress.advance(min(10 * ranks, 105 - progress.position), 105, 0.0)
        ranks = ranks % 4 + 1
    assert (progress.epoch, progress.position, progress.samples) == (3, 0, 315)


def test_learning_rate_schedules_are_resumed() -> None:
    progress = Progress()
    for _ in range(16):  # of 33 steps of one rank
        progress.advance(min(10, 105 - progress.position), 105, 0.0)
    course = _course(2, progress)
    assert course.done / (course.done + course.left) == pytest.approx(16 / 33, abs=0.06)


def test_num_iterations_limits_the_sum_of_all_attempts() -> None:
    progress = Progress(step=12, epoch=1, position=10)
    assert _course(1, progress, num_iterations=15).left == 3
    assert _course(2, progress, num_iterations=12).left == 0


def test_a_global_batch_can_be_split_by_any_divisor() -> None:
    config = make_config({"dataset_path": "data", "global_batch_size": 12})
    sizes = [fit_batch(config, ranks).batch_size for ranks in (1, 2, 3, 4)]
    assert sizes == [12, 6, 4, 3]
    with pytest.raises(ConfigError, match="global_batch_size 12 cannot be shared evenly by 5 ranks"):
        fit_batch(config, 5)
