"""What some launchers can do with a rank that runs: run a command beside it, and reach its ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec


@runtime_checkable
class RunsCommands(Protocol):
    """A launcher that runs commands where a rank runs."""

    def execute(
        self, run: RunFolder, command: Sequence[str], *, rank: int, stdin: bool, terminal: bool
    ) -> int:
        """Run a command where a rank runs, and return its exit code.

        Args:
            run: the run.
            command: the command and its arguments.
            rank: the rank.
            stdin: whether the command gets this process's stdin.
            terminal: whether it gets a terminal, of this terminal's size.

        Raises:
            UsageError: the rank has no place where a command can run now.
            CloudrecError: the command cannot be started there.
        """
        ...


@runtime_checkable
class ForwardsPorts(Protocol):
    """A launcher whose ranks' ports can be reached from this machine."""

    def forward(
        self, run: RunFolder, *, rank: int, remote: int, local: int, ready: Callable[[int], None]
    ) -> None:
        """Serve a port of a rank on 127.0.0.1 until this process is interrupted.

        Args:
            run: the run.
            rank: the rank.
            remote: the port where the rank runs.
            local: the port on this machine; 0 for a free one.
            ready: called with the port on this machine once it takes connections.

        Raises:
            UsageError: the rank has no place now, or the port on this machine is taken.
        """
        ...


def check_rank(spec: RunSpec, rank: int) -> None:
    """Raise UsageError for a rank that the run does not have."""
    most = spec.nodes * spec.nproc_per_node - 1
    if not 0 <= rank <= most:
        raise UsageError(
            f"rank is {rank}; run {spec.name} has ranks 0 to {most}", remedy="choose one of them"
        )
