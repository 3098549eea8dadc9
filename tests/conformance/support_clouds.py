"""Where the conformance suite runs: a cloud's stand-in in its own process, and commands that can be killed.

Commands run in processes forked from a server that has the clouds' SDKs imported already, so that hundreds
of deaths fit into minutes. They are the use cases behind the command line, with nothing replaced.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pkgutil
import re
import signal
import ssl
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cloudrec import app, providers, sandbox
from cloudrec.app import AppContext
from cloudrec.errors import INTERRUPTED, CloudrecError
from cloudrec.home import Home
from cloudrec.spec.models import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from multiprocessing.process import BaseProcess

SPEED = 6000.0  # of the stand-ins' clocks: ten minutes of a cloud take a tenth of a second
SLOWER = 4  # times as slow, so that seconds by which lists are late are longer than a call
PATIENCE_S = 400.0
CLOUDS = sorted({module.name for module in pkgutil.iter_modules(sandbox.__path__)} & set(providers.names()))


@dataclass(frozen=True, kw_only=True)
class Ways:
    """What is each cloud's own.

    Attributes:
        generous: for its stand-in: what a usual account does not have until it is asked for, GPUs.
        reads: how it calls what changes nothing: matches "service action".
        births: how it calls what makes something new: matches an action.
        control_plane: the action that makes the control plane.
        self_made: matches what it makes without being asked, at a time of its own; `down` must
            remove it all the same.
        lags: seconds by which its lists are late, at their worst.
        preload: its SDK's modules, which take long to import.
        denial: the code and the words with which it says that an action is not allowed.
        noise: matches what comes and goes as it likes, and is nobody's.
        halting: what the guard must be allowed to do so that it can scale what trains to nothing.
        speed: of its clock; 1 where what it makes is done by real processes.
        settings: what its provider cannot do without.
    """

    generous: Mapping[str, Any]
    reads: str
    births: str
    control_plane: str
    self_made: str
    lags: Mapping[str, float]
    preload: tuple[str, ...]
    denial: tuple[str, str]
    noise: str = "-"
    halting: frozenset[str] = frozenset()
    speed: float = SPEED
    settings: Mapping[str, Any] = field(default_factory=dict)


WAYS: Mapping[str, Ways] = {
    "aws": Ways(
        generous={
            "quotas": dict.fromkeys(
                ("ec2/L-417A185B", "ec2/L-7212CCBC", "ec2/L-C4BD4855", "ec2/L-1216C47A", "ec2/L-0263D0A3"),
                5000,
            )
        },
        reads=r"\S+ (Describe|Get|List|Head)",
        births=r"Create|Allocate|Run",
        control_plane="CreateCluster",
        self_made=r"logs:log-group:/aws/eks/",
        lags={"tags": 15, "lists": 10},
        preload=("boto3", "cloudrec.providers.aws"),
        denial=("AccessDenied", "not authorized"),
        halting=frozenset({"eks:ListNodegroups", "eks:DescribeNodegroup", "eks:UpdateNodegroupConfig"}),
    ),
    "azure": Ways(
        generous={
            "quotas": dict.fromkeys(
                ("Standard NDASv4_A100 Family", "standardDSv5Family", "cores", "lowPriorityCores"), 5000
            )
        },
        reads=r"entra |\S+ (Get|Head|Post \S*/?(list|check))",
        births=r"Put ",
        control_plane="Put managedClusters",
        self_made="-",
        lags={"groups": 15, "resources": 15, "role-assignments": 10},
        preload=("azure.identity", "cloudrec.providers.azure"),
        denial=(
            "AuthorizationFailed",
            "The client 'c' does not have authorization to perform action '{}' over scope 's'.",
        ),
        halting=frozenset(
            f"Microsoft.ContainerService/managedClusters/agentPools/{verb}" for verb in ("read", "write")
        ),
    ),
    "gcp": Ways(
        generous={"quotas": {"us-central1/NVIDIA_A100_GPUS": 500, "global/GPUS_ALL_REGIONS": 500}},
        reads=r"oauth2 |\S+ (Get|List|Query|\S+\.(get\w*|batchGet|list|aggregatedList|testIamPermissions)$)",
        births=r"Create|\S+\.insert|\S+\.create",
        control_plane="CreateCluster",
        self_made=r"compute:firewalls:\S*gke-",
        lags={"tags": 15, "lists": 10},
        preload=(
            "google.cloud.artifactregistry_v1",
            "google.cloud.billing_v1",
            "google.cloud.cloudquotas_v1",
            "google.cloud.compute_v1",
            "google.cloud.container_v1",
            "google.cloud.lustre_v1",
            "google.cloud.resourcemanager_v3",
            "google.cloud.service_usage_v1",
            "google.cloud.storage",
            "cloudrec.providers.gcp",
        ),
        denial=("PERMISSION_DENIED", "Permission '{}' denied on resource (or it may not exist)."),
        halting=frozenset({"container.clusters.get", "container.clusters.update"}),
    ),
    # Somebody else's cluster, adopted: an account that is never empty.
    "kubernetes": Ways(
        generous={},
        reads=r"\S+ (get|list|watch|create selfsubjectaccessreviews)",
        births="create (?!selfsubject)",
        control_plane="create configmaps",
        self_made="-",
        noise=r"(core|events\.k8s\.io):events:|coordination\.k8s\.io:leases:kube-node-lease/",
        lags={},
        preload=("kubernetes.client", "cloudrec.providers.kubernetes"),
        denial=("Forbidden", "{}: not allowed"),
        halting=frozenset({"core:get namespaces", "core:list nodes", "core:patch nodes"}),
        speed=1.0,
        settings={"storage": "s3://bucket/prefix"},
    ),
}


class Cloud:
    """One cloud's stand-in, with an account that may have GPUs."""

    def __init__(self, name: str, announcement: Mapping[str, Any]) -> None:
        self.name = name
        self.ways = WAYS[name]
        self.env = dict(announcement["env"])
        self._announcement = announcement
        self._empty: set[str] = set()  # what an account has before anybody has made anything

    def reset(self) -> None:
        """An empty account."""
        self.control(reset=True)
        self.control(**self.ways.generous)
        self.live(self.ways.speed)
        self._empty = set()
        self._empty = set(self.state())

    def late_lists(self) -> None:
        """Have it live slower, and its lists be late."""
        if self.ways.lags:
            self.live(self.ways.speed / SLOWER)
            self.control(lag_s=self.ways.lags)

    def live(self, speed: float) -> None:
        """Have its time, and that of those who wait for it, pass so many times as fast as ours."""
        self.control(speed=speed)
        if speed != 1:
            self.env["CLOUDREC_SANDBOX_SPEED"] = str(speed)

    def control(self, **wishes: Any) -> None:
        """Have the stand-in behave so."""
        self._ask("POST", "", wishes)

    def settings(self) -> dict[str, Any]:
        """How the stand-in behaves."""
        told: dict[str, Any] = self._ask("GET", "")
        return told

    def save(self, name: str) -> None:
        """Remember the whole account."""
        self._ask("POST", "/save", {"name": name})

    def restore(self, name: str) -> None:
        """Take the account up as it was."""
        self._ask("POST", "/restore", {"name": name})

    def state(self) -> list[str]:
        """All that exists, by identity."""
        existing: list[str] = self._ask("GET", "/state")["existing"]
        return [
            entry for entry in existing if entry not in self._empty and not re.match(self.ways.noise, entry)
        ]

    def kinds(self) -> Counter[str]:
        """How many there are of each kind of thing, but for what the cloud makes by itself when it likes."""
        entries = [entry for entry in self.state() if not re.match(self.ways.self_made, entry)]
        return Counter(":".join(entry.split(":")[:2]) for entry in entries)

    def calls(self, since: int = 0) -> list[dict[str, Any]]:
        """The calls that were made."""
        lines: list[dict[str, Any]] = self._ask("GET", f"/calls?since={since}")
        return lines

    def changing(self, calls: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
        """Which of these calls change something: service and action."""
        return [
            (call["service"], call["action"])
            for call in calls
            if not re.match(self.ways.reads, f"{call['service']} {call['action']}")
        ]

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        connection = self._connection()
        try:
            connection.request(method, f"/_control{path}", None if body is None else json.dumps(body))
            answer = connection.getresponse()
            document = json.loads(answer.read())
        finally:
            connection.close()
        assert answer.status == 200, document
        return document

    def _connection(self) -> HTTPConnection:
        url = urlsplit(next(iter(self._announcement["endpoints"].values())))
        if url.scheme == "http":
            return HTTPConnection(url.netloc, timeout=PATIENCE_S)
        found = {value for key, value in self.env.items() if key.endswith("CA_BUNDLE")}
        authority = self._announcement.get("certificate_authority") or found.pop()
        context = ssl.create_default_context(cafile=authority)
        return HTTPSConnection(url.netloc, timeout=PATIENCE_S, context=context)


@contextmanager
def stand_in(name: str) -> Iterator[Cloud]:
    """Run a stand-in for as long as it is needed."""
    words = [sys.executable, "-m", "cloudrec.sandbox", name, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Cloud(name, json.loads(process.stdout.readline()))
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


class Site:
    """One home, from which one cluster is asked for."""

    def __init__(self, cloud: Cloud, folder: Path, name: str = "conformance") -> None:
        self.cloud = cloud
        self.home = Home(root=folder / "home")
        settings = dict(cloud.ways.settings)
        self.cluster = ClusterSpec(name=name, provider=cloud.name, owner="tester", nodes=2, settings=settings)

    @property
    def application(self) -> AppContext:
        """What a command works with."""
        return AppContext(home=self.home, environment=self.cloud.env)

    def up(self) -> None:
        """Create or converge, in this process."""
        app.up(self.application, self.cluster, decide=lambda _plan: True)

    def down(self) -> None:
        """Remove, in this process."""
        app.down(
            self.application,
            provider_name=self.cluster.provider,
            cluster_name=self.cluster.title,
            keep_data=False,
            decide=lambda _removal: True,
        )

    def lose_journal(self) -> None:
        """As a machine that was wiped."""
        for file in self.home.root.glob("journal.sqlite*"):
            file.unlink()

    def die_at_each(self, command: str, kinds: Sequence[tuple[str, str]], *, when: str) -> list[str]:
        """Run a command again and again until it ends by itself; each run dies at a kind of call not yet met.

        Returns:
            The kinds of calls it died at, in this order.
        """
        left, met = [action for _, action in kinds], list[str]()
        while True:
            calls = len(self.cloud.calls())
            running = self.start(command, action="|".join(map(re.escape, left)) or "-", when=when)
            code = running.wait()
            died = [call["action"] for call in self.cloud.calls(calls) if call["status"] == f"killed {when}"]
            if code == 0:
                self.cloud.control(kill=None)
                return met
            assert (code, len(died)) == (-signal.SIGKILL, 1), (code, died, met, running.told)
            left.remove(died[0])
            met.append(died[0])

    def run(self, command: str, **death: Any) -> int:
        """Run `up` or `down` in a process of its own, which dies as told; its exit code."""
        running = self.start(command, **death)
        return running.wait()

    def start(self, command: str, **death: Any) -> Running:
        """Begin `up` or `down` in a process of its own."""
        context = multiprocessing.get_context("forkserver")
        # Loaded once, and not by each of hundreds of commands.
        preload = [module for ways in WAYS.values() for module in ways.preload]
        context.set_forkserver_preload(
            ["tests.conformance.support_clouds", "tests.conformance.preloaded", *preload]
        )
        ours, theirs = context.Pipe()
        arguments = (
            theirs,
            command,
            str(self.home.root),
            dict(self.cloud.env),
            self.cluster.model_dump(mode="json"),
        )
        process = context.Process(target=_obey, args=arguments, daemon=True)
        process.start()
        if death:
            self.cloud.control(kill={"pid": process.pid, **death})
        ours.send("go")
        return Running(process, ours)


class Running:
    """A command under way."""

    def __init__(self, process: BaseProcess, pipe: Any) -> None:
        self._process, self._pipe = process, pipe
        self.told = ""

    def wait(self) -> int:
        """Its exit code; negative, the signal that ended it."""
        self._process.join(PATIENCE_S)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
            raise AssertionError("a command hangs")
        if self._pipe.poll():
            try:
                self.told = self._pipe.recv()
            except (EOFError, ConnectionResetError):  # it died before it could say
                self.told = ""
        self._pipe.close()
        return self._process.exitcode


def _obey(pipe: Any, command: str, root: str, environment: dict[str, str], cluster: dict[str, Any]) -> None:
    """What a command's process does: as `cloudrec` does it, but for the words on the screen."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    spec = ClusterSpec.model_validate(cluster)
    application = AppContext(home=Home(root=Path(root)), environment=environment)
    pipe.recv()
    code, told = 0, ""
    try:
        if command == "up":
            app.up(application, spec, decide=lambda _plan: True)
        else:
            app.down(
                application,
                provider_name=spec.provider,
                cluster_name=spec.title,
                keep_data=False,
                decide=lambda _removal: True,
            )
    except KeyboardInterrupt:
        code = INTERRUPTED
    except CloudrecError as error:
        code, told = error.exit_code, error.message
    pipe.send(told)
    os._exit(code)


def until(true: Any, what: str) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.005)
