"""`train` and `stop` of a run that may move between the clusters of several regions."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cloudrec.errors import StorageError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import KubeError
from cloudrec.launchers import launcher
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.protocol import Launcher
from cloudrec.launchers.base.results_store import Place
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.kubernetes.context import disconnect
from cloudrec.launchers.kubernetes.turns import create_turn, newest_turn, open_turns
from tests.contract.kubernetes.support import Server
from tests.contract.kubernetes.support_runs import IMAGE, Site, await_status

CPU = [{"name": "cpu", "count": 4, "capacity": {"cpu": "4", "memory": "16Gi"}}]


@dataclass(frozen=True)
class Shared:
    """A run of two clusters, which are two namespaces of the server with a kubeconfig each."""

    engine: Launcher
    run: RunFolder
    turns: Place
    config: Path  # of the second cluster
    namespace: str  # of the second cluster

    def fail(self) -> None:
        """The control plane of the second cluster does not answer any more."""
        text = self.config.read_text(encoding="utf-8")
        closed = re.sub(r"https://[0-9.]+:[0-9]+", "https://127.0.0.1:1", text)
        assert closed != text
        self.config.write_text(closed, encoding="utf-8")
        disconnect()


def submitted(
    server: Server, kube: Kube, tmp_path: Path, *, probe: bool = False
) -> tuple[Launcher, RunFolder, Path, str]:
    """Submit the run to both clusters; return the kubeconfig and the namespace of the second one, too."""
    site, config = Site(server, tmp_path), tmp_path / "west.yaml"
    namespace = f"{server.namespace}-{uuid.uuid4().hex[:6]}"
    shutil.copy(server.kubeconfig, config)
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    account = {"name": "trainer", "namespace": namespace}
    kube.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    here = site.spec("one", cluster="east", elsewhere=("west",), settings={"probe": probe})
    there = replace(
        here,
        cluster="west",
        elsewhere=("east",),
        target=server.target(kubeconfig=str(config), namespace=namespace),
    )
    engine, run = launcher("torchrun"), create_run(tmp_path / "runs", here, [there])
    engine.submit(run)
    return engine, run, config, namespace


@pytest.fixture
def shared(server: Server, kube: Kube, tmp_path: Path) -> Iterator[Shared]:
    """The run, in progress in its first cluster."""
    server.control(nodes=CPU, processes=False, bookkeeping={}, operators=[], images={IMAGE: "present"})
    engine, run, config, namespace = submitted(server, kube, tmp_path)
    turns = open_turns(run.spec().storage, "one")
    offered = newest_turn(turns)
    assert offered is not None
    assert create_turn(turns, replace(offered, number=2, by="east"))
    await_status(engine, run, lambda status: status.state is RunState.RUNNING)
    yield Shared(engine=engine, run=run, turns=turns, config=config, namespace=namespace)
    remove(kube, server.namespace, namespace)


def remove(kube: Kube, first: str, second: str) -> None:
    disconnect()
    for place in (first, second):
        kube.delete("Job", "one", namespace=place)
    kube.delete("Namespace", second)


def test_the_data_is_checked_in_the_first_cluster_alone(server: Server, kube: Kube, tmp_path: Path) -> None:
    ends = {"run_s": 1, "exit_code": 0}
    server.control(nodes=CPU, processes=False, bookkeeping=ends, operators=[], images={IMAGE: "present"})
    since = len(server.calls(0))
    *_, namespace = submitted(server, kube, tmp_path, probe=True)
    try:
        # The run's in each of the clusters, and the one that checks the data.
        assert server.calls(since).count("patch jobs") == 3
    finally:
        remove(kube, server.namespace, namespace)


def test_a_run_is_stopped_in_both_clusters_and_its_turns_say_so(shared: Shared, kube: Kube) -> None:
    assert shared.engine.stop(shared.run).state is RunState.INTERRUPTED
    turn = newest_turn(shared.turns)
    assert turn is not None
    assert (turn.number, turn.cluster, turn.ended) == (3, "east", "stopped")
    waiting = kube.get("Job", "one", namespace=shared.namespace)
    assert waiting is not None
    assert waiting["spec"]["suspend"]
    assert "cloudrec/queued" not in (waiting["metadata"].get("annotations") or {})


@pytest.mark.slow  # the client tries for 45 seconds
def test_a_run_is_stopped_although_another_cluster_does_not_answer(shared: Shared) -> None:
    shared.fail()
    with pytest.raises(KubeError, match="'one' is stopped, but cluster west does not answer") as found:
        shared.engine.stop(shared.run)
    assert "cloudrec status --cluster west" in (found.value.remedy or "")
    assert shared.engine.state(shared.run).state is RunState.INTERRUPTED
    turn = newest_turn(shared.turns)
    assert turn is not None
    assert turn.ended == "stopped"


@pytest.mark.slow
def test_a_run_that_a_silent_cluster_could_take_is_not_stopped(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.fail()

    def refuse(_place: Place) -> None:
        raise StorageError("the bucket does not answer")

    monkeypatch.setattr("cloudrec.launchers.kubernetes.turns.newest_turn", refuse)
    with pytest.raises(KubeError, match="cluster west could take the run 'one'") as found:
        shared.engine.stop(shared.run)
    assert "cloudrec stop" in (found.value.remedy or "")
    assert shared.engine.state(shared.run).state is RunState.RUNNING
    monkeypatch.undo()
    with pytest.raises(KubeError, match="is stopped, but"):  # again, once the storage answers
        shared.engine.stop(shared.run)
    assert shared.engine.state(shared.run).state is RunState.INTERRUPTED
