"""Where Slurm's tools are run: on this machine, or on a login node that is reached by ssh."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cloudrec.errors import PreflightError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.launch._slurm.settings import SlurmSettings

TIMEOUT_S = 60.0
_CONNECT_S = 15
_PERSIST_S = 60
_SSH_FAILED = 255
NOT_FOUND = 127
_SLURMS = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue")


class UnreachableError(PreflightError):
    """Slurm or its login node does not answer at this moment."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended.

    Args:
        code: its exit code; 127 where there is no such program.
        out: what it printed.
        err: what it complained of.
    """

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """What it printed, as text."""
        return self.out.decode("utf-8", errors="replace")


class Shell(Protocol):
    """Runs programs by argument lists; no text is ever read as a shell would."""

    @property
    def host(self) -> str:
        """The login node as user@host; empty for this machine."""
        ...

    def run(self, words: Sequence[str], *, given: bytes = b"", timeout_s: float = TIMEOUT_S) -> Done:
        """Run a program to its end; UnreachableError where it did not end in time, or there is no way to it.

        Args:
            words: the program and its arguments.
            given: its standard input.
            timeout_s: seconds that it may take.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class LocalShell:
    """This machine, which is a login node itself."""

    host: str = ""

    def run(self, words: Sequence[str], *, given: bytes = b"", timeout_s: float = TIMEOUT_S) -> Done:
        """Run a program here."""
        if shutil.which(words[0]) is None:
            return Done(code=NOT_FOUND, out=b"", err=f"{words[0]}: not found")
        settings = os.environ.get("SLURM_CONF")
        if words[0] in _SLURMS and settings and not Path(settings).exists():
            # Slurm's tools would look for it for a minute, without a word.
            raise UnreachableError(
                f"SLURM_CONF names {settings}, which is not there",
                remedy="name the cluster's slurm.conf, or unset SLURM_CONF to have Slurm's tools find it",
            )
        return _run(words, given=given, timeout_s=timeout_s, what=words[0])


@dataclass(frozen=True, kw_only=True)
class SshShell:
    """A login node. Connections are shared, and stay open for a minute.

    Args:
        host: user@host, or a name that ssh's settings know.
        config: a file of settings for ssh; the user's own when empty.
    """

    host: str
    config: str = ""

    def run(self, words: Sequence[str], *, given: bytes = b"", timeout_s: float = TIMEOUT_S) -> Done:
        """Run a program there; its words pass the login shell as they are."""
        done = _run(
            [*self.ssh(), "--", self.host, shlex.join(words)],
            given=given,
            timeout_s=timeout_s,
            what=f"{words[0]} on {self.host}",
        )
        if done.code == _SSH_FAILED:
            raise _refusal(self.host, done.err)
        return done

    def close(self) -> None:
        """End the shared connection, if there is one."""
        _run([*self.ssh(), "-O", "exit", "--", self.host], given=b"", timeout_s=_CONNECT_S, what="ssh")

    def ssh(self) -> list[str]:
        """Return ssh's own words, up to the host."""
        if shutil.which("ssh") is None:
            raise PreflightError(f"ssh is not installed, and {self.host} is reached by it")
        options = {
            "BatchMode": "yes",  # a question for a password would wait for ever
            "ConnectTimeout": str(_CONNECT_S),
            "ServerAliveInterval": "15",
            "ControlMaster": "auto",
            "ControlPath": f"{_sockets()}/%C",
            "ControlPersist": str(_PERSIST_S),
        }
        config = ["-F", self.config] if self.config else []
        return ["ssh", "-T", *config, *(word for pair in options.items() for word in ("-o", "=".join(pair)))]


def shell_of(settings: SlurmSettings) -> Shell:
    """Return where a run's settings have Slurm's tools run."""
    if settings.host:
        return SshShell(host=settings.host, config=settings.ssh_config)
    return LocalShell()


def _run(words: Sequence[str], *, given: bytes, timeout_s: float, what: str) -> Done:
    try:
        done = subprocess.run(words, input=given, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"{what} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise PreflightError(f"{what} cannot be started: {error.strerror}") from error
    return Done(code=done.returncode, out=done.stdout, err=done.stderr.decode(errors="replace").strip())


def _refusal(host: str, said: str) -> PreflightError:
    """Tell why ssh did not come through, and what to do."""
    words = " ".join(said.split())[-300:] or "it does not say why"
    lower = said.lower()
    if "permission denied" in lower:
        remedy = f"see that `ssh -o BatchMode=yes {host} true` works: put your key into an agent, or renew it"
    elif "host key verification failed" in lower or "identification has changed" in lower:
        remedy = f"log in once by hand (`ssh {host}`) and look at the key that it shows"
    else:
        return UnreachableError(
            f"the login node {host} is not reached: {words}",
            remedy="look at the name, the network and the VPN; see `ssh -v`",
        )
    return PreflightError(f"the login node {host} refuses us: {words}", remedy=remedy)


def _sockets() -> Path:
    """Return a short path of a private folder for shared connections: sockets' names may not be long."""
    folder = Path(tempfile.gettempdir()) / f"cloudrec-ssh-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise StorageError(f"{folder}: {error.strerror}") from error
    if found.st_uid != os.getuid() or found.st_mode & 0o77 or folder.is_symlink():
        raise StorageError(
            f"{folder} belongs to another user, or others may write to it", remedy="remove it, or set TMPDIR"
        )
    return folder
