"""What `status` and `logs` show of runs while their cluster's API server does not answer."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import ApiUnreachableError
from cloudrec.kubernetes.client.wire import brief
from cloudrec.launchers import launcher
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.kubernetes.context import disconnect
from cloudrec.launchers.kubernetes.launcher import KubeLauncher
from cloudrec.observe.logs import read_logs
from cloudrec.observe.runs import list_runs
from tests.contract.kubernetes.support import Server
from tests.contract.kubernetes.support_runs import IMAGE, Site, await_status

CPU = [{"name": "cpu", "count": 4, "capacity": {"cpu": "4", "memory": "16Gi"}}]
HEADER = "=== launch 1, attempt 0, rank 0 of 2, 2026-11-29T10:00:00Z ===\n"


class Silent:
    """A server that closes every connection without an answer."""

    def __init__(self, listener: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.connections = 0
        self._listener = listener

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            connection.settimeout(1.0)
            with suppress(OSError):
                connection.recv(1 << 16)
            connection.close()


@contextmanager
def silent() -> Iterator[Silent]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Silent(listener)
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def config(server: Server, tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(Path(server.kubeconfig).read_text(encoding="utf-8"), encoding="utf-8")
    return file


def point_at(config: Path, url: str) -> None:
    """Let the kubeconfig name another server."""
    text = config.read_text(encoding="utf-8")
    changed = re.sub(r"https?://[0-9.]+:[0-9]+", url, text)
    assert changed != text
    config.write_text(changed, encoding="utf-8")
    disconnect()
    engine = launcher("torchrun")
    assert isinstance(engine, KubeLauncher)
    engine._memories.clear()  # as a new command has none


def launched(server: Server, config: Path, folder: Path, name: str) -> RunFolder:
    """A run in progress whose first pod has written its lines to the storage."""
    site = Site(server, folder)
    engine, run = site.launch(
        site.spec(name, nodes=1, nproc_per_node=2, target={"kubeconfig": str(config)}, settings={"cpus": 1})
    )
    await_status(engine, run, lambda status: status.state is RunState.RUNNING)
    lines = folder / "store" / "runs" / name / "pods" / f"{name}-0-uid" / "rank-0.log"
    lines.parent.mkdir(parents=True)
    lines.write_text(f"{HEADER}{name} step 1\n{name} step 2\n", encoding="utf-8")
    progress = {"kind": "train", "step": 2, "time": time.time(), "loss": 0.5}
    (lines.parents[2] / "metrics.jsonl").write_text(json.dumps(progress) + "\n", encoding="utf-8")
    return run


@pytest.fixture
def runs(server: Server, kube: Kube, config: Path, tmp_path: Path) -> Iterator[list[RunFolder]]:
    server.control(nodes=CPU, processes=False, bookkeeping={}, operators=[], images={IMAGE: "present"})
    yield [launched(server, config, tmp_path, name) for name in ("one", "two", "three")]
    disconnect()
    for name in ("one", "two", "three"):
        kube.delete("Job", name, namespace=server.namespace)


def test_a_list_of_runs_asks_a_silent_cluster_as_long_as_one_run_does(
    runs: list[RunFolder], config: Path, tmp_path: Path
) -> None:
    with silent() as nothing:
        point_at(config, nothing.url)
        views = list_runs(tmp_path / "runs")
        asked = nothing.connections
        assert asked > 1  # the first run's call is repeated
        assert {view.name for view in views} == {run.name for run in runs}
        for view in views:
            assert (view.state, view.step) == (RunState.RUNNING, 2)  # the step is in the storage
            assert view.cause is not None
            assert view.cause.startswith("as last seen: cannot read Job ")
            assert "does not answer" in view.cause
        with brief(30.0), pytest.raises(ApiUnreachableError, match="does not answer"):
            Kube.connect(runs[1].spec().target).get("Job", "two")  # type: ignore[arg-type]
        assert nothing.connections == asked
        with pytest.raises(ApiUnreachableError):  # a command that is not a view keeps trying
            Kube.connect(runs[1].spec().target, patience_s=0.5).get("Job", "two")  # type: ignore[arg-type]
        assert nothing.connections > asked


def test_the_lines_in_the_storage_are_shown_while_the_cluster_is_silent(
    runs: list[RunFolder], config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with silent() as nothing, caplog.at_level(logging.WARNING):
        point_at(config, nothing.url)
        assert list(read_logs(runs[0], rank=0, tail=1)) == ["one step 2"]
        assert list(read_logs(runs[0], rank=0)) == [HEADER.strip(), "one step 1", "one step 2"]
    first, _ = (each.getMessage() for each in caplog.records if each.name.endswith("watch.lines"))
    assert "does not answer" in first
    assert first.endswith("; these are the lines in the run's storage")
