"""The engines of the launcher conformance tests: how each is started, and how it loses a node."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.kubernetes.manifests.names import RUN
from cloudrec.launchers import launcher
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.protocol import Launcher, RunStatus
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.kubernetes.context import disconnect
from cloudrec.launchers.kubernetes.launcher import KubeLauncher
from cloudrec.launchers.kubernetes.run_state import is_ready
from cloudrec.launchers.slurm.launcher import JobAddress
from cloudrec_sandbox.kubernetes.joined import JoinedNodes
from tests.contract.slurm.support_slurm import running_slurm
from tests.standins.control_plane import control_plane, why_no_control_plane
from tests.standins.identity import pod_identity
from tests.standins.kubernetes import StandIn
from tests.standins.kubernetes import kubernetes as stand_in
from tests.standins.ray_cluster import RayCluster, skip_without_ray
from tests.standins.servers import moto_server

FAKE = Path(__file__).parents[1] / "e2e" / "fake_trainer.py"
MARK = "CONFORMANCE_RUN"  # the variable that marks the processes of a run
_HELPER = "trainer.checkpoint.save.writer"
LONG = {"steps": 100_000, "step_s": 0.05}
PATIENCE_S = 150.0
IMAGE = "registry.example/cloudrec-trainer@sha256:" + "5c" * 32


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One running engine.

    Args:
        name: the launcher's name.
        folder: the folder of runs.
        usual: fields of the spec of every run on it.
        take_machine: removes a node of a run, or sends its preemption notice.
        restores: whether the engine restarts such a run by itself.
        bucket: the data for pods of an engine without access to this machine's folders.
        variables: the environment of processes that use the engine.
    """

    name: str
    folder: Path
    usual: Mapping[str, Any]
    take_machine: Callable[[RunFolder], None]
    restores: bool = True
    bucket: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def launcher(self) -> Launcher:
        """The launcher under test."""
        return launcher(self.name)

    def spec(self, name: str, config: Mapping[str, Any], **changes: Any) -> RunSpec:
        """A run of two ranks of the fake trainer."""
        program = (sys.executable, "-c", FAKE.read_text(encoding="utf-8"))
        spec = RunSpec(
            name=name,
            launcher=self.name,
            max_restarts=2,
            stop_grace_s=15.0,
            trainer_config=config,
            trainer_command=program,
        )
        given = {**self.usual, **changes}
        given["environment"] = {**given.get("environment", {}), MARK: name}
        return replace(spec, **given)

    def create(self, name: str, config: Mapping[str, Any], **changes: Any) -> RunFolder:
        """The run before its submission; with another name if a test that is repeated has used this one."""
        folder = self.folder / "runs"
        names = itertools.chain((name,), (f"{name}-{number}" for number in itertools.count(2)))
        free = next(each for each in names if not (folder / each).exists())
        return create_run(folder, self.spec(free, config, **changes))

    def launch(self, name: str, config: Mapping[str, Any], **changes: Any) -> RunFolder:
        """The submitted run."""
        run = self.create(name, config, **changes)
        self.launcher.preflight(run.spec())
        self.launcher.submit(run)
        return run

    def end(self, run: RunFolder) -> RunStatus:
        """The final status."""
        return self.wait(run, lambda status: status.state.is_final)

    def wait(self, run: RunFolder, ready: Callable[[RunStatus], object]) -> RunStatus:
        """The first status that is ready."""
        give_up = time.monotonic() + PATIENCE_S
        while not ready(status := self.launcher.state(run)):
            assert time.monotonic() < give_up, (status, self.last_words(run))
            time.sleep(0.2)
        return status

    def lines(self, run: RunFolder, rank: int, tail: int | None = None) -> list[str]:
        """The output of a rank."""
        return list(self.launcher.logs(run, rank=rank, follow=False, tail=tail))

    def begun_at(self, run: RunFolder) -> list[int]:
        """The first step of each attempt of rank 0."""
        lines = self.lines(run, 0)
        return [int(line.rpartition(" ")[2]) for line in lines if line.startswith("rank 0 begins at step")]

    def wait_for_step(self, run: RunFolder, step: int) -> None:
        """Wait until every rank, and the newest checkpoint, have reached a step."""
        give_up = time.monotonic() + PATIENCE_S
        while not all(
            f"rank {rank} step {step}" in self.lines(run, rank) for rank in range(run.spec().world_size)
        ):
            status = self.launcher.state(run)
            assert not status.state.is_final, (status, self.last_words(run))
            assert time.monotonic() < give_up, (status, self.last_words(run))
            time.sleep(0.2)

    def last_words(self, run: RunFolder) -> str:
        """The details of a failed test."""
        return "\n".join([*self.lines(run, 0, 5), *map(str, run.ledger.read()[-8:])])


def worker(run: RunFolder, rank: int) -> psutil.Process:
    """The process of a rank's trainer: the innermost process with the rank's variables.

    The trainer's checkpoint writer is its child and does not count.
    """
    found = [each for each in psutil.process_iter(["pid"]) if _is_of(each, run, rank)]
    parents = {each.ppid() for each in found}
    leaves = [each for each in found if each.pid not in parents]
    assert leaves, f"no process of rank {rank} of {run.name}"
    return max(leaves, key=lambda each: each.create_time())


def _is_of(process: psutil.Process, run: RunFolder, rank: int) -> bool:
    try:
        variables = process.environ()
        if _HELPER in process.cmdline():
            return False
    except (psutil.Error, OSError):
        return False
    return variables.get(MARK) == run.name and variables.get("RANK") == str(rank)


@contextmanager
def local(folder: Path) -> Iterator[Engine]:
    """This machine; all ranks of a run share it, so all get a preemption notice."""

    def notice(run: RunFolder) -> None:
        for process in [worker(run, rank) for rank in (0, 1)]:
            process.send_signal(signal.SIGTERM)

    yield Engine(
        name="local", folder=folder, usual={"nproc_per_node": 2}, take_machine=notice, restores=False
    )


@dataclass(frozen=True, kw_only=True)
class JoinedServer:
    """A real control plane, whose nodes are of this process."""

    kubeconfig: str
    nodes: JoinedNodes
    context: str = ""

    def control(self, **wishes: Any) -> dict[str, Any]:
        """Change its nodes; it has no operators."""
        wishes.pop("operators", None)
        return self.nodes.order(**wishes)


@contextmanager
def joined() -> Iterator[JoinedServer]:
    """Run a real control plane until the block ends."""
    if why := why_no_control_plane():
        pytest.skip(why)
    with control_plane() as kubeconfig, JoinedNodes(kubeconfig) as nodes:
        yield JoinedServer(kubeconfig=str(kubeconfig), nodes=nodes)


@contextmanager
def kubernetes(
    folder: Path,
    *,
    how: str = "torchrun",
    takes: str = "",
    start: Callable[[], AbstractContextManager[StandIn | JoinedServer]] = stand_in,
) -> Iterator[Engine]:
    """An API server, by default the stand-in; its pods are processes here, with their files in S3.

    The removed node is that of the run's second worker, or of the pod with the labels `takes`.
    """
    given = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}
    with (
        pytest.MonkeyPatch.context() as patch,
        start() as server,
        pod_identity() as identity,
        moto_server(folder / "s3.log") as port,
    ):
        for name, value in given.items():
            patch.setenv(name, value)
        endpoint = f"http://127.0.0.1:{port}"
        _make_bucket(endpoint)
        pool: dict[str, Any] = {"name": "cpu", "count": 2, "capacity": {"cpu": "4", "memory": "16Gi"}}
        operators = [] if how == "torchrun" else [how]
        server.control(nodes=[pool], node_timing={"replacement_s": 2}, operators=operators)

        target = ClusterTarget(
            kubeconfig=server.kubeconfig,
            context=server.context,
            namespace="default",
            service_account="default",
            fabric="none",
        )
        _await_kind(target, how)
        _await_nodes(target, pool["count"])

        def take(run: RunFolder) -> None:
            if takes:
                with Kube.connect(target) as kube:
                    labels = f"{RUN}={run.name},{takes}"
                    pod = next(iter(kube.list("v1/Pod", namespace="default", labels=labels)))
                node = pod["spec"]["nodeName"]
            else:
                node = launcher(how).state(run).workers[1].node
            server.control(evict={"node": node, "how": "spot"})

        usual = {
            "nodes": 2,
            "cluster": "c",
            "provider": "kubernetes",
            "image": IMAGE,
            "storage": "s3://bucket",
            "target": target,
            "settings": {"probe": False, "cpus": 2},
            "environment": {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": identity,
                "OMP_NUM_THREADS": "1",
            },
        }
        try:
            yield Engine(name=how, folder=folder, usual=usual, take_machine=take, bucket="s3://bucket")
        finally:
            disconnect()


def _await_kind(target: ClusterTarget, how: str) -> None:
    """Wait until the kind is served, which takes a moment after its operator is requested."""
    engine, give_up = launcher(how), time.monotonic() + PATIENCE_S
    assert isinstance(engine, KubeLauncher)
    while True:
        with Kube.connect(target) as kube:
            if kube.kinds.has(engine.engine.kind):
                return
        assert time.monotonic() < give_up, f"{engine.engine.kind} is never served"
        time.sleep(0.1)


def _await_nodes(target: ClusterTarget, count: int) -> None:
    """Wait until the nodes take pods: a control plane taints a new node until it has seen it ready."""
    give_up = time.monotonic() + PATIENCE_S
    with Kube.connect(target) as kube:
        while True:
            nodes = kube.list("Node")
            if len([each for each in nodes if is_ready(each) and not each["spec"].get("taints")]) >= count:
                return
            assert time.monotonic() < give_up, nodes
            time.sleep(0.1)


def _make_bucket(endpoint: str) -> None:
    import s3fs  # noqa: PLC0415 - an extra

    s3fs.S3FileSystem(endpoint_url=endpoint).mkdir("bucket")


@contextmanager
def ray(folder: Path) -> Iterator[Engine]:
    """A real Ray cluster of two nodes on loopback, with a token."""
    skip_without_ray()
    with RayCluster(folder, cpus=4) as cluster:
        cluster.add(2)

        hosts = [2]

        def take(run: RunFolder) -> None:
            cluster.lose(hosts[-1])
            give_up = time.monotonic() + PATIENCE_S
            while launcher("ray").state(run).state is RunState.RUNNING:
                assert time.monotonic() < give_up, "no one missed the node"
                time.sleep(0.2)
            hosts.append(hosts[-1] + 1)
            cluster.add(hosts[-1])

        settings = {"address": cluster.url, "token_file": str(cluster.token_file)}
        usual = {"nodes": 2, "storage": str(folder / "storage"), "settings": settings}
        yield Engine(name="ray", folder=folder, usual=usual, take_machine=take)


@contextmanager
def slurm(folder: Path) -> Iterator[Engine]:
    """A real Slurm of two nodes on loopback; a job with higher priority preempts a run."""
    with running_slurm("--cpus", "2") as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)

        def take(run: RunFolder) -> None:
            told = [event.details["job"] for event in run.ledger.read() if event.event == "started"]
            job = JobAddress.parse(str(told[-1])).job
            subprocess.run(["scontrol", "requeue", str(job)], check=True)

        yield Engine(name="slurm", folder=folder, usual={"nodes": 2}, take_machine=take, variables=variables)


ENGINES: Mapping[str, Callable[[Path], AbstractContextManager[Engine]]] = {
    "local": local,
    "kubernetes": kubernetes,
    "control-plane": partial(kubernetes, start=joined),
    "pytorchjob": partial(kubernetes, how="pytorchjob"),
    "trainjob": partial(kubernetes, how="trainjob"),
    "jobset": partial(kubernetes, how="jobset"),
    "rayjob": partial(kubernetes, how="rayjob"),
    "ray": ray,
    "slurm": slurm,
}
SUBMIT = (
    "import sys; from pathlib import Path; from cloudrec.launchers import launcher;"
    "from cloudrec.launchers.base.run_folder import RunFolder; run = RunFolder(path=Path(sys.argv[1]));"
    "launcher(run.spec().launcher).submit(run)"
)


def submit_and_die(run: RunFolder, event: str) -> None:
    """Submit a run in a process that is killed once the run's ledger has an event."""
    command = [sys.executable, "-c", SUBMIT, str(run.path)]
    give_up = time.monotonic() + PATIENCE_S
    with subprocess.Popen(command) as process:
        told = partial(_has, run, event)
        while not told() and process.poll() is None:
            assert time.monotonic() < give_up, "it was never submitted"
            time.sleep(0.002)
        process.kill()


def _has(run: RunFolder, event: str) -> bool:
    return any(each.event == event for each in run.ledger.read())
