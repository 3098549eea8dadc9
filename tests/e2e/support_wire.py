"""Commands through a proxy that fails some requests, repeated as users do, and what a cloud then has."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cloudrec_sandbox
from cloudrec_sandbox.core.admission import TOKEN_VARIABLE
from cloudrec_sandbox.core.client import Control
from cloudrec_sandbox.isolation import isolated
from cloudrec_sandbox.run import Rehearsal, rehearsed
from tests.standins.faults import Kind, SeededFaults
from tests.standins.faults_grpc import FaultyCalls
from tests.standins.kubernetes import kubernetes

_TRIES = 6
CODES = {0, 1, 2, 3, 4, 5, 6}
# No bit is flipped: TLS finds that on the way to a real cloud.
WIRE_KINDS: tuple[Kind, ...] = ("answer", "reset", "lose", "truncate", "drip", "twice", "html")
SCRIPT = """
import signal, sys, time

stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
print("begins", flush=True)
while not stopped:
    time.sleep(0.05)
sys.exit(75)
"""


@dataclass(frozen=True, kw_only=True)
class Wire:
    """Where the commands find a cloud.

    Attributes:
        address: the variable with the URL of its API; of a cluster, the variable with its kubeconfig.
        authority: the variable with the file of its certificate authority; empty if it has no TLS here.
        grpc: the variable with the host and port of its calls over gRPC; empty if it has none.
        key: the variable with a file of credentials that has the URL; empty if there is none.
        up: further words of `up`.
        kept: what the cloud itself makes once in an account and keeps, as parts of `service:kind:id`.
        shown: what the cloud shows for a while after its deletion, as `service:kind`.
    """

    address: str
    authority: str = ""
    grpc: str = ""
    key: str = ""
    up: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


KUBECONFIG = "KUBECONFIG"
WIRES: Mapping[str, Wire] = {
    # AWS makes roles with the first cluster of an account, and keeps them.
    "aws": Wire(
        address="AWS_ENDPOINT_URL",
        kept=("AWSServiceRoleFor",),
        shown=("ec2:instance", "ec2:nat-gateway", "kms:key"),
    ),
    "azure": Wire(address="AZURE_RESOURCE_MANAGER_ENDPOINT_URL", authority="AZURE_CA_BUNDLE"),
    "gcp": Wire(
        address="GOOGLE_CLOUD_ENDPOINT_URL",
        grpc="GOOGLE_CLOUD_GRPC_ENDPOINT",
        key="GOOGLE_APPLICATION_CREDENTIALS",
    ),
    # The nodes report and the controllers note what they do, for every cluster.
    "kubernetes": Wire(
        address=KUBECONFIG,
        up=("--set", "cluster.settings.storage=s3://sandbox/cloudrec"),
        kept=("coordination.k8s.io:leases:kube-node-lease", ":events:"),
    ),
}


def command(environment: Mapping[str, str], *words: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cloudrec", *words],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode in CODES, printed
    assert "Traceback" not in printed, printed
    assert "a bug in cloudrec" not in printed, printed
    return done.returncode, printed


def until_done(environment: Mapping[str, str], *words: str) -> list[int]:
    """Repeat a command as a user would; return its exit codes."""
    codes: list[int] = []
    while len(codes) < _TRIES:
        code, printed = command(environment, *words)
        codes.append(code)
        if code == 0:
            return codes
    raise AssertionError(f"{words} ended with {codes}: {printed}")


@dataclass(kw_only=True)
class Account:
    """A cloud's stand-in behind a proxy, and what it has.

    Attributes:
        provider: the cloud.
        control: of the stand-in.
        proxy: it fails nothing until a round begins.
        environment: of commands, with the variables by which they find the cloud through the proxy only.
        folder: for files of the rounds.
        trains: whether a round also trains.
        requests: how many the rounds have made.
        struck: how many of them failed.
    """

    provider: str
    control: Control
    proxy: SeededFaults
    environment: Mapping[str, str]
    folder: Path
    trains: bool = False
    requests: int = 0
    struck: int = 0
    whole: Counter[str] = field(default_factory=Counter)  # kinds of a cluster's parts

    def __post_init__(self) -> None:
        self.wire = WIRES[self.provider]
        self.up = ("up", self.provider, "--cluster", "wire", "--yes", *self.wire.up)
        self.down = ("down", "--cluster", "wire", "--yes")
        self.before = self.existing()

    def existing(self) -> list[str]:
        """Return what the account has, as the stand-in itself knows it."""
        state: Mapping[str, Any] = self.control.ask("GET", "/state")
        pending = [name for name in state["pending"] if _kind(name) not in self.wire.shown]
        found = [*state["existing"], *pending]
        return sorted(name for name in found if not any(part in name for part in self.wire.kept))

    def round(self, seed: int, percent: float) -> str:
        """Bring a cluster up and down through a faulty wire; return what happened."""
        if not self.whole:
            until_done(self.environment, *self.up)
            self.whole = _kinds(self.existing())
            until_done(self.environment, *self.down)
            assert self.existing() == self.before
        self.proxy.clear()
        self.proxy.struck.clear()
        self.proxy.begin(int(os.environ.get("CLOUDREC_FAULTS_SEED") or seed), percent)
        print(f"CLOUDREC_FAULTS_SEED={self.proxy.seed}")
        up = until_done(self.environment, *self.up)
        made = _kinds(self.existing())
        assert made == self.whole, (made - self.whole, self.whole - made, self.proxy.struck)
        run = self._train(self.proxy.seed) if self.trains else {}
        down = until_done(self.environment, *self.down)
        assert self.existing() == self.before, self.proxy.struck
        self.requests += len(self.proxy.requests)
        self.struck += len(self.proxy.struck)
        failed = f"{len(self.proxy.struck)} of {len(self.proxy.requests)} requests failed"
        return f"up {up}, {run}, down {down}, {failed}"

    def _train(self, seed: int) -> Mapping[str, Sequence[int]]:
        """Start a run, look at it and stop it; return the exit codes of each command."""
        work, name = self.folder / "work", f"run-{seed}"
        work.mkdir(exist_ok=True)
        (work / "script.py").write_text(SCRIPT, encoding="utf-8")
        size = ("--nodes", "1", "--nproc-per-node", "1")
        first = ["train", str(work / "script.py"), "--workdir", str(work), "--name", name, *size]
        codes: dict[str, list[int]] = {"train": []}
        while codes["train"][-1:] != [0]:
            is_known = (self.folder / "home" / "runs" / name).is_dir()  # the command says so
            again = ["train", "--resume", name] if is_known else first
            code, printed = command(self.environment, *again, "--detach", "--yes")
            codes["train"].append(code)
            assert len(codes["train"]) < _TRIES, (codes, printed)
        for words in (("status", name), ("logs", name), ("stop", name, "--yes")):
            codes[words[0]] = until_done(self.environment, *words)
        return codes


def _kind(name: str) -> str:
    return ":".join(name.split(":")[:2])


def _kinds(existing: list[str]) -> Counter[str]:
    return Counter(map(_kind, existing))


@contextmanager
def account(provider: str, folder: Path, *, kinds: Sequence[Kind] = WIRE_KINDS) -> Iterator[Account]:
    """Run a cloud's stand-in and a proxy in front of it for as long as a block lasts."""
    wire, environment = WIRES[provider], isolated(os.environ, folder / "missing")
    environment["CLOUDREC_HOME"] = str(folder / "home")
    has_pods = wire.address == KUBECONFIG
    with ExitStack() as stack:
        rehearsal = Rehearsal(name=provider, command=(), has_pods=has_pods)
        given = stack.enter_context(rehearsed(rehearsal, environment, folder))
        address, authority = _place(wire, given, folder)
        control = Control(address, given[TOKEN_VARIABLE], authority=authority or None)
        port = urlsplit(address).port or 0
        proxy = stack.enter_context(SeededFaults(port, seed=0, percent=0, kinds=kinds, authority=authority))
        through = {name: value.replace(address, proxy.address) for name, value in given.items()}
        if wire.authority:
            through[wire.authority] = proxy.authority
        if wire.key:
            through[wire.key] = _copy(given[wire.key], folder, {address: proxy.address})
        if has_pods:
            authorities = [
                base64.b64encode(Path(each).read_bytes()).decode() for each in (authority, proxy.authority)
            ]
            changes = {address: proxy.address, authorities[0]: authorities[1]}
            through[KUBECONFIG] = _copy(given[KUBECONFIG], folder, changes)
        if wire.grpc:
            through[wire.grpc] = stack.enter_context(FaultyCalls(given[wire.grpc], proxy)).address
        yield Account(
            provider=provider,
            control=control,
            proxy=proxy,
            environment={**environment, **through},
            folder=folder,
            trains=has_pods,
        )


@contextmanager
def account_with_pods(provider: str, folder: Path) -> Iterator[Account]:
    """Run a cloud's stand-in, whose clusters have their API server behind a proxy, as `account` does."""
    wire, environment = WIRES[provider], isolated(os.environ, folder / "missing")
    environment["CLOUDREC_HOME"] = str(folder / "home")
    with ExitStack() as stack:
        given = stack.enter_context(
            rehearsed(Rehearsal(name=provider, command=(), has_pods=False), environment, folder)
        )
        server = stack.enter_context(kubernetes())
        port, authority = urlsplit(server.endpoint).port or 0, server.authority
        proxy = stack.enter_context(
            SeededFaults(port, seed=0, percent=0, kinds=WIRE_KINDS, authority=authority)
        )
        cloud_authority = given.get(wire.authority, "")
        control = Control(given[wire.address], given[TOKEN_VARIABLE], authority=cloud_authority or None)
        control.order(
            kubernetes={
                "endpoints": {"kubernetes": proxy.address},
                "env": {TOKEN_VARIABLE: server.environment[TOKEN_VARIABLE]},
                "certificate_authority": proxy.authority,
            }
        )
        variables = import_module(f"{cloudrec_sandbox.__name__}.{provider}").POD_VARIABLES
        server.control(environment={name: given[name] for name in variables})
        bundle = folder / "authorities.pem"  # of the proxy, and of the server for the pods' side
        authorities = filter(None, (proxy.authority, authority, cloud_authority))
        bundle.write_text("".join(Path(each).read_text(encoding="ascii") for each in authorities))
        more = {"CLOUDREC_TRAIN_ALLOW_TCP": "true", "SSL_CERT_FILE": str(bundle)}
        environment |= {name: value for name, value in given.items() if name != "CLOUDREC_CLUSTER_ADDONS"}
        yield Account(
            provider=provider,
            control=control,
            proxy=proxy,
            environment=environment | more,
            folder=folder,
            trains=True,
        )


def _place(wire: Wire, given: Mapping[str, str], folder: Path) -> tuple[str, str]:
    """Return the URL of a stand-in, and the file with its authority or nothing."""
    if wire.address != KUBECONFIG:
        return given[wire.address], given.get(wire.authority, "")
    cluster = json.loads(Path(given[KUBECONFIG]).read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    file = folder / "authority.pem"
    file.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    return cluster["server"], str(file)


def _copy(name: str, folder: Path, changes: Mapping[str, str]) -> str:
    """Copy a file with some texts replaced; return the copy."""
    text = Path(name).read_text(encoding="utf-8")
    for old, new in changes.items():
        text = text.replace(old, new)
    path = folder / f"wire-{Path(name).name}"
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return str(path)
