"""A run of which a part has no nodes ends in time, and so frees the nodes that it has."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudrec.kubernetes.client.client import Kube
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.kubernetes.context import disconnect
from tests.contract.kubernetes.support import REAL, Server
from tests.contract.kubernetes.support_runs import Site, await_status, await_true
from tests.contract.kubernetes.support_store import bucket

FAKE = Path(__file__).parents[2] / "e2e" / "fake_trainer.py"
NODES = [{"name": "cpu", "count": 1, "capacity": {"cpu": "4", "memory": "16Gi"}}]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with bucket(tmp_path_factory.mktemp("store")) as (_, variables):
        yield variables


@pytest.mark.parametrize("how", ["torchrun", "jobset"])
def test_a_run_with_one_of_two_nodes_fails_with_the_reason_and_leaves_no_pod(
    server: Server, kube: Kube, store: dict[str, str], tmp_path: Path, how: str
) -> None:
    if REAL in os.environ:
        pytest.skip("a real server has no nodes here that could reach this machine's bucket")
    server.control(nodes=NODES, processes=True, bookkeeping={}, operators=["jobset"])
    site = Site(server, tmp_path)
    spec = site.spec(
        f"part-{how}",
        how,
        nproc_per_node=1,
        storage="s3://bucket",
        settings={"cpus": 3, "wait_for_nodes": True, "start_timeout_s": 10},
        environment=store,
        target={"fabric": "none"},
        trainer_config={"steps": 3},
        trainer_command=(sys.executable, "-c", FAKE.read_text(encoding="utf-8")),
    )
    engine, run = site.launch(spec)
    status = await_status(engine, run, lambda status: status.state.is_final)
    assert status.state is RunState.FAILED
    assert "not all nodes of the run joined within 10 s" in (status.cause or "")

    def holding() -> list[str]:
        pods = kube.list("Pod", namespace=server.namespace, labels={"cloudrec/run": spec.name})
        return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]

    await_true(lambda: not holding())
    disconnect()
