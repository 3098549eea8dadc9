"""The protocol of launchers, and the values that they take and return.

A launcher starts the trainer as processes of this machine, a Job, a TrainJob, a Ray job or a Slurm job. When
it submits a run, it writes to the ledger what it needs to find the run again: a process id, or a job's id and
address. So every later command needs only the run's folder on this machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.launchers.base.ledger import RunState
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """The actions of a launch. A dry run prints them, and a real launch carries out the same.

    Args:
        command: the command that is started, or that every node runs.
        environment: the variables that are added for the command.
        files: contents of the files that are written first, by path or by the name of their ConfigMap.
        objects: manifests in the order in which they are applied; empty without Kubernetes.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    objects: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True)
class RunHandle:
    """A submitted run.

    Args:
        id: the run's name in the engine's own tools: a process id, or a job's id and address.
        launch: the number of the launch, 1 for the first.
    """

    id: str
    launch: int


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A file that was not copied, because its name does not stay below the run's folder.

    Args:
        name: the name in the store or on the disk.
        reason: why the name cannot be used.
    """

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Worker:
    """The part of a run on one machine, as its engine reports it now.

    Args:
        name: the name of the pod, actor or task.
        node: its machine; empty before it has one.
        state: its state, in the engine's words.
        restarts: how often it was started again.
        problem: what is wrong and how to repair it; empty if nothing is.
    """

    name: str
    node: str = ""
    state: str = ""
    restarts: int = 0
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """A run's state as the engine reports it now.

    Args:
        state: the state.
        cause: why it failed or was interrupted, for a person to read.
        attempt: how often the workers were restarted in this launch.
        preemptions: how often a machine was preempted; 0 for engines that do not report it.
        workers: its machines; empty for a run on this machine.
    """

    state: RunState
    cause: str | None = None
    attempt: int = 0
    preemptions: int = 0
    workers: Sequence[Worker] = ()


class Launcher(Protocol):
    """One way to start the trainer. Any process may call any method, not only the process that submitted."""

    @property
    def name(self) -> str:
        """The value of `--launcher` that selects this launcher."""
        ...

    @property
    def reads_local_files(self) -> bool:
        """Whether the trainer sees the files of the machine that launches it."""
        ...

    @property
    def nodes_of_cluster(self) -> bool:
        """Whether runs use the nodes and GPUs of the cluster; False for an engine with its own machines."""
        ...

    def preflight(self, spec: RunSpec) -> None:
        """Check that the run can work; nothing is created.

        Raises:
            PreflightError, MissingExtraError, UsageError: it cannot.
        """
        ...

    def dry_run(self, run: RunFolder, spec: RunSpec) -> LaunchPlan:
        """Return the actions of `submit` without carrying them out; the folder need not exist."""
        ...

    def submit(self, run: RunFolder) -> RunHandle:
        """Start the run, or start it again from its newest checkpoint; return once it is in progress.

        Raises:
            UsageError: it is running, or has finished.
            RunFailedError: it ended while it started; the message gives the cause.
        """
        ...

    def state(self, run: RunFolder) -> RunStatus:
        """Return the run's state as the engine reports it now; a file alone may be of a killed process."""
        ...

    def stop(self, run: RunFolder, *, grace_s: float | None = None) -> RunStatus:
        """Stop the run: the trainer commits a checkpoint and ends, or is killed after the grace.

        Returns when it has ended. UsageError if it is not running.

        Args:
            run: the run.
            grace_s: seconds between the request and the kill; None for the spec's stop_grace_s.
        """
        ...

    def logs(self, run: RunFolder, *, rank: int, follow: bool, tail: int | None = None) -> Iterator[str]:
        """Yield the lines that one rank has printed in all its attempts.

        Args:
            run: the run.
            rank: the rank.
            follow: continue with new lines until the run ends.
            tail: number of present lines to begin with; None for all of them.
        """
        ...

    def collect(self, run: RunFolder, *, checkpoints: bool = False) -> Sequence[Skipped]:
        """Copy the run's files from the storage into its folder; return the files that were skipped.

        Args:
            run: the run.
            checkpoints: copy its checkpoints, too, which may be large.

        Raises:
            StorageError: the store or the disk refuses.
        """
        ...
