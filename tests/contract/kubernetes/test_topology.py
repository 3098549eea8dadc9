"""Ranks follow the network: a run's processes on nodes of three blocks, whose pods' names say otherwise."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudrec.kubernetes import topology
from cloudrec.kubernetes.client.client import Kube
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.kubernetes.context import disconnect
from cloudrec.launchers.kubernetes.watch.seeking import host_of
from tests.contract.kubernetes.support import REAL, Server
from tests.contract.kubernetes.support_runs import Site, await_status
from tests.contract.kubernetes.support_store import bucket

FAKE = Path(__file__).parents[2] / "e2e" / "fake_trainer.py"
BLOCK = "cloud.google.com/gce-topology-block"
BLOCKS = {"left": "block-1", "right": "block-2", "nowhere": ""}
NODES = [
    {
        "name": name,
        "count": 1,
        "capacity": {"cpu": "4", "memory": "16Gi"},
        "labels": {"pool": "gpu", **({BLOCK: block} if block else {})},
    }
    for name, block in BLOCKS.items()
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with bucket(tmp_path_factory.mktemp("store")) as (_, variables):
        yield variables


@pytest.fixture
def site(server: Server, tmp_path: Path) -> Iterator[Site]:
    if REAL in os.environ:
        pytest.skip("a real server has no nodes here that could reach this machine's bucket")
    server.control(nodes=NODES, processes=True, bookkeeping={}, operators=[])
    yield Site(server, tmp_path)
    disconnect()


def test_ranks_of_nodes_that_share_a_block_are_neighbours_and_their_logs_are_found(
    site: Site, kube: Kube, store: dict[str, str]
) -> None:
    spec = site.spec(
        "placed",
        nodes=3,
        nproc_per_node=1,
        storage="s3://bucket",
        settings={"cpus": 3},
        environment=store,
        target={"fabric": "none", "topology": [BLOCK]},
        trainer_config={"steps": 3},
        trainer_command=(sys.executable, "-c", FAKE.read_text(encoding="utf-8")),
    )
    engine, run = site.launch(spec)
    nodes = {
        pod["spec"]["nodeName"]: host_of(pod)
        for pod in _placed(kube, site.server.namespace, run=spec.name, wanted=3)
    }
    status = await_status(engine, run, lambda status: status.state.is_final)
    assert status.state is RunState.SUCCEEDED
    places = topology.places_in(kube, site.server.namespace)
    assert len(places) == 2, "the node without a block is not in the table"
    order = sorted(nodes, key=lambda node: topology.key(places, node, nodes[node]))
    assert order[-1] not in places, "a node without a place comes last"
    for rank, node in enumerate(order):
        (pod,) = [each for each in _pods(kube, site, spec.name) if each["spec"]["nodeName"] == node]
        answer = kube.logs(pod["metadata"]["name"], namespace=site.server.namespace, container="trainer")
        assert any(f"[rank {rank}] " in line for line in answer), (rank, node)
        assert list(engine.logs(run, rank=rank, follow=False))[-1] == f"rank {rank} has finished"


def _pods(kube: Kube, site: Site, run: str) -> list[dict[str, dict[str, str]]]:
    return kube.list("Pod", namespace=site.server.namespace, labels={"cloudrec/run": run})


def _placed(kube: Kube, namespace: str, *, run: str, wanted: int) -> list[dict[str, dict[str, str]]]:
    deadline = time.monotonic() + 60
    while True:
        pods = kube.list("Pod", namespace=namespace, labels={"cloudrec/run": run, "cloudrec/role": "trainer"})
        placed = [pod for pod in pods if pod["spec"].get("nodeName")]
        if len(placed) == wanted:
            return placed
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_guard_adds_nodes_that_join_later(server: Server, kube: Kube) -> None:
    server.control(nodes=NODES[:1], processes=False, bookkeeping={}, operators=[])
    kube.delete("ConfigMap", topology.NAME, namespace=server.namespace)  # of the test before
    assert topology.refresh(kube, server.namespace) is False, "without a table there is nothing to keep"
    assert topology.publish(kube, server.namespace, [BLOCK], own={}) == 1
    assert topology.refresh(kube, server.namespace) is False
    server.control(nodes=NODES)
    assert topology.refresh(kube, server.namespace) is True
    assert len(topology.places_in(kube, server.namespace)) == 2
    assert topology.publish(kube, server.namespace, [BLOCK], own={}) == 2, "the launcher takes it over again"
