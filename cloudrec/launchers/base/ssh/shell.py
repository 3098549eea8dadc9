"""Runs programs on a login node, by ssh. Errors have the remedy."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cloudrec.errors import CloudrecError, PreflightError, StorageError
from cloudrec_contract.objectstore.errors import (
    HostRefusedError,
    HostTimeoutError,
    HostUnreachableError,
    MissingProgramError,
    ObjectStoreError,
    UnknownHostKeyError,
    UnsafeFolderError,
)
from cloudrec_contract.objectstore.ssh import shell
from cloudrec_contract.objectstore.ssh.shell import TIMEOUT_S, Done

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "NOT_FOUND",
    "TIMEOUT_S",
    "Done",
    "Shell",
    "ShellUnreachableError",
    "SshShell",
    "login_error",
    "run",
]

NOT_FOUND = 127


class ShellUnreachableError(PreflightError):
    """A login node cannot be reached, or a program did not end in time. A later try may succeed."""


class Shell(Protocol):
    """Runs programs by argument lists; no shell interprets the arguments."""

    @property
    def host(self) -> str:
        """The login node as user@host; empty for this machine."""
        ...

    def run(self, words: Sequence[str], *, given: bytes = b"", timeout_s: float = TIMEOUT_S) -> Done:
        """Run a program to its end; ShellUnreachableError if the host or the program does not answer in time.

        Args:
            words: the program and its arguments.
            given: its standard input.
            timeout_s: the time limit in seconds.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class SshShell:
    """A login node. Calls share one connection, which stays open for a minute.

    Args:
        host: user@host, or a Host of ssh's configuration.
        config: ssh's configuration file; empty for the user's own.
    """

    host: str
    config: str = ""

    def run(self, words: Sequence[str], *, given: bytes = b"", timeout_s: float = TIMEOUT_S) -> Done:
        """Run a program on the login node."""
        with _explained():
            return self._node.run(words, given=given, timeout_s=timeout_s)

    def close(self) -> None:
        """End the shared connection, if there is one."""
        with _explained():
            self._node.close()

    @property
    def _node(self) -> shell.LoginNode:
        return shell.LoginNode(host=self.host, config=self.config)


def run(words: Sequence[str], *, given: bytes, timeout_s: float, what: str) -> Done:
    """Run a program on this machine.

    Args:
        words: the program and its arguments.
        given: its standard input.
        timeout_s: the time limit in seconds.
        what: the program's name in error messages.

    Raises:
        ShellUnreachableError: it did not end in time.
        PreflightError: it cannot be started.
    """
    with _explained():
        return shell.run(words, given=given, timeout_s=timeout_s, what=what)


def login_error(error: ObjectStoreError) -> CloudrecError | None:
    """Return cloudrec's error for an error of ssh, with the remedy; None for other errors of a store."""
    where, words = error.where, error.words
    match error:
        case HostTimeoutError():
            return ShellUnreachableError(f"{where} {words}")
        case HostUnreachableError():
            return ShellUnreachableError(
                f"the login node {where} cannot be reached: {words}",
                remedy="check the name, the network and the VPN; `ssh -v` shows more",
            )
        case HostRefusedError():
            remedy = f"make `ssh -o BatchMode=yes {where} true` work: add your key to ssh-agent, or renew it"
            if isinstance(error, UnknownHostKeyError):
                remedy = f"log in once by hand (`ssh {where}`) and compare the key that it shows"
            return PreflightError(f"the login node {where} refuses us: {words}", remedy=remedy)
        case MissingProgramError():
            return PreflightError(f"{where} {words}")
        case UnsafeFolderError():
            return StorageError(f"{where} {words}", remedy="remove it, or set TMPDIR")
        case _:
            return None


@contextmanager
def _explained() -> Iterator[None]:
    """Turn the shell's errors into cloudrec's."""
    try:
        yield
    except ObjectStoreError as error:
        raise login_error(error) or StorageError(str(error)) from error
