"""Runs that train in the stand-in's pods, with their files in S3; they take minutes on two cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.outputs import read_summary
from cloudrec.launchers.base.protocol import Launcher
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.kubernetes.context import disconnect
from tests.contract.kubernetes.support import REAL, Server
from tests.contract.kubernetes.support_runs import Site, await_status, await_true
from tests.contract.kubernetes.support_store import bucket
from tests.trainer.support_dataset import write_dataset

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]
ROWS, EPOCHS, PATIENCE_S = 4000, 8, 200.0
NODES = [{"name": "cpu", "count": 2, "capacity": {"cpu": "4", "memory": "16Gi"}}]
OPERATORS = ["pytorchjob", "trainjob"]
MODEL = {
    "batch_size": 64,
    "embedding_dim": 16,
    "num_embeddings": 50,
    "dense_arch_layer_sizes": [32, 16],
    "over_arch_layer_sizes": [32, 1],
    "num_epochs": EPOCHS,
    "checkpoint_interval": 10,
    "dataset_path": "s3://bucket/data",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A bucket with a dataset, and the variables that pods need to reach it."""
    folder = tmp_path_factory.mktemp("store")
    with bucket(folder) as (files, variables):
        write_dataset(folder / "dataset", train_rows=ROWS, test_rows=400)
        files.put(str(folder / "dataset"), "bucket/data", recursive=True)
        yield variables


@pytest.fixture
def site(server: Server, tmp_path: Path) -> Iterator[Site]:
    if REAL in os.environ:
        pytest.skip("a real server has no nodes here that could reach this machine's bucket")
    timing = {"replacement_s": 2}
    server.control(nodes=NODES, processes=True, bookkeeping={}, node_timing=timing, operators=OPERATORS)
    yield Site(server, tmp_path)
    disconnect()


def _launch(site: Site, how: str, name: str, store: dict[str, str]) -> tuple[Launcher, RunFolder]:
    settings = {"probe": True, "cpus": 3}  # one pod per node
    spec = site.spec(
        f"{name}-{how}",
        how,
        settings=settings,
        storage=f"s3://bucket/{site.folder.name}",  # both servers have a run of this name
        trainer_config=MODEL,
        environment=store,
        target={"fabric": "none"},
        stop_grace_s=30,
    )
    return site.launch(spec)


def _await_checkpoint(engine: Launcher, run: RunFolder) -> None:
    def has_one() -> bool:
        engine.state(run)
        records = run.metrics_file.read_text(encoding="utf-8") if run.metrics_file.exists() else ""
        return '"kind": "checkpoint"' in records

    await_true(has_one, PATIENCE_S)


def _end(engine: Launcher, run: RunFolder) -> dict[str, Any]:
    status = await_status(engine, run, lambda status: status.state.is_final, PATIENCE_S)
    assert status.state is RunState.SUCCEEDED, status
    return read_summary(run)


@pytest.mark.parametrize("how", ["torchrun", *OPERATORS])
def test_an_interrupted_run_trains_every_sample_once(site: Site, store: dict[str, str], how: str) -> None:
    engine, plain = _launch(site, how, "plain", store)
    undisturbed = _end(engine, plain)
    assert undisturbed["samples_seen"] == ROWS * EPOCHS

    engine, run = _launch(site, how, "evicted", store)
    _await_checkpoint(engine, run)
    node = engine.state(run).workers[1].node
    site.server.control(evict={"node": node, "how": "spot"})
    evicted = _end(engine, run)
    status = engine.state(run)
    assert (status.preemptions, status.attempt) == (1, 1)
    assert evicted["samples_digest"] == undisturbed["samples_digest"]
    headers = [line for line in engine.logs(run, rank=3, follow=False) if line.startswith("=== launch")]
    assert [line.split(", ")[1] for line in headers] == ["attempt 0", "attempt 0"]  # of two pods

    engine, run = _launch(site, how, "stopped", store)
    _await_checkpoint(engine, run)
    stopped = engine.stop(run)
    assert stopped.state is RunState.INTERRUPTED
    assert "the newest checkpoint is at step" in (stopped.cause or "")
    assert engine.submit(run).launch == 2
    assert _end(engine, run)["samples_digest"] == undisturbed["samples_digest"]
