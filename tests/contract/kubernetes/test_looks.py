"""What a look at a run costs after the first one: calls and bytes, which do not grow with its nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cloudrec.kubernetes.client.client import Kube
from cloudrec.launchers import launcher
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.protocol import RunStatus
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.kubernetes.context import disconnect
from cloudrec.launchers.kubernetes.launcher import KubeLauncher
from tests.contract.kubernetes.support import Server
from tests.contract.kubernetes.support_bytes import CountingProxy, counted
from tests.contract.kubernetes.support_runs import PATIENCE_S, Site, await_status

NODES = 60  # in a quiet look, no request depends on their number; a thousand take the stand-in minutes
MOST_BYTES = 50_000  # a list of the pods of a thousand nodes has 6 million


class Watched:
    """A running run, and a new process's view of it for each look."""

    def __init__(self, server: Server, run: RunFolder, proxy: CountingProxy) -> None:
        self.server, self.run, self._proxy = server, run, proxy

    def look(self) -> tuple[RunStatus, list[str], int]:
        """The status, the calls for it, and the bytes that came."""
        engine = launcher("torchrun")
        assert isinstance(engine, KubeLauncher)
        engine._memories.clear()  # as a new command has none
        before, received = self.server.control()["calls"], self._proxy.received
        status = engine.state(self.run)
        return status, self.server.calls(before), self._proxy.received - received


@pytest.fixture(scope="module")
def watched(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if server.announcement is None:
        pytest.skip("a real server counts no calls")
    folder = tmp_path_factory.mktemp("home")
    pool = {"name": "cpu", "count": NODES, "capacity": {"cpu": "4", "memory": "16Gi"}}
    server.control(nodes=[pool], processes=False, bookkeeping={}, speed=60.0)
    with counted() as proxy:
        site = Site(server, folder)
        spec = site.spec("big", nodes=NODES, settings={"cpus": 3})
        engine, run = site.launch(spec)
        await_status(engine, run, lambda status: status.state is RunState.RUNNING)
        server.control(speed=1.0)
        made = Watched(server, run, proxy)
        made.look()
        yield made
        server.control(nodes=[])
    disconnect()


def test_a_look_after_the_first_costs_two_calls_and_few_bytes(watched: Watched) -> None:
    for _ in range(3):
        status, calls, received = watched.look()
        assert (status.state, len(status.workers)) == (RunState.RUNNING, NODES)
        assert calls in (["get jobs"], ["get jobs", "watch pods"])
        assert received <= MOST_BYTES


def test_a_change_of_a_pod_is_seen_without_another_list(watched: Watched, kube: Kube) -> None:
    victim = watched.look()[0].workers[7]
    kube.delete("Pod", victim.name, namespace=watched.server.namespace)
    deadline = time.monotonic() + PATIENCE_S
    there = True
    while there:
        assert time.monotonic() < deadline
        status, calls, _ = watched.look()
        assert "list pods" not in calls
        there = victim in status.workers
