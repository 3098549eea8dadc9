"""The side that runs containers, as the API server uses it for exec and portforward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class ExecRequest:
    """The command to run, by the fields of PodExecOptions in the API model."""

    pod: Mapping[str, Any]
    container: str
    command: Sequence[str]
    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


class Running(Protocol):
    """A command that runs in a container; the descriptors are -1 for streams that it does not have."""

    stdin: int
    stdout: int
    stderr: int

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of its terminal."""

    def end_input(self) -> None:
        """Close its stdin."""

    def wait(self) -> tuple[int, str]:
        """Wait for its end; return the exit code, and why it was not started if it was not."""

    def kill(self) -> None:
        """End it, since no one reads it any more."""


class StreamSource(Protocol):
    """Runs commands in containers, and reaches their ports."""

    def execute(self, request: ExecRequest, /) -> Callable[[], Running]:
        """Return what starts the command; ApiError if the container does not run."""

    def dial(self, pod: Mapping[str, Any], /) -> Callable[[int], socket.socket]:
        """Return what connects to a port of the pod's loopback; OSError if nothing listens there."""
