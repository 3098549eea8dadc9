"""Runs programs on a login node, by ssh."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec_contract.objectstore.errors import (
    FileSystemError,
    HostRefusedError,
    HostTimeoutError,
    HostUnreachableError,
    MissingProgramError,
    UnknownHostKeyError,
    UnsafeFolderError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from cloudrec_contract.objectstore.errors import ObjectStoreError

CONFIG = "CLOUDREC_SSH_CONFIG"  # the variable that names ssh's configuration file
TIMEOUT_S = 60.0
_CONNECT_S = 15
_PERSIST_S = 60
_POLL_S = 0.2
_SSH_FAILED = 255  # ssh's own exit code if it does not reach the host
_WORDS = 300  # characters of ssh's message


@dataclass(frozen=True, kw_only=True)
class Done:
    """The result of a command.

    Args:
        code: its exit code; 127 if there is no such program.
        out: its standard output.
        err: its standard error, as text.
    """

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Its standard output, as text."""
        return self.out.decode("utf-8", errors="replace")


@dataclass(frozen=True, kw_only=True)
class LoginNode:
    """A login node. Calls share one connection, which stays open for a minute.

    Args:
        host: user@host, or a Host of ssh's configuration.
        config: ssh's configuration file; empty for the user's own.
    """

    host: str
    config: str = ""

    def run(self, words: Sequence[str], *, given: bytes = b"", timeout_s: float = TIMEOUT_S) -> Done:
        """Run a program on the login node.

        Args:
            words: the program and its arguments.
            given: its standard input.
            timeout_s: the time limit in seconds.

        Raises:
            HostUnreachableError: the host cannot be reached, or the program did not end in time.
            HostRefusedError: the host does not let us in.
            MissingProgramError: ssh is not installed.
        """
        done = run(self._command(words), given=given, timeout_s=timeout_s, what=f"{words[0]} on {self.host}")
        return self._reached(done)

    def transfer(
        self,
        words: Sequence[str],
        *,
        source: BinaryIO | None,
        target: BinaryIO,
        idle_s: float,
        sent: Callable[[int], None] | None = None,
    ) -> Done:
        """Run a program on the login node between two files of this machine, however long that takes.

        Args:
            words: the program and its arguments.
            source: its standard input, from the present position on; None for none.
            target: receives its standard output.
            idle_s: seconds without a byte, after which the program is killed.
            sent: called with the number of bytes that were read from `source` since the last call, often 0.

        Raises:
            HostUnreachableError: the host cannot be reached, or no byte came in time.
            HostRefusedError: the host does not let us in.
            MissingProgramError: ssh is not installed.
        """
        what = f"{words[0]} on {self.host}"
        with tempfile.TemporaryFile() as complaints:
            process = _start(
                self._command(words),
                what,
                stdin=subprocess.DEVNULL if source is None else source,
                stdout=target,
                stderr=complaints,
            )
            try:
                _await(process, source, target, what=what, idle_s=idle_s, sent=sent)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
            complaints.seek(0)
            err = complaints.read().decode(errors="replace").strip()
        return self._reached(Done(code=process.returncode, out=b"", err=err))

    def close(self) -> None:
        """End the shared connection, if there is one."""
        run([*self.ssh(), "-O", "exit", "--", self.host], given=b"", timeout_s=_CONNECT_S, what="ssh")

    def ssh(self) -> list[str]:
        """Return the command `ssh` with its options, without the host."""
        if shutil.which("ssh") is None:
            raise MissingProgramError("ssh", f"is not installed, and {self.host} is reached by it")
        options = {
            "BatchMode": "yes",  # a question for a password would wait forever
            "ConnectTimeout": str(_CONNECT_S),
            "ServerAliveInterval": "15",
            "ControlMaster": "auto",
            "ControlPath": f"{_sockets()}/%C",
            "ControlPersist": str(_PERSIST_S),
        }
        config = ["-F", self.config] if self.config else []
        return ["ssh", "-T", *config, *(word for pair in options.items() for word in ("-o", "=".join(pair)))]

    def _command(self, words: Sequence[str]) -> list[str]:
        # ssh passes one string to the login shell, so the words are quoted for it.
        return [*self.ssh(), "--", self.host, shlex.join(words)]

    def _reached(self, done: Done) -> Done:
        if done.code == _SSH_FAILED:
            raise _refusal(self.host, done.err)
        return done


def run(words: Sequence[str], *, given: bytes, timeout_s: float, what: str) -> Done:
    """Run a program on this machine.

    Args:
        words: the program and its arguments.
        given: its standard input.
        timeout_s: the time limit in seconds.
        what: the program's name in error messages.

    Raises:
        HostTimeoutError: it did not end in time.
        MissingProgramError: it cannot be started.
    """
    try:
        done = subprocess.run(words, input=given, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise _late(what, timeout_s) from error
    except OSError as error:
        raise MissingProgramError(what, f"cannot be started: {error.strerror}") from error
    return Done(code=done.returncode, out=done.stdout, err=done.stderr.decode(errors="replace").strip())


def _start(
    command: Sequence[str], what: str, *, stdin: BinaryIO | int, stdout: BinaryIO, stderr: BinaryIO
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr)
    except OSError as error:
        raise MissingProgramError(what, f"cannot be started: {error.strerror}") from error


def _await(
    process: subprocess.Popen[bytes],
    source: BinaryIO | None,
    target: BinaryIO,
    *,
    what: str,
    idle_s: float,
    sent: Callable[[int], None] | None,
) -> None:
    """Wait for a program to end; HostTimeoutError if it neither reads nor writes for `idle_s`."""
    # The program inherits our descriptor, and both share its position: it shows how much was read.
    start = taken = 0 if source is None else _position(source)
    moved, since = -1, time.monotonic()
    while True:
        try:
            process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            ended = False
        else:
            ended = True
        if source is not None:
            before, taken = taken, _position(source)
            if sent is not None:
                sent(taken - before)
        if ended:
            return
        now = os.fstat(target.fileno()).st_size + taken - start
        if now != moved:
            moved, since = now, time.monotonic()
        elif time.monotonic() - since > idle_s:
            raise _late(what, idle_s)


def _position(file: BinaryIO) -> int:
    return os.lseek(file.fileno(), 0, os.SEEK_CUR)


def _late(what: str, timeout_s: float) -> HostTimeoutError:
    return HostTimeoutError(what, f"did not answer within {timeout_s:g} s", may_pass=True)


def _refusal(host: str, output: str) -> ObjectStoreError:
    """Return the error for ssh's output."""
    words = " ".join(output.split())[-_WORDS:] or "ssh gives no reason"
    lower = output.lower()
    if "permission denied" in lower:
        return HostRefusedError(host, words)
    if "host key verification failed" in lower or "identification has changed" in lower:
        return UnknownHostKeyError(host, words)
    return HostUnreachableError(host, words, may_pass=True)


def _sockets() -> Path:
    """Return a private folder for shared connections; UnsafeFolderError if it is not private."""
    # Not below CLOUDREC_HOME: the path of a Unix socket is limited to 108 bytes.
    folder = Path(tempfile.gettempdir()) / f"cloudrec-ssh-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise FileSystemError(str(folder), error.strerror or str(error)) from error
    if found.st_uid != os.getuid() or found.st_mode & 0o77 or folder.is_symlink():
        raise UnsafeFolderError(str(folder), "belongs to another user, or others may write to it")
    return folder
