"""Commands through a proxy that fails some requests, repeated as users do, and what a cloud then has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cloudrec_sandbox.core.admission import TOKEN_VARIABLE
from cloudrec_sandbox.core.client import Control
from cloudrec_sandbox.isolation import isolated
from cloudrec_sandbox.run import Rehearsal, rehearsed
from tests.standins.faults import FaultyProxy, Kind, SeededFaults
from tests.standins.faults_grpc import FaultyCalls

_TRIES = 6
CODES = {0, 1, 2, 3, 4, 5, 6}
# No bit is flipped: TLS finds that on the way to a real cloud.
_KINDS: tuple[Kind, ...] = ("answer", "reset", "lose", "truncate", "drip", "twice", "html")


@dataclass(frozen=True, kw_only=True)
class Wire:
    """Where the commands find a cloud.

    Attributes:
        address: the variable with the URL of its API.
        authority: the variable with the file of its certificate authority; empty if it has no TLS here.
        grpc: the variable with the host and port of its calls over gRPC; empty if it has none.
        key: the variable with a file of credentials that has the URL; empty if there is none.
        kept: what the cloud itself makes once in an account and keeps, as parts of `service:kind:id`.
        shown: what the cloud shows for a while after its deletion, as `service:kind`.
    """

    address: str
    authority: str = ""
    grpc: str = ""
    key: str = ""
    kept: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


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
    return done.returncode, done.stdout + done.stderr


def until_done(environment: Mapping[str, str], *words: str) -> list[int]:
    """Repeat a command as a user would; return its exit codes."""
    codes: list[int] = []
    while len(codes) < _TRIES:
        code, printed = command(environment, *words)
        codes.append(code)
        assert code in CODES, printed
        assert "Traceback" not in printed, printed
        assert "a bug in cloudrec" not in printed, printed
        if code == 0:
            return codes
    raise AssertionError(f"{words} ended with {codes}: {printed}")


@contextmanager
def through(
    proxy: FaultyProxy, wire: Wire, given: Mapping[str, str], folder: Path
) -> Iterator[dict[str, str]]:
    """Start a proxy; yield the variables by which commands find the cloud through it only."""
    direct = given[wire.address]
    found = {name: value.replace(direct, proxy.address) for name, value in given.items()}
    if wire.authority:
        found[wire.authority] = proxy.authority
    if wire.key:
        key = Path(given[wire.key]).read_text(encoding="utf-8").replace(direct, proxy.address)
        path = folder / "key.json"
        path.touch(mode=0o600)
        path.write_text(key, encoding="utf-8")
        found[wire.key] = str(path)
    with ExitStack() as stack:
        stack.enter_context(proxy)
        if wire.grpc:
            found[wire.grpc] = stack.enter_context(FaultyCalls(given[wire.grpc], proxy)).address
        yield found


@dataclass(kw_only=True)
class Account:
    """A cloud's stand-in, and what it has.

    Attributes:
        provider: the cloud.
        environment: of commands.
        given: the variables by which commands find the stand-in itself.
        folder: for files of the rounds.
        requests: how many the rounds have made.
        struck: how many of them failed.
    """

    provider: str
    environment: Mapping[str, str]
    given: Mapping[str, str]
    folder: Path
    requests: int = 0
    struck: int = 0
    whole: Counter[str] = field(default_factory=Counter)  # kinds, by `measure`

    def __post_init__(self) -> None:
        self.wire = WIRES[self.provider]
        self._control = Control(
            self.given[self.wire.address],
            self.given[TOKEN_VARIABLE],
            authority=self.given.get(self.wire.authority),
        )
        self.before = self.existing()

    def measure(self) -> None:
        """Bring a cluster up and down without faults, to know what it consists of."""
        direct = {**self.environment, **self.given}
        until_done(direct, "up", self.provider, "--cluster", "wire", "--yes")
        self.whole = _kinds(self.existing())
        until_done(direct, "down", "--cluster", "wire", "--yes")
        assert self.existing() == self.before

    def existing(self) -> list[str]:
        """Return what the account has, as the stand-in itself knows it."""
        state: Mapping[str, Any] = self._control.ask("GET", "/state")
        pending = [name for name in state["pending"] if _kind(name) not in self.wire.shown]
        found = [*state["existing"], *pending]
        return sorted(name for name in found if not any(part in name for part in self.wire.kept))

    def round(self, seed: int, percent: float) -> str:
        """Bring a cluster up and down through a faulty wire; return what happened."""
        if not self.whole:
            self.measure()
        port = urlsplit(self.given[self.wire.address]).port
        assert port is not None
        proxy = SeededFaults(
            port,
            seed=seed,
            percent=percent,
            kinds=_KINDS,
            authority=self.given.get(self.wire.authority, ""),
        )
        print(f"CLOUDREC_FAULTS_SEED={proxy.seed}")
        with through(proxy, self.wire, self.given, self.folder) as given:
            environment = {**self.environment, **given}
            up = until_done(environment, "up", self.provider, "--cluster", "wire", "--yes")
            made = _kinds(self.existing())
            assert made == self.whole, (made - self.whole, self.whole - made, proxy.struck)
            down = until_done(environment, "down", "--cluster", "wire", "--yes")
            assert self.existing() == self.before, proxy.struck
        self.requests += len(proxy.requests)
        self.struck += len(proxy.struck)
        return f"up {up}, down {down}, {len(proxy.struck)} of {len(proxy.requests)} requests failed"


def _kind(name: str) -> str:
    return ":".join(name.split(":")[:2])


def _kinds(existing: list[str]) -> Counter[str]:
    return Counter(map(_kind, existing))


@contextmanager
def account(provider: str, folder: Path) -> Iterator[Account]:
    """Run a cloud's stand-in for as long as a block lasts."""
    environment = isolated(os.environ, folder / "missing")
    environment["CLOUDREC_HOME"] = str(folder / "home")
    with rehearsed(Rehearsal(name=provider, command=(), has_pods=False), environment, folder) as given:
        yield Account(provider=provider, environment=environment, given=given, folder=folder)
