"""Stand-ins that run in the background for several commands: `cloudrec --sandbox COMMAND`.

The first command starts a session: a process with the stand-ins of one cloud. Later commands use the same
one, until `cloudrec sandbox stop`, or until no command has run for some hours. A session's folder is
CLOUDREC_HOME/sandbox/CLOUD:

    session.json   the process, and the variables by which commands find the stand-ins
    used           locked by each command while it runs
    home/          CLOUDREC_HOME of the commands; it is removed with the session, as the account is
    log            what the process printed
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from cloudrec.errors import PreflightError, UsageError
from cloudrec.home import Home, locked, make_private, write_atomically
from cloudrec_sandbox.core import processes
from cloudrec_sandbox.isolation import isolated
from cloudrec_sandbox.run import Rehearsal, program_of, rehearsed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

IDLE_VARIABLE = "CLOUDREC_SANDBOX_IDLE_S"
_IDLE_S = 4 * 3600.0  # without a command
_LOOK_S = 1.0
_FILE, _USED = "session.json", "used"
_START_S = 300.0  # a busy machine takes a while to import a cloud's SDK
_STOP_S = 30.0
_QUOTED = 300  # characters of the log that an error quotes


@dataclass(frozen=True, kw_only=True)
class Session:
    """A process with the stand-ins of one cloud.

    Attributes:
        name: the cloud.
        folder: the session's folder.
        pid: the process.
        began: when the process began, in the kernel's ticks: no other process with its id has it.
        variables: the variables by which commands find the stand-ins.
    """

    name: str
    folder: Path
    pid: int
    began: int
    variables: Mapping[str, str]


def attach(name: str | None, command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by a command that finds the session of a cloud, which is started if necessary.

    Args:
        name: the cloud; None for the only session.
        command: the program and its arguments.
        environment: the user's environment.

    Raises:
        UsageError: there is no session or several of them, or no such program.
        PreflightError: the stand-ins did not start.
    """
    program = program_of(command, environment)
    session = _only(environment) if name is None else _started(name, environment)
    try:
        _hold(session)
    except FileNotFoundError:  # it ended just now, because no command had run for long
        session = _started(session.name, environment)
        _hold(session)
    safe = isolated(environment, session.folder / "missing")
    safe |= dict(session.variables)
    safe["CLOUDREC_HOME"] = str(session.folder / "home")
    os.execve(program, [program, *command[1:]], safe)  # noqa: S606 - no shell is wanted


def stop(name: str | None, environment: Mapping[str, str]) -> list[str]:
    """End the session of a cloud, or all sessions; return the names of those that ran."""
    ended = []
    for session in running(environment):
        if name not in (None, session.name):
            continue
        with suppress(ProcessLookupError):
            os.kill(session.pid, signal.SIGTERM)
        give_up = time.monotonic() + _STOP_S
        while _runs(session) and time.monotonic() < give_up:
            time.sleep(0.05)
        if _runs(session):
            os.kill(session.pid, signal.SIGKILL)  # the stand-ins end when its pipes close
        shutil.rmtree(session.folder, ignore_errors=True)
        ended.append(session.name)
    return ended


def running(environment: Mapping[str, str]) -> list[Session]:
    """Return the sessions whose process runs, sorted by name."""
    root = _root(environment)
    folders = sorted(root.iterdir()) if root.is_dir() else []
    found = (_read(folder) for folder in folders if folder.is_dir())
    return [session for session in found if session is not None]


def serve(name: str, folder: Path, environment: Mapping[str, str]) -> int:
    """Be the process of a session: run the stand-ins until SIGTERM, or until no command has run for long."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    idle_s = float(environment.get(IDLE_VARIABLE) or _IDLE_S)
    used = folder / _USED
    rehearsal = Rehearsal(name=name, command=(), has_pods=sys.platform == "linux")
    with rehearsed(rehearsal, isolated(environment, folder / "missing"), folder) as variables:
        document = {"pid": os.getpid(), "began": _began(os.getpid()), "variables": variables}
        used.touch()
        write_atomically(folder / _FILE, json.dumps(document))
        try:
            while used.exists() and (_is_held(used) or time.time() - used.stat().st_mtime < idle_s):
                time.sleep(_LOOK_S)
        finally:
            (folder / _FILE).unlink(missing_ok=True)  # from here on a new command starts another session
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _started(name: str, environment: Mapping[str, str]) -> Session:
    """Return the session of a cloud; start it if it does not run."""
    folder = _root(environment) / name
    make_private(folder.parent)
    # Of two commands at once, one starts the session, and the other finds it.
    with locked(folder.parent / f"{name}.lock", what=f"the sandbox {name!r}", wait_s=_START_S):
        session = _read(folder)
        if session is not None:
            return session
        shutil.rmtree(folder, ignore_errors=True)  # the account of a session that has ended is gone
        make_private(folder)
        print(f"starting the stand-in {name!r}; `cloudrec sandbox stop` ends it", file=sys.stderr, flush=True)
        words = [sys.executable, "-P", "-m", "cloudrec_sandbox", "session", name, str(folder)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        give_up = time.monotonic() + _START_S
        while time.monotonic() < give_up and process.poll() is None:
            session = _read(folder)
            if session is not None:
                return session
            time.sleep(0.05)
        process.kill()
        log_file = folder / "log"
        printed = log_file.read_text(errors="replace").strip()[-_QUOTED:] if log_file.exists() else ""
        raise PreflightError(
            f"the stand-in {name!r} did not start: {printed or 'it printed nothing'}",
            remedy=f"`python -m cloudrec_sandbox {name}` shows why",
        )


def _hold(session: Session) -> None:
    """Keep the session until this process, and the program that replaces it, has ended."""
    descriptor = os.open(session.folder / _USED, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.set_inheritable(descriptor, True)  # noqa: FBT003 - os has no keyword for it
    os.utime(descriptor)


def _is_held(used: Path) -> bool:
    """Return whether a command runs in the session; if so, the session counts as used now."""
    with used.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.utime(used)
            return True
    return False


def _only(environment: Mapping[str, str]) -> Session:
    found = running(environment)
    if not found:
        raise UsageError(
            "no sandbox is running, and the command names no cloud",
            remedy="`cloudrec --sandbox up aws` starts one (or azure, gcp)",
        )
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} sandboxes are running: {', '.join(each.name for each in found)}",
            remedy="name one with --provider, or end the others: `cloudrec sandbox stop NAME`",
        )
    return found[0]


def _root(environment: Mapping[str, str]) -> Path:
    return Home.from_environment(environment).root / "sandbox"


def _read(folder: Path) -> Session | None:
    """Return the session of a folder; None if its process does not run."""
    try:
        document: dict[str, Any] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        session = Session(
            name=folder.name,
            folder=folder,
            pid=int(document["pid"]),
            began=int(document["began"]),
            variables=dict(document["variables"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return session if _runs(session) else None


def _began(pid: int) -> int:
    """Return when a process began, in the kernel's ticks; 0 without /proc."""
    found = processes.find(pid)
    return found.began if found else 0


def _runs(session: Session) -> bool:
    """Return whether the session's process runs; without /proc, its id is all that is known of it."""
    if processes.HAS_PROC:
        found = processes.find(session.pid)
        return found is not None and found.began == session.began
    try:
        os.kill(session.pid, 0)
    except (ProcessLookupError, PermissionError):  # the second: the id is another user's process now
        return False
    return True
