"""What every launcher can do, whatever engine is behind it, and the values that pass through it.

A launcher starts the trainer somewhere (processes here, a Job, a TrainJob, a Ray job, a Slurm job), and the
run's folder on this machine is how it is found again: what the launcher needs for that (a process id, a job's
id or address) it writes into the ledger when it submits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.ledger import RunState
    from cloudrec.launch.runspec import RunSpec


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """Exactly what a launcher would do: what is printed by a dry run is what a real one carries out.

    Args:
        command: the command that is started, or that every node runs.
        environment: the variables it gets on top of what is there.
        files: the files written first, by path or by the name of the object that holds them.
        objects: manifests that are applied, in this order, where the engine is Kubernetes.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    objects: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True)
class RunHandle:
    """Where a submitted run is to be found: a process id, or a job's id and address.

    Args:
        id: the engine's own name of it, as its own tools know it.
        launch: which launch of the run this is, 1 for the first.
    """

    id: str
    launch: int


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One machine's share of a run, as its engine tells it now.

    Args:
        name: the engine's name of it: a pod, an actor, a task.
        node: the machine it is on; empty before it has one.
        state: the engine's own word for what it does.
        restarts: how often it was started again.
        problem: what is wrong with it, and what to do; empty when nothing is.
    """

    name: str
    node: str = ""
    state: str = ""
    restarts: int = 0
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """A run's state as the engine tells it now.

    Args:
        state: the state.
        cause: why it failed or was interrupted, for a person to read.
        attempt: how often the workers were restarted in this launch.
        preemptions: how often a machine was taken away from it, where the engine can tell.
        workers: its machines, where there are several.
    """

    state: RunState
    cause: str | None = None
    attempt: int = 0
    preemptions: int = 0
    workers: Sequence[Worker] = ()


class Launcher(Protocol):
    """One way to start the trainer. Any process may call any method, not only the one that submitted."""

    @property
    def name(self) -> str:
        """The name by which `--launcher` knows it."""
        ...

    @property
    def reads_local_files(self) -> bool:
        """Whether the trainer sees the same files as whoever launches it."""
        ...

    @property
    def nodes_of_cluster(self) -> bool:
        """Whether a run's nodes and GPUs are the cluster's; False where an engine has its own machines."""
        ...

    def preflight(self, spec: RunSpec) -> None:
        """Refuse what cannot work before anything is made: PreflightError, MissingExtraError, UsageError."""
        ...

    def dry_run(self, run: RunFolder, spec: RunSpec) -> LaunchPlan:
        """Return what `submit` would do. Nothing is made, and the folder need not exist."""
        ...

    def submit(self, run: RunFolder) -> RunHandle:
        """Start the run, or start it again from its newest checkpoint; return once it is under way.

        Raises:
            UsageError: it is alive, or has finished.
            RunFailedError: it died while starting; the message says of what.
        """
        ...

    def state(self, run: RunFolder) -> RunStatus:
        """Ask the real thing what the run is doing, never only a file that it left behind."""
        ...

    def stop(self, run: RunFolder, *, grace_s: float | None = None) -> RunStatus:
        """Have the trainer commit a checkpoint and end; kill it when the grace runs out.

        Returns when it has ended. UsageError when it is not running.

        Args:
            run: the run.
            grace_s: seconds between the request and the kill; the spec's stop_grace_s when left out.
        """
        ...

    def logs(self, run: RunFolder, *, rank: int, follow: bool, tail: int | None = None) -> Iterator[str]:
        """Yield the lines that one rank has printed, through all its attempts.

        Args:
            run: the run.
            rank: whose lines.
            follow: go on with new lines until the run ends.
            tail: begin with the last so many lines instead of the first.
        """
        ...

    def collect(self, run: RunFolder) -> None:
        """Bring all that a run has left elsewhere into its folder; StorageError when it cannot be had."""
        ...
