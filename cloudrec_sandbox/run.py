"""Run one command on a stand-in: it starts when the stand-in answers, and reaches nothing else."""

from __future__ import annotations

import json
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import cloudrec_sandbox
from cloudrec.errors import PreflightError, UsageError
from cloudrec_sandbox.core.client import Control
from cloudrec_sandbox.isolation import isolated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SPEED_VARIABLE = "CLOUDREC_SANDBOX_SPEED"
_START_S = 300.0  # a busy machine takes a while to import a cloud's SDK
_END_S = 30.0
_WORDS = 200  # characters of its first line that an error quotes
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_QUOTAS = "quotas"
_KUBERNETES = "kubernetes"
_ADDONS_VARIABLE = "CLOUDREC_CLUSTER_ADDONS"
_LAUNCH_VARIABLES = {"CLOUDREC_TRAIN_ALLOW_TCP": "true"}  # there is no fabric between the nodes here


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """How a command is run.

    Attributes:
        name: the stand-in's name.
        command: the program and its arguments.
        speed: virtual seconds in a real second; None for the stand-in's default.
        has_quotas: whether the account has a quota for GPU nodes; a new account has none.
        port: port on 127.0.0.1; 0 takes a free one.
        home: folder for cloudrec's state; None for a folder that is removed at the end.
        has_pods: whether a Kubernetes API server is behind the cloud's clusters; pods are processes here.
    """

    name: str
    command: Sequence[str]
    speed: float | None = None
    has_quotas: bool = True
    port: int = 0
    home: Path | None = None
    has_pods: bool = True


def run(rehearsal: Rehearsal, environment: Mapping[str, str]) -> int:
    """Start the stand-in, run the command once it answers, end the stand-in; return the command's exit code.

    Raises:
        UsageError: there is no such command.
        PreflightError: the stand-in did not start; the command was not run.
    """
    program = program_of(rehearsal.command, environment)
    with tempfile.TemporaryDirectory(prefix="cloudrec-sandbox-run-") as folder:
        safe = isolated(environment, Path(folder) / "missing")
        safe["CLOUDREC_HOME"] = str(rehearsal.home or Path(folder) / "home")
        with rehearsed(rehearsal, safe, Path(folder)) as given:
            return _run([program, *rehearsal.command[1:]], safe | given)


def program_of(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the path of a command's program; UsageError if there is none on PATH."""
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise UsageError(f"there is no command {command[0]!r}", remedy="name a program on PATH after `--`")
    return program


@contextmanager
def rehearsed(rehearsal: Rehearsal, environment: Mapping[str, str], folder: Path) -> Iterator[dict[str, str]]:
    """Run the stand-ins for as long as a block lasts; yield the variables by which a command finds them.

    Args:
        rehearsal: which stand-ins; its command is not run.
        environment: of the stand-ins' processes.
        folder: where the file with their certificate authorities is kept.

    Raises:
        PreflightError: a stand-in did not start.
    """
    with ExitStack() as stack:
        cloud = stack.enter_context(_started(rehearsal.name, environment, port=rehearsal.port))
        speed = _prepared(rehearsal, cloud)
        given = dict(cloud["env"])
        if SPEED_VARIABLE in given:
            given[SPEED_VARIABLE] = f"{speed:g}"
        if rehearsal.has_pods and (names := _pod_variables(rehearsal.name)):
            nodes = stack.enter_context(_started(_KUBERNETES, environment))
            _link(rehearsal.name, cloud, nodes, names)
            del given[_ADDONS_VARIABLE]  # an API server answers
            given |= _LAUNCH_VARIABLES
            given["SSL_CERT_FILE"] = str(_bundle(folder, cloud, nodes))
        if rehearsal.has_pods and rehearsal.name == _KUBERNETES:
            given |= _LAUNCH_VARIABLES | _bucket(stack, cloud, environment)
        yield given


def _bucket(stack: ExitStack, nodes: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Start the stand-in that has the cluster's bucket; return the variables by which commands find it."""
    module = import_module(f"{cloudrec_sandbox.__name__}.{_KUBERNETES}")
    store = stack.enter_context(_started(module.STORE, environment))
    given = {name: str(store["env"][name]) for name in _pod_variables(module.STORE)}
    try:
        Control.of(nodes, timeout_s=_START_S).order(environment=given)
        make = Request(f"{given[module.STORE_URL]}/{module.BUCKET}", method="PUT")  # noqa: S310 - announced
        urlopen(make, timeout=_START_S).close()  # noqa: S310 - likewise
    except (OSError, ValueError) as error:
        raise _not_started(_KUBERNETES, f"it has no bucket: {error}") from error
    return given


def _pod_variables(name: str) -> Sequence[str]:
    """Return the variables by which pods find this cloud; none if it has no clusters."""
    found: Sequence[str] = getattr(import_module(f"{cloudrec_sandbox.__name__}.{name}"), "POD_VARIABLES", ())
    return found


def _link(name: str, cloud: Mapping[str, Any], nodes: Mapping[str, Any], variables: Sequence[str]) -> None:
    """Let the Kubernetes stand-in serve the cloud's clusters, with pods that find the cloud."""
    try:
        Control.of(cloud, timeout_s=_START_S).order(kubernetes=nodes)
        given = {variable: cloud["env"][variable] for variable in variables}
        Control.of(nodes, timeout_s=_START_S).order(environment=given)
    except (OSError, ValueError) as error:
        raise _not_started(name, f"its clusters have no Kubernetes API: {error}") from error


def _bundle(folder: Path, *announcements: Mapping[str, Any]) -> Path:
    """Write the authorities of the stand-ins into one file, which replaces the system's authorities."""
    bundle = folder / "authorities.pem"
    names = [each["certificate_authority"] for each in announcements if "certificate_authority" in each]
    bundle.write_text("".join(Path(name).read_text(encoding="ascii") for name in names), encoding="ascii")
    return bundle


@contextmanager
def _started(name: str, environment: Mapping[str, str], *, port: int = 0) -> Iterator[dict[str, Any]]:
    """Run a stand-in as a process that ends with this one; yield its announcement."""
    words = [sys.executable, "-P", "-m", "cloudrec_sandbox", name]
    words += ["--port", str(port), "--until-eof"]
    pipe = subprocess.PIPE
    # A separate session: Ctrl-C is for the command, which still needs the stand-in to clean up.
    with subprocess.Popen(
        words, env=dict(environment), stdin=pipe, stdout=pipe, start_new_session=True
    ) as process:
        try:
            yield _announced(name, process)
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _announced(name: str, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    if process.stdout is None:
        raise RuntimeError("a pipe was asked for")
    give_up = time.monotonic() + _START_S
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([process.stdout], [], [], max(0.0, give_up - time.monotonic()))[0]:
            raise _not_started(name, f"it announced nothing in {_START_S:g} s")
        piece = process.stdout.read1(1 << 16)  # type: ignore[attr-defined]  # a pipe's reader is buffered
        if not piece:
            raise _not_started(name, f"it ended with exit code {process.wait()}")
        line += piece
    try:
        announcement: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise _not_started(name, f"it announced {line.decode(errors='replace')[:_WORDS]!r}") from error
    return announcement


def _prepared(rehearsal: Rehearsal, announcement: Mapping[str, Any]) -> float:
    """Order what the command needs, which also shows that the stand-in answers; return its speed."""
    module = import_module(f"{cloudrec_sandbox.__name__}.{rehearsal.name}")
    wishes = dict(getattr(module, "REHEARSAL", {}))
    if rehearsal.speed is not None:
        wishes["speed"] = rehearsal.speed
    if not rehearsal.has_quotas:
        wishes.pop(_QUOTAS, None)
    try:
        settings = Control.of(announcement, timeout_s=_START_S).order(**wishes)
    except (OSError, ValueError) as error:
        raise _not_started(rehearsal.name, f"it does not answer: {error}") from error
    return float(settings["speed"])


def _not_started(name: str, why: str) -> PreflightError:
    return PreflightError(
        f"the stand-in {name!r} did not start: {why}; the command was not run",
        remedy=f"`python -m cloudrec_sandbox {name}` shows why",
    )


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command in the foreground; return its exit code as a shell does."""
    with subprocess.Popen(command, env=dict(environment)) as process:

        def pass_on(number: int, _frame: object) -> None:
            process.send_signal(number)

        before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
        # The terminal sends Ctrl-C to the command as well: how it ends is for it to decide.
        before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            code = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return code if code >= 0 else 128 - code
