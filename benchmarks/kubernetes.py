"""The cost of launching and watching a run of a thousand nodes, on the Kubernetes stand-in.

    python -m benchmarks.kubernetes [--nodes 1000] [--write]

The stand-in is a separate process that only stores the pods: no trainer runs. Measured are cloudrec's parts:
rendering and applying the manifests; the commands `status` and `logs`, each as a new process; the same
requests by a process that knows the cluster; the calls and bytes of a `status` after the first one; and the
memory of a process that watches. The instance type and the transport profile are the largest ones, with eight
ranks per node.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from benchmarks.machine import describe_machine, today
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.launchers import launcher
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.kubernetes.context import disconnect
from cloudrec.launchers.kubernetes.watch.observer import KubernetesObserver
from tests.contract.kubernetes.support_bytes import counted
from tests.standins.kubernetes import StandIn, kubernetes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cloudrec.launchers.kubernetes.launcher import KubeLauncher

NODES, RANKS, ROUNDS = 1000, 8, 5
NAME = "thousand"  # the run's
LOG_LINES = 100  # of each rank of the first and the last pod
WATCH_S = 30.0
APPLY_S, STATUS_S, WATCH_MB, LOGS_S = 10.0, 2.0, 200.0, 1.0
CALLS, LOOK_KB = 2, 50.0  # of a look at a run that was seen before
PATIENCE_S = 900.0
RESULTS = Path(__file__).parent / "results"
GPUS = {"nvidia.com/gpu": str(RANKS), "vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5120Mi"}
IMAGE = "registry.example/cloudrec-trainer@sha256:" + "5c" * 32


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure: what, how much, in which unit, and how much it may be (None: it has no limit)."""

    name: str
    values: Sequence[float]
    unit: str
    limit: float | None = None

    @property
    def middle(self) -> float:
        """The median."""
        return statistics.median(self.values)

    @property
    def holds(self) -> bool:
        """Whether the median is within the limit."""
        return self.limit is None or self.middle <= self.limit

    def __str__(self) -> str:
        spread = f"{min(self.values):.2f} to {max(self.values):.2f}" if len(self.values) > 1 else ""
        limit = "" if self.limit is None else f"{self.limit:g}"
        return f"| {self.name} | {self.middle:.2f} | {self.unit} | {spread} | {limit} |"


def spec_of(stand_in: StandIn, folder: Path, nodes: int) -> RunSpec:
    """A run of so many nodes of the heaviest kind."""
    target = ClusterTarget(
        kubeconfig=stand_in.kubeconfig,
        context=stand_in.context,
        namespace="default",
        service_account="default",
        fabric="efa",
        instance_type="p5.48xlarge",
        resources=GPUS,
        notices="aws",
    )
    return RunSpec(
        name=NAME,
        cluster="bench",
        provider="kubernetes",
        launcher="torchrun",
        nodes=nodes,
        nproc_per_node=RANKS,
        image=IMAGE,
        storage=f"file://{folder}/store",
        trainer_config={"dataset_path": "s3://bucket/data", "embedding_dim": 128},
        target=target,
        settings={"probe": False},
    )


def prepare(stand_in: StandIn, nodes: int) -> None:
    """Create the nodes, and pods that run forever; each prints its own ranks' lines, but one is silent."""
    hosts = sorted((f"{NAME}-{number}" for number in range(nodes)), key=lambda host: f"{host}.")
    silent = silent_place(nodes)
    logs = {host: lines(place, nodes) for place, host in enumerate(hosts) if place != silent}
    pool = {"name": "gpu", "count": nodes, "capacity": {"cpu": "192", "memory": "2Ti", **GPUS}}
    stand_in.control(processes=False, bookkeeping={"logs": logs}, nodes=[pool])


def silent_place(nodes: int) -> int:
    """The index among all pods of the one that has not begun, in the order of their names."""
    return nodes // 2


def lines(place: int, nodes: int) -> list[str]:
    """What a pod prints; ranks go by the order of the pods' names as text."""
    ranks = range(place * RANKS, (place + 1) * RANKS)
    headers = [f"[rank {rank}] === launch 1, attempt 0, rank {rank} of {nodes * RANKS}" for rank in ranks]
    steps = LOG_LINES if place in (0, nodes - 1) else 1
    return headers + [f"[rank {rank}] step {step}" for step in range(steps) for rank in ranks]


def clocked(act: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def look(run: RunFolder) -> None:
    """Query the state of a run without cached knowledge."""
    engine = cast("KubeLauncher", launcher(run.spec().launcher)).engine
    KubernetesObserver(engine, run).status()


def read(run: RunFolder, rank: int) -> float:
    """Seconds until all lines of a rank were read."""
    engine = launcher(run.spec().launcher)
    return clocked(lambda: list(engine.logs(run, rank=rank, follow=False)))


def await_pods(run: RunFolder) -> float:
    """Return the seconds until all pods run; this is the stand-in's time, not cloudrec's."""
    engine, began = launcher(run.spec().launcher), time.perf_counter()
    while (status := engine.state(run)).state is not RunState.RUNNING:
        if time.perf_counter() - began > PATIENCE_S:
            raise SystemExit(f"its pods did not come to work: {status.state}, {status.cause}")
        time.sleep(2)
    return time.perf_counter() - began


def command(home: Path, *arguments: str, proxy: str = "") -> float:
    """Seconds of one `cloudrec` command, from nothing to its end."""
    environment = {**os.environ, "CLOUDREC_HOME": str(home), **({"HTTPS_PROXY": proxy} if proxy else {})}
    whole = [sys.executable, "-P", "-m", "cloudrec", *arguments]
    return clocked(lambda: subprocess.run(whole, env=environment, check=True, stdout=subprocess.DEVNULL))


def peak_mb(home: Path, *arguments: str) -> float:
    """The most memory that a command which continues held within some time, in MB."""
    environment = {**os.environ, "CLOUDREC_HOME": str(home)}
    whole = [sys.executable, "-P", "-m", "cloudrec", *arguments]
    with subprocess.Popen(whole, env=environment, stdout=subprocess.DEVNULL) as process:
        time.sleep(WATCH_S)
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        process.terminate()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1000


def cost(stand_in: StandIn, home: Path, *arguments: str) -> tuple[float, float]:
    """Return the calls of a command, and the kilobytes of all answers on the wire."""
    with counted() as proxy:
        calls = stand_in.control()["calls"]
        command(home, *arguments, proxy=proxy.url)
        return stand_in.control()["calls"] - calls, proxy.received / 1000


def measure(stand_in: StandIn, folder: Path, nodes: int) -> Iterator[Row]:
    """Yield all figures of one run, each as soon as it is measured."""
    prepare(stand_in, nodes)
    home = folder / "home"
    run = create_run(home / "runs", spec_of(stand_in, folder, nodes))
    engine = launcher("torchrun")
    yield Row(name="check the cluster", values=[clocked(lambda: engine.preflight(run.spec()))], unit="s")
    rendered = [clocked(lambda: engine.dry_run(run, run.spec())) for _ in range(ROUNDS)]
    yield Row(name="render, as `--dry-run` does", values=rendered, unit="s")
    yield Row(name="render + apply", values=[clocked(lambda: engine.submit(run))], unit="s", limit=APPLY_S)
    yield Row(name="(the stand-in, until all pods run)", values=[await_pods(run)], unit="s")
    first, last, nowhere = 0, nodes * RANKS - 1, silent_place(nodes) * RANKS
    repeated: Mapping[str, tuple[Callable[[], float], float | None]] = {
        "`cloudrec --help`, without a request": (lambda: command(home, "--help"), None),
        "`cloudrec status RUN`": (lambda: command(home, "status", run.name), STATUS_S),
        "`cloudrec logs RUN`": (lambda: command(home, "logs", run.name), LOGS_S),
        f"`cloudrec logs RUN --rank {last}`": (
            lambda: command(home, "logs", run.name, "--rank", str(last)),
            LOGS_S,
        ),
        "the same by a process that knows the cluster: status": (
            lambda: clocked(lambda: look(run)),
            STATUS_S,
        ),
        "logs of the first rank": (lambda: read(run, first), LOGS_S),
        "logs of the last rank": (lambda: read(run, last), LOGS_S),
        "logs of a rank whose pod has not begun": (lambda: read(run, nowhere), LOGS_S),
    }
    for name, (act, limit) in repeated.items():
        yield Row(name=name, values=[act() for _ in range(ROUNDS)], unit="s", limit=limit)
    looks = [cost(stand_in, home, "status", run.name) for _ in range(ROUNDS)]
    yield Row(
        name="calls of `cloudrec status RUN`", values=[calls for calls, _ in looks], unit="", limit=CALLS
    )
    yield Row(name="what it receives", values=[kb for _, kb in looks], unit="kB", limit=LOOK_KB)
    for name, arguments in {
        "memory of `status --watch`": ("status", run.name, "--watch", "--interval", "1"),
        "memory of `logs --follow`": ("logs", run.name, "--follow"),
    }.items():
        yield Row(name=name, values=[peak_mb(home, *arguments)], unit="MB", limit=WATCH_MB)


def shown(row: Row) -> Row:
    """Print a figure immediately, because the next one may take minutes."""
    print(row, file=sys.stderr, flush=True)
    return row


def main() -> int:
    """Print the table; return 1 if a limit is exceeded."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--nodes", type=int, default=NODES, help="pods, one a node")
    parser.add_argument("--write", action="store_true", help="keep the report under benchmarks/results")
    asked = parser.parse_args()
    before = os.getloadavg()[0]
    with kubernetes() as stand_in, tempfile.TemporaryDirectory() as folder:
        try:
            rows = [shown(row) for row in measure(stand_in, Path(folder), asked.nodes)]
        finally:
            disconnect()
    title = f"# A run of {asked.nodes} nodes on the Kubernetes stand-in, {today()}"
    table = ["| | median | unit | from, to | limit |", "|---|---|---|---|---|", *map(str, rows)]
    load = f"Load average (1 minute) {before:.1f} at the beginning, {os.getloadavg()[0]:.1f} at the end."
    machine = f"{describe_machine()} {RANKS} ranks a node. {load}"
    report = "\n".join([title, "", machine, "", *table, ""])
    print(report)
    if asked.write:
        (RESULTS / f"kubernetes-{today()}.md").write_text(report, encoding="utf-8")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
