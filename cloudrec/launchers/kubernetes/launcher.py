"""The launcher for all operators of Kubernetes. A `JobOperator` describes the differences between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec.launchers.base import results
from cloudrec.launchers.kubernetes.context import connect, spec_here, target_of
from cloudrec.launchers.kubernetes.watch.lines import KubernetesRankLog
from cloudrec.launchers.kubernetes.watch.observer import KubernetesObserver
from cloudrec.launchers.kubernetes.watch.seeking import RankPods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cloudrec.launchers.base.protocol import LaunchPlan, RunHandle, RunStatus, Skipped
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.launchers.kubernetes.engine import JobOperator

_POLL_S = 0.5
_KILL_MARGIN_S = 20.0  # for the cluster to delete pods and update the job's status


@dataclass(frozen=True, kw_only=True)
class KubeLauncher:
    """Runs the trainer's ranks in pods.

    Args:
        engine: the operator that makes the pods.
    """

    engine: JobOperator
    # One observer for each run: it returns a recent state again, so frequent calls cause few requests.
    _memories: dict[str, KubernetesObserver] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The value of `--launcher`."""
        return self.engine.name

    @property
    def reads_local_files(self) -> bool:
        """False: a pod has no access to the disk of the machine that launches it."""
        return False

    @property
    def nodes_of_cluster(self) -> bool:
        """True: pods run on the cluster's nodes."""
        return True

    def preflight(self, spec: RunSpec) -> None:
        """Check names, cluster and nodes; nothing is created."""
        from cloudrec.launchers.kubernetes import launching  # noqa: PLC0415 - a third of a second of imports

        launching.preflight(self.engine, spec)

    def dry_run(self, run: RunFolder, spec: RunSpec) -> LaunchPlan:
        """Return the objects that the next launch applies."""
        from cloudrec.launchers.kubernetes import launching  # noqa: PLC0415 - as above

        return launching.plan(self.engine, run, spec)

    def submit(self, run: RunFolder) -> RunHandle:
        """Check the data and the storage from inside the cluster, then apply the run's objects."""
        from cloudrec.launchers.kubernetes import launching  # noqa: PLC0415 - as above

        handle = launching.submit(self.engine, run)
        self._memories.pop(str(run.path), None)
        return handle

    def state(self, run: RunFolder) -> RunStatus:
        """Return the run's state; the cluster is not called if the ledger has the end of the launch."""
        return self._memories.setdefault(str(run.path), KubernetesObserver(self.engine, run)).status()

    def stop(self, run: RunFolder, *, grace_s: float | None = None) -> RunStatus:
        """Suspend the run, wait until its pods have ended, and kill those that have not after the grace."""
        from cloudrec.launchers.kubernetes import stopping  # noqa: PLC0415 - `status` and `logs` need none of it

        status = stopping.stop(self.engine, run, grace_s)
        self._memories.pop(str(run.path), None)
        return status

    def logs(self, run: RunFolder, *, rank: int, follow: bool, tail: int | None = None) -> Iterator[str]:
        """Yield one rank's lines, from all pods that it ran in.

        If the cluster does not answer, they are those that the pods have written to the run's storage.
        """
        spec = spec_here(run)
        target = target_of(spec)

        def is_over() -> bool:
            return self.state(run).state.is_final

        def stored() -> Iterator[str]:
            from cloudrec.launchers.ray.stored_lines import StoredLines  # noqa: PLC0415 - few runs need it

            return StoredLines(spec, rank=rank, is_over=is_over).lines(follow=follow, tail=tail)

        if spec.storage and not self.engine.prints:
            return stored()
        pods = RankPods(connect(target), self.engine, spec, namespace=target.namespace, rank=rank)
        log = KubernetesRankLog(pods, spec, rank=rank, is_over=is_over)
        return log.lines(follow=follow, tail=tail, stored=stored if spec.storage else None)

    def execute(
        self, run: RunFolder, command: Sequence[str], *, rank: int, stdin: bool, terminal: bool
    ) -> int:
        """Run a command in the container of a rank."""
        from cloudrec.launchers.kubernetes import attaching  # noqa: PLC0415 - `status` needs none of it

        return attaching.execute(self.engine, run, command, rank=rank, stdin=stdin, terminal=terminal)

    def forward(
        self, run: RunFolder, *, rank: int, remote: int, local: int, ready: Callable[[int], None]
    ) -> None:
        """Serve a port of a rank's pod on this machine."""
        from cloudrec.launchers.kubernetes import attaching  # noqa: PLC0415 - as above

        attaching.forward(self.engine, run, rank=rank, remote=remote, local=local, ready=ready)

    def collect(self, run: RunFolder, *, checkpoints: bool = False) -> Sequence[Skipped]:
        """Copy the run's files from the store into its folder; StorageError if that fails."""
        return results.bring(run, run.spec(), everything=True, checkpoints=checkpoints)
