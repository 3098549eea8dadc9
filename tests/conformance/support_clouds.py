"""The conformance suite's environment: each cloud's stand-in in its own process, and killable commands.

Commands run in processes forked from a server that has the clouds' SDKs imported already, so that hundreds
of kills fit into minutes. They are the use cases behind the command line, without mocks.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudrec_sandbox
from cloudrec import app, providers
from cloudrec.app import AppContext
from cloudrec.errors import INTERRUPTED, CloudrecError
from cloudrec.home import Home
from cloudrec.spec.models import ClusterSpec
from cloudrec_sandbox.core.client import Control

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from multiprocessing.process import BaseProcess

SPEED = 6000.0  # of the stand-ins' clocks: ten minutes take a tenth of a second
SLOWER = 4  # slower by this factor, so that the delay of lists is longer than a call
PATIENCE_S = 400.0
CLOUDS = sorted(set(cloudrec_sandbox.names()) & set(providers.names()))


@dataclass(frozen=True, kw_only=True)
class Ways:
    """The facts of one cloud.

    Attributes:
        generous: settings of its stand-in that grant GPU quota, which a new account lacks.
        reads: matches read-only calls, as "service action".
        births: matches actions that create a resource.
        control_plane: the action that creates the control plane.
        self_made: matches resources that the cloud creates by itself, at any time; `down` must
            remove them too.
        lags: the longest delay of its lists in seconds.
        denial: the code and the message of its permission errors.
        noise: matches resources that come and go by themselves and belong to no cluster.
        halting: the permissions that the guard needs to scale training nodes to zero.
        speed: of its clock; 1 if real processes do its work.
        settings: the required settings of its provider.
        can_save: whether its stand-in can save an account and restore it.
    """

    generous: Mapping[str, Any]
    reads: str
    births: str
    control_plane: str
    self_made: str
    lags: Mapping[str, float]
    denial: tuple[str, str]
    noise: str = "-"
    halting: frozenset[str] = frozenset()
    speed: float = SPEED
    settings: Mapping[str, Any] = field(default_factory=dict)
    can_save: bool = True


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
        denial=(
            "AuthorizationFailed",
            "The client 'c' with object id 'o' does not have authorization to perform '{}' over scope 's'.",
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
        denial=("PERMISSION_DENIED", "Permission '{}' denied on resource (or it may not exist)."),
        halting=frozenset({"container.clusters.get", "container.clusters.update"}),
    ),
    # An adopted cluster of another owner: the account is never empty.
    "kubernetes": Ways(
        generous={},
        reads=r"\S+ (get|list|watch|create selfsubjectaccessreviews)",
        births="create (?!selfsubject)",
        control_plane="create configmaps",
        self_made="-",
        noise=r"(core|events\.k8s\.io):events:|coordination\.k8s\.io:leases:kube-node-lease/",
        lags={},
        denial=("Forbidden", "{}: not allowed"),
        speed=1.0,
        settings={"storage": "s3://bucket/prefix", "probe_storage": False},  # there is no object store
        can_save=False,  # its containers are processes
    ),
}


class Cloud:
    """One cloud's stand-in, with an account that has GPU quota."""

    def __init__(self, name: str, announcement: Mapping[str, Any]) -> None:
        self.name = name
        self.ways = WAYS[name]
        self.env = dict(announcement["env"])
        self._announcement = announcement
        self._empty: set[str] = set()  # the initial resources of an account

    def reset(self) -> None:
        """An empty account."""
        self.control(reset=True)
        self.control(**self.ways.generous)
        self.live(self.ways.speed)
        self._empty = set()
        self._empty = set(self.state())

    def late_lists(self) -> None:
        """Slow its clock, and delay its lists."""
        if self.ways.lags:
            self.live(self.ways.speed / SLOWER)
            self.control(lag_s=self.ways.lags)

    def live(self, speed: float) -> None:
        """Set the speed of its clock, and that of the processes that wait for it."""
        self.control(speed=speed)
        if speed != 1:
            self.env["CLOUDREC_SANDBOX_SPEED"] = str(speed)

    def control(self, **wishes: Any) -> dict[str, Any]:
        """Set the stand-in's options; return all of them."""
        changed: dict[str, Any] = self._ask("POST", "", wishes)
        return changed

    def settings(self) -> dict[str, Any]:
        """The stand-in's options."""
        told: dict[str, Any] = self._ask("GET", "")
        return told

    def save(self, name: str) -> None:
        """Save a snapshot of the account."""
        self._ask("POST", "/save", {"name": name})

    def restore(self, name: str) -> None:
        """Restore the snapshot of the account."""
        self._ask("POST", "/restore", {"name": name})

    def state(self) -> list[str]:
        """The resources that exist, by identity."""
        existing: list[str] = self._ask("GET", "/state")["existing"]
        return [
            entry for entry in existing if entry not in self._empty and not re.match(self.ways.noise, entry)
        ]

    def kinds(self) -> Counter[str]:
        """The number of resources of each kind, without those that the cloud creates by itself."""
        entries = [entry for entry in self.state() if not re.match(self.ways.self_made, entry)]
        return Counter(":".join(entry.split(":")[:2]) for entry in entries)

    def calls(self, since: int = 0) -> list[dict[str, Any]]:
        """The calls that were made."""
        lines: list[dict[str, Any]] = self._ask("GET", f"/calls?since={since}")
        return lines

    def changing(self, calls: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
        """The changing calls among these: service and action."""
        return [
            (call["service"], call["action"])
            for call in calls
            if not re.match(self.ways.reads, f"{call['service']} {call['action']}")
        ]

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        return Control.of(self._announcement, timeout_s=PATIENCE_S).ask(method, path, body)


@contextmanager
def stand_in(name: str) -> Iterator[Cloud]:
    """Run a stand-in for the duration of the block."""
    words = [sys.executable, "-m", "cloudrec_sandbox", name, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Cloud(name, json.loads(process.stdout.readline()))
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


class Site:
    """One home, and one cluster."""

    def __init__(self, cloud: Cloud, folder: Path, name: str = "conformance") -> None:
        self.cloud = cloud
        self.home = Home(root=folder / "home")
        settings = dict(cloud.ways.settings)
        self.cluster = ClusterSpec(name=name, provider=cloud.name, owner="tester", nodes=2, settings=settings)

    @property
    def application(self) -> AppContext:
        """The use cases, as a command builds them."""
        return AppContext(home=self.home, environment=self.cloud.env)

    def up(self) -> None:
        """Run `up` in this process."""
        app.up(self.application, self.cluster, decide=lambda _plan: True)

    def down(self) -> None:
        """Run `down` in this process."""
        app.down(
            self.application,
            provider_name=self.cluster.provider,
            cluster_name=self.cluster.title,
            keep_data=False,
            decide=lambda _removal: True,
        )

    def choose(self) -> None:
        """Select the cluster, as every command does."""
        app.choose(self.application, provider_name=self.cluster.provider, cluster_name=self.cluster.title)

    def lose_journal(self) -> None:
        """Delete the journal, as on a new machine."""
        for file in self.home.root.glob("journal.sqlite*"):
            file.unlink()

    def die_at_each(self, command: str, kinds: Sequence[tuple[str, str]], *, when: str) -> list[str]:
        """Repeat a command until it ends by itself; each attempt is killed at the first new kind of call.

        Returns:
            The kinds of calls at which it was killed, in order.
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
        """Run `up` or `down` in its own process, which is killed as requested; return its exit code."""
        running = self.start(command, **death)
        return running.wait()

    def start(self, command: str, **death: Any) -> Running:
        """Start `up` or `down` in its own process."""
        context = multiprocessing.get_context("forkserver")
        # Loaded once instead of by each of hundreds of commands.
        preload = [module for name in CLOUDS for module in providers.needs(name).modules]
        preload += [f"cloudrec.providers.{name}.provider" for name in CLOUDS]
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
    """A running command."""

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
            except (EOFError, ConnectionResetError):  # it was killed before it reported
                self.told = ""
        self._pipe.close()
        return self._process.exitcode


def _obey(pipe: Any, command: str, root: str, environment: dict[str, str], cluster: dict[str, Any]) -> None:
    """The main function of a command's process: as in `cloudrec`, without output."""
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
    """Wait until the condition is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.005)
