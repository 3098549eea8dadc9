"""Each operator's pods start the fake trainer as real processes, and the run ends with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.outputs import read_summary
from cloudrec.launchers.kubernetes.context import disconnect
from tests.contract.kubernetes.support import REAL, Server
from tests.contract.kubernetes.support_runs import Site, await_status
from tests.contract.kubernetes.support_store import bucket

FAKE = Path(__file__).parents[2] / "e2e" / "fake_trainer.py"
OPERATORS = ["pytorchjob", "trainjob", "jobset", "rayjob"]
NODES = [{"name": "cpu", "count": 2, "capacity": {"cpu": "4", "memory": "16Gi"}}]
STEPS = 3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with bucket(tmp_path_factory.mktemp("store")) as (_, variables):
        yield variables


@pytest.mark.parametrize(
    "how", ["torchrun", "pytorchjob", "trainjob", "jobset", pytest.param("rayjob", marks=pytest.mark.soak)]
)
def test_a_run_of_one_rank_prints_its_steps_and_succeeds(
    server: Server, store: dict[str, str], tmp_path: Path, how: str
) -> None:
    if REAL in os.environ:
        pytest.skip("a real server has no nodes here that could reach this machine's bucket")
    server.control(
        nodes=NODES, processes=True, bookkeeping={}, operators=[] if how == "torchrun" else OPERATORS
    )
    site = Site(server, tmp_path)
    spec = site.spec(
        f"short-{how}",
        how,
        nodes=1,
        nproc_per_node=1,
        storage=f"s3://bucket/{tmp_path.name}",  # both servers have a run of this name
        settings={"cpus": 1},
        environment=store,
        target={"fabric": "none"},
        trainer_config={"steps": STEPS, "checkpoint_interval": STEPS},
        trainer_command=(sys.executable, "-c", FAKE.read_text(encoding="utf-8")),
    )
    engine, run = site.launch(spec)
    lines = list(engine.logs(run, rank=0, follow=True))
    assert [line for line in lines if " step " in line and "begins" not in line] == [
        f"rank 0 step {step}" for step in range(1, STEPS + 1)
    ]
    status = await_status(engine, run, lambda status: status.state.is_final, 60)
    assert (status.state, status.attempt, status.preemptions) == (RunState.SUCCEEDED, 0, 0)
    assert read_summary(run)["status"] == "finished"
    disconnect()
