"""A node that is dead while its Node object stays, as on bare metal: reported, and the run continues."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cloudrec.keeper.tending import tend
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.wishes import IGNORED
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.protocol import Launcher
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.kubernetes.context import disconnect
from cloudrec.launchers.kubernetes.submit import pods_of
from tests.contract.kubernetes.support import Server
from tests.contract.kubernetes.support_runs import Site, await_status

POOL = {"count": 3, "capacity": {"cpu": "4", "memory": "16Gi"}}
NUMBERS = count()
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
DEAD = "is dead, and its Node object stays"


@pytest.fixture
def site(server: Server, tmp_path: Path) -> Iterator[Site]:
    if server.announcement is None:
        pytest.skip("a real server loses no nodes on order")
    timing = {"lost_s": 5, "gc_s": 1}
    pool = {**POOL, "name": f"pool{next(NUMBERS)}"}  # the Node object of a dead machine stays
    server.control(nodes=[pool], processes=False, bookkeeping={}, node_timing=timing, speed=60.0)
    yield Site(server, tmp_path)
    with server.connect() as kube:  # a Job that is left replaces its pods on the next test's nodes
        for job in kube.list("Job", namespace=server.namespace):
            kube.delete("Job", job["metadata"]["name"], namespace=server.namespace)
    server.control(nodes=[], speed=1.0)
    disconnect()


def _with_dead_node(site: Site, name: str, **settings: Any) -> tuple[Launcher, RunFolder, str]:
    """A run of two nodes, one of which has died; the third is free."""
    spec = site.spec(name, settings={"cpus": 3, **settings})
    engine, run = site.launch(spec)
    await_status(engine, run, lambda status: status.state is RunState.RUNNING)
    node = engine.state(run).workers[0].node
    site.server.control(evict={"node": node, "how": "vanish", "node_object": "stays"})
    status = await_status(engine, run, lambda status: DEAD in (status.cause or ""))
    assert status.state is RunState.RESTARTING
    return engine, run, node


def _runs_elsewhere(engine: Launcher, run: RunFolder, node: str) -> None:
    status = await_status(engine, run, lambda status: status.state is RunState.RUNNING)
    assert node not in {worker.node for worker in status.workers if worker.state == "Running"}
    assert status.preemptions == 1


def test_the_guard_ends_the_pod_of_a_dead_node_and_the_run_continues(site: Site, kube: Kube) -> None:
    engine, run, node = _with_dead_node(site, "replaced")
    assert "the cluster's guard ends the pod within minutes" in (engine.state(run).cause or "")
    said = list[str]()
    tend(kube, site.server.namespace, said.append)
    assert [line.partition(": ")[2] for line in said] == [
        f"its node {node} is dead; it is ended, and another one begins"
    ]
    _runs_elsewhere(engine, run, node)
    assert kube.get("Node", node) is not None


def test_a_run_that_only_reports_names_the_remedy_and_the_remedy_works(site: Site, kube: Kube) -> None:
    engine, run, node = _with_dead_node(site, "reported", dead_node="report")
    assert f"kubectl taint nodes {node} {OUT_OF_SERVICE['key']}=" in (engine.state(run).cause or "")
    said = list[str]()
    tend(kube, site.server.namespace, said.append)
    assert said == []
    found = kube.get("Node", node) or {}
    kube.patch("Node", node, {"spec": {"taints": [*found["spec"]["taints"], OUT_OF_SERVICE]}})
    _runs_elsewhere(engine, run, node)


def test_a_forced_deletion_alone_frees_no_pod_of_a_job(site: Site, kube: Kube) -> None:
    engine, run, node = _with_dead_node(site, "forced", dead_node="report")
    (pod,) = [each for each in _pods(site, kube, run) if each["spec"]["nodeName"] == node]
    kube.delete("Pod", pod["metadata"]["name"], namespace=site.server.namespace, grace_s=0)
    (still,) = [each for each in _pods(site, kube, run) if each["metadata"]["uid"] == pod["metadata"]["uid"]]
    assert still["status"]["phase"] == "Running"
    assert engine.stop(run, grace_s=0).state is RunState.INTERRUPTED


def test_preemptions_of_a_pod_that_has_settled_delay_the_next_replacement_no_longer(
    site: Site, kube: Kube
) -> None:
    engine, run = site.launch(site.spec("settled", settings={"cpus": 3}))
    await_status(engine, run, lambda status: status.state is RunState.RUNNING)
    first, second = (each["metadata"]["name"] for each in _pods(site, kube, run))
    space = site.server.namespace
    for name in (first, second):
        kube.patch("Pod", name, {"metadata": {"annotations": {IGNORED: "5"}}}, namespace=space)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    kube.patch("Pod", first, {"status": {"conditions": [ready]}}, namespace=space, subresource="status")
    unready = {**ready, "status": "False"}
    kube.patch("Pod", second, {"status": {"conditions": [unready]}}, namespace=space, subresource="status")
    tend(kube, space, lambda _line: None)
    counts = {
        each["metadata"]["name"]: (each["metadata"].get("annotations") or {}).get(IGNORED)
        for each in _pods(site, kube, run)
    }
    assert counts == {first: None, second: "5"}


def _pods(site: Site, kube: Kube, run: RunFolder) -> list[dict[str, Any]]:
    return pods_of(kube, run.name, site.server.namespace)


def test_only_a_machine_that_vanishes_leaves_its_node_object(site: Site, kube: Kube) -> None:
    node = kube.list("Node")[-1]["metadata"]["name"]
    with pytest.raises(Exception, match="node_object"):
        site.server.control(evict={"node": node, "how": "spot", "node_object": "stays"})
