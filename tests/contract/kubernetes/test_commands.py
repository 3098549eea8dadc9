"""What `status` and `logs` cost, counted: requests that are made, and what is imported for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cloudrec.launch._kube.context import disconnect
from cloudrec.launch.ledger import RunState
from tests.contract.kubernetes.support import Server
from tests.contract.kubernetes.support_runs import Site, await_status

NODES, RANKS = 12, 2
SILENT = "many-7"  # the pod that has not begun to print
OTHERS = ("adlfs", "azure", "boto3", "botocore", "fsspec", "google.cloud", "polars", "ray", "s3fs", "torch")
OURS = (
    "app.training",
    "app.upkeep",
    "launch.local",
    "launch.ray",
    "launch.slurm",
    "manifests",
    "plan.transport",
    "spec.models",
)
UNUSED = [*OTHERS, *(f"cloudrec.{name}" for name in OURS)]
PROGRAM = (
    "import sys\nfrom cloudrec.cli.main import run\ncode = run(sys.argv[1:])\n"
    f"print(*sorted(set({UNUSED!r}) & set(sys.modules)))\n"
    "print(sum(name.startswith('cloudrec') for name in sys.modules))\nsys.exit(code)"
)
MOST_OF_OURS = 75


@pytest.fixture(scope="module")
def site(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A run of several nodes at work, each with its own ranks, which go by the nodes' names as text."""
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
    engine, run = made.launch(made.spec("many", nnodes=NODES, settings={"cpus": 3}))
    await_status(engine, run, lambda status: status.state is RunState.RUNNING)
    yield made
    disconnect()


def _command(site: Site, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """What a command printed, and the requests that it made."""
    before = site.server.control()["calls"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "CLOUDREC_HOME": str(site.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done, site.server.calls(before)


@pytest.mark.parametrize("arguments", [("status", "many"), ("logs", "many"), ("logs", "many", "--rank", "7")])
def test_looking_at_a_run_imports_no_cloud_and_nothing_that_launches(
    site: Site, arguments: tuple[str, ...]
) -> None:
    done, _ = _command(site, *arguments)
    *_, unused, ours = done.stdout.splitlines()
    assert unused == ""
    assert int(ours) <= MOST_OF_OURS


def test_status_of_a_run_asks_for_its_object_and_its_pods_and_no_more(site: Site) -> None:
    done, calls = _command(site, "status", "many")
    assert "RUNNING" in done.stdout
    assert calls == ["get jobs", "list pods"]  # of a thousand pods: two pages


@pytest.mark.parametrize("rank", [0, 5, NODES * RANKS - 1])
def test_logs_of_a_rank_ask_for_its_own_pod_and_no_other(site: Site, rank: int) -> None:
    done, calls = _command(site, "logs", "many", "--rank", str(rank))
    assert done.stdout.splitlines()[:2] == ["=== launch 1, attempt 0", f"I am {rank}"]
    assert calls == ["list pods", "get pods/log", "get pods/log"]


def test_a_rank_that_no_pod_has_is_told_after_asking_few_of_them(site: Site) -> None:
    place = sorted(range(NODES), key=lambda number: f"{number}.").index(int(SILENT.removeprefix("many-")))
    done, calls = _command(site, "logs", "many", "--rank", str(place * RANKS))
    assert f"rank {place * RANKS} of many has printed nothing" in done.stderr
    assert calls.count("list pods") == 2  # its own, then all
    assert calls.count("get pods/log") <= 1 + 4  # its own, then half of the others, half of these, and so on
