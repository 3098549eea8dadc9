"""The requests that `status` and `logs` make, and the modules that they import."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.kubernetes.context import disconnect
from tests.contract.kubernetes.support import Server
from tests.contract.kubernetes.support_runs import Site, await_status

NODES, RANKS = 12, 2
SILENT = "many-7"  # a pod without output
OTHERS = ("adlfs", "azure", "boto3", "botocore", "fsspec", "google.cloud", "polars", "ray", "s3fs", "torch")
OURS = (
    "app.run.launch",
    "app.lifecycle",
    "launchers.local.launcher",
    "launchers.ray.launcher",
    "launchers.slurm.launcher",
    "kubernetes.manifests",
    "transport",
    "spec.models",
)
UNUSED = [*OTHERS, *(f"cloudrec.{name}" for name in OURS)]
PROGRAM = (
    "import sys\nfrom cloudrec.cli.main import run\ncode = run(sys.argv[1:])\n"
    f"print(*sorted(set({UNUSED!r}) & set(sys.modules)))\n"
    "print(sum(name.startswith('cloudrec') and not hasattr(module, '__path__')"
    " for name, module in sys.modules.items()))\nsys.exit(code)"
)
MOST_OF_OURS = 69  # modules, without those named __init__


@pytest.fixture(scope="module")
def site(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A running run of several nodes; ranks follow the order of the nodes' names as text."""
    hosts = sorted((f"many-{number}" for number in range(NODES)), key=lambda host: f"{host}.")
    lines = {
        host: [
            f"[rank {rank}] {text}"
            for rank in range(place * RANKS, (place + 1) * RANKS)
            for text in ("=== launch 1, attempt 0", f"I am {rank}")
        ]
        for place, host in enumerate(hosts)
        if host != SILENT
    }
    pool = {"name": "cpu", "count": NODES, "capacity": {"cpu": "4", "memory": "16Gi"}}
    server.control(nodes=[pool], processes=False, bookkeeping={"logs": lines})
    made = Site(server, tmp_path_factory.mktemp("home"))
    engine, run = made.launch(made.spec("many", nodes=NODES, settings={"cpus": 3}))
    await_status(engine, run, lambda status: status.state is RunState.RUNNING)
    yield made
    disconnect()


def _command(site: Site, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str] | None]:
    """The output of a command, and the requests that it made; a real server counts none."""
    before = site.server.control().get("calls")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "CLOUDREC_HOME": str(site.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done, None if before is None else site.server.calls(before)


@pytest.mark.parametrize("arguments", [("status", "many"), ("logs", "many"), ("logs", "many", "--rank", "7")])
def test_status_and_logs_import_few_modules_and_no_cloud_sdk(site: Site, arguments: tuple[str, ...]) -> None:
    done, _ = _command(site, *arguments)
    *_, unused, ours = done.stdout.splitlines()
    assert unused == ""
    assert int(ours) <= MOST_OF_OURS


def test_a_later_status_requests_only_the_object_of_the_run(site: Site) -> None:
    done, calls = _command(site, "status", "many")
    assert "RUNNING" in done.stdout
    # Its pods were listed by an earlier look, and none has changed since: the Job's version shows that.
    assert calls in (None, ["get jobs"])


@pytest.mark.parametrize("rank", [0, 5, NODES * RANKS - 1])
def test_logs_of_a_rank_request_only_its_own_pod(site: Site, rank: int) -> None:
    done, calls = _command(site, "logs", "many", "--rank", str(rank))
    assert done.stdout.splitlines()[:2] == ["=== launch 1, attempt 0", f"I am {rank}"]
    assert calls in (None, ["list pods", "get pods/log", "get pods/log"])


def test_a_rank_without_a_pod_is_reported_after_few_requests(site: Site) -> None:
    place = sorted(range(NODES), key=lambda number: f"{number}.").index(int(SILENT.removeprefix("many-")))
    done, calls = _command(site, "logs", "many", "--rank", str(place * RANKS))
    assert f"rank {place * RANKS} of many has no saved output" in done.stderr
    if calls is not None:
        assert calls.count("list pods") == 2  # its own, then all
        assert calls.count("get pods/log") <= 1 + 4  # its own, then a binary search among the others
