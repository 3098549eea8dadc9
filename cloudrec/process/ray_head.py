"""A Ray head on this machine, with token authentication, on loopback addresses only.

Its folder holds `token` (readable by its owner only), `head.json` (its process and address) and `head.log`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import MissingExtraError, PreflightError
from cloudrec.home import make_private, read_text, storage_error, write_atomically
from cloudrec.process.ports import free_port
from cloudrec_contract.safe_json import record_of, safe_object

if TYPE_CHECKING:
    from collections.abc import Callable

_HOST = "127.0.0.1"
_DASHBOARD = 8265  # Ray's default port; another one is used if it is not free
_START_S = 120.0
_STOP_S = 20.0
_POLL_S = 0.2
_ANSWER_S = 5.0
_RECORD, _TOKEN, _LOG = "head.json", "token", "head.log"


@dataclass(frozen=True, kw_only=True)
class RayHead:
    """A head that was started.

    Attributes:
        url: URL of its dashboard.
        pid: its top process.
        born: the start time of that process in the kernel's ticks. It distinguishes the process from a later
            one with the same id.
        sockets: the folder of Ray's sockets and logs.
    """

    url: str
    pid: int
    born: str
    sockets: str

    @property
    def is_alive(self) -> bool:
        """Whether its process is running."""
        return bool(self.born) and _born(self.pid) == self.born

    @property
    def is_ready(self) -> bool:
        """Whether its dashboard responds."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/authentication_mode", timeout=_ANSWER_S) as answer:  # noqa: S310 - http, on loopback
                return bool(answer.status == 200)  # noqa: PLR2004 - HTTP's own
        except (OSError, urllib.error.URLError):
            return False


def token_file(folder: Path) -> Path:
    """Return the path of a head's token."""
    return folder / _TOKEN


def read_head(folder: Path) -> RayHead | None:
    """Return the head that was started for a folder, even if it has ended; None if none was started."""
    try:
        return record_of(RayHead, safe_object(read_text(folder / _RECORD)))
    except (OSError, ValueError):
        return None


def begin_head(folder: Path, *, prepare: Callable[[], None] | None = None) -> RayHead:
    """Start a head and return it, or return the one that is running. A new one takes some seconds to respond.

    Args:
        folder: the folder for its files.
        prepare: called in the new process before it executes Ray.

    Raises:
        MissingExtraError: Ray is not installed.
        StorageError: the folder cannot be written.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("ray", module="ray")
    known = read_head(folder)
    if known and known.is_alive:
        return known
    end_head(folder)  # removes the remains of a head that has ended
    make_private(folder)
    _write_token(folder)
    sockets = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    port = _dashboard_port()
    command = [
        *(sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *(f"--node-ip-address={_HOST}", "--port=0", f"--dashboard-host={_HOST}", f"--dashboard-port={port}"),
        *(f"--dashboard-agent-listen-port={free_port(_HOST)}", f"--temp-dir={sockets}"),
        "--disable-usage-stats",
    ]
    head = RayHead(url=f"http://{_HOST}:{port}", pid=0, born="", sockets=sockets)
    # Written before the start: if this process is killed now, `end_head` finds Ray's processes by the folder.
    write_atomically(folder / _RECORD, json.dumps(asdict(head)))
    try:
        with (folder / _LOG).open("wb") as log:
            process = subprocess.Popen(
                command,
                env=_environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509 - one call of prctl
            )
    except OSError as error:
        raise storage_error(folder / _LOG, error) from error
    head = replace(head, pid=process.pid, born=_born(process.pid))
    process.returncode = 0  # Ray outlives this process; without it, Popen warns about a running child
    write_atomically(folder / _RECORD, json.dumps(asdict(head)))
    return head


def await_head(folder: Path, head: RayHead) -> None:
    """Wait until a head responds; PreflightError with the end of its log if it ends or takes too long."""
    give_up = time.monotonic() + _START_S
    while not head.is_ready:
        _reap(head.pid)
        if not head.is_alive or time.monotonic() > give_up:
            end_head(folder)
            raise PreflightError(
                f"a Ray head did not start on this machine: {last_words(folder)}",
                remedy=f"see {folder / _LOG}",
            )
        time.sleep(_POLL_S)


def end_head(folder: Path) -> None:
    """End a head and all processes that it started; does nothing if there is none."""
    head = read_head(folder)
    if head is None:
        return
    if head.is_alive:
        _signal(head, signal.SIGTERM)
        if not _gone_within(head, _STOP_S):
            _signal(head, signal.SIGKILL)  # Ray's own reaper then kills its child processes
            _gone_within(head, _STOP_S)
    # Ray's daemons may survive their parent.
    for pid in _below(head.sockets):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(head.sockets, ignore_errors=True)
    (folder / _RECORD).unlink(missing_ok=True)


def last_words(folder: Path) -> str:
    """Return the end of a head's log, at most 500 characters, in one line."""
    try:
        lines = (folder / _LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "it printed nothing"
    return " ".join(line.strip() for line in lines if line.strip())[-500:] or "it printed nothing"


def _write_token(folder: Path) -> None:
    path = folder / _TOKEN
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(32))


def _environment(folder: Path) -> dict[str, str]:
    """Return a head's environment: `python` is this interpreter, and clients must give the token."""
    own = str(Path(sys.executable).parent)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {
        **kept,
        "PATH": f"{own}{os.pathsep}{os.environ.get('PATH', '')}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / _TOKEN),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray ends a head whose parts take longer to start. Its defaults, 30 and 60 s, fail on busy cores.
        "RAY_agent_register_timeout_ms": f"{_START_S * 1000:.0f}",
        "RAY_DASHBOARD_STARTUP_TIMEOUT_S": f"{_START_S:.0f}",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray replaces 127.0.0.1 by the machine's own address
    }


def _dashboard_port() -> int:
    """Return Ray's usual port of the dashboard if it is free, else any other."""
    with suppress(OSError), socket.create_server((_HOST, _DASHBOARD)):
        return _DASHBOARD
    return free_port(_HOST)


def _born(pid: int) -> str:
    """Return a process's start time in the kernel's ticks; empty if there is none, or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    # Fields 3 (state) and 22 (starttime) of proc(5); the command in parentheses before them may hold spaces.
    return "" if fields[0] == "Z" else fields[19]


def _signal(head: RayHead, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        # The descriptor keeps its process even if the id is reused between the check and the signal.
        process = os.pidfd_open(head.pid)
        try:
            if head.is_alive:
                signal.pidfd_send_signal(process, number)
        finally:
            os.close(process)


def _gone_within(head: RayHead, seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while head.is_alive:
        _reap(head.pid)
        if time.monotonic() > give_up:
            return False
        time.sleep(_POLL_S)
    return True


def _reap(pid: int) -> None:
    """Reap the process if it is a child of this one; else it would stay as a zombie."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _below(sockets: str) -> list[int]:
    """Return this user's processes whose command line names a head's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            mine = path.stat().st_uid == os.getuid() and int(path.name) != os.getpid()
            if mine and any(f"{sockets}/".encode() in word for word in words):
                found.append(int(path.name))
    return found
