"""The Launcher that all operators of Kubernetes share; what differs between them is an `Engine`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.errors import RunFailedError
from cloudrec.launch._kube import submit
from cloudrec.launch._kube.context import connect, target_of
from cloudrec.launch._kube.judge import is_over
from cloudrec.launch._kube.lines import RankLog
from cloudrec.launch._kube.observer import Observer
from cloudrec.launch._kube.seeking import RankPods
from cloudrec.launch._ray.lines import RankLines
from cloudrec.launch._remote import launches, results
from cloudrec.launch.ledger import last_launch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.kube.client import Kube
    from cloudrec.kube.target import Target
    from cloudrec.launch._kube.engine import Engine
    from cloudrec.launch.base import LaunchPlan, RunHandle, RunStatus
    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.runspec import RunSpec

_POLL_S = 0.5
_KILL_MARGIN_S = 20.0  # what a cluster may need beyond the grace before pods are killed


@dataclass(frozen=True, kw_only=True)
class KubeLauncher:
    """Runs the trainer's ranks in pods.

    Args:
        engine: the operator that makes the pods.
    """

    engine: Engine
    _memories: dict[str, Observer] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """What `--launcher` calls it."""
        return self.engine.name

    @property
    def reads_local_files(self) -> bool:
        """No: a pod sees nothing of the disk of whoever launches it."""
        return False

    @property
    def nodes_of_cluster(self) -> bool:
        """Yes: pods go to the cluster's nodes."""
        return True

    def preflight(self, spec: RunSpec) -> None:
        """Refuse names, a cluster or nodes with which the run cannot work; nothing is made."""
        from cloudrec.launch._kube import launching  # noqa: PLC0415 - a third of a second of imports

        launching.preflight(self.engine, spec)

    def dry_run(self, run: RunFolder, spec: RunSpec) -> LaunchPlan:
        """Return the objects that the next launch applies."""
        from cloudrec.launch._kube import launching  # noqa: PLC0415 - as above

        return launching.plan(self.engine, run, spec)

    def submit(self, run: RunFolder) -> RunHandle:
        """Look from inside the cluster whether the run can work, then apply its objects."""
        from cloudrec.launch._kube import launching  # noqa: PLC0415 - as above

        handle = launching.submit(self.engine, run)
        self._memories.pop(str(run.path), None)
        return handle

    def state(self, run: RunFolder) -> RunStatus:
        """Ask the cluster; a launch whose end is written down is not asked about any more."""
        return self._memories.setdefault(str(run.path), Observer(self.engine, run)).status()

    def stop(self, run: RunFolder, *, grace_s: float | None = None) -> RunStatus:
        """Switch the run off, wait until its pods have ended, and kill those that do not."""
        spec, target = run.spec(), target_of(run.spec())
        status = Observer(self.engine, run).status()
        launches.refuse_over(run, status)
        kube, launch = connect(target), last_launch(run.ledger.read())
        grace = spec.stop_grace_s if grace_s is None else grace_s
        run.ledger.append("stop_requested", launch=launch, grace_s=grace)
        submit.suspend(kube, self.engine, run.name, target.namespace)
        left = self._await_end(kube, run, target, launch, grace)
        if left:
            submit.kill_pods(kube, left, target.namespace)
            self._await_end(kube, run, target, launch, _KILL_MARGIN_S)
        return self._await_final(run)

    def logs(self, run: RunFolder, *, rank: int, follow: bool, tail: int | None = None) -> Iterator[str]:
        """Yield one rank's lines, wherever its pods have been."""
        spec, target = run.spec(), target_of(run.spec())
        if spec.storage and not self.engine.prints:
            kept = RankLines(spec, rank=rank, is_over=lambda: self.state(run).state.is_final)
            return kept.lines(follow=follow, tail=tail)
        pods = RankPods(connect(target), self.engine, spec, namespace=target.namespace, rank=rank)
        log = RankLog(pods, spec, rank=rank, is_over=lambda: self.state(run).state.is_final)
        return log.lines(follow=follow, tail=tail)

    def collect(self, run: RunFolder) -> None:
        """Bring all that the run has left in the store into its folder; StorageError when it cannot be."""
        results.bring(run, run.spec(), everything=True)

    def _await_end(
        self, kube: Kube, run: RunFolder, target: Target, launch: int, wait_s: float
    ) -> list[dict[str, Any]]:
        """Wait until a launch's pods have ended; return those that have not."""
        deadline = time.monotonic() + wait_s
        while True:
            pods = submit.pods_of(kube, run.name, target.namespace, launch)
            alive = [pod for pod in pods if not is_over(pod)]
            if not alive or time.monotonic() > deadline:
                return alive
            time.sleep(_POLL_S)

    def _await_final(self, run: RunFolder) -> RunStatus:
        deadline = time.monotonic() + _KILL_MARGIN_S
        while not (status := Observer(self.engine, run).status()).state.is_final:
            if time.monotonic() > deadline:
                raise RunFailedError(
                    f"the run {run.name!r} was asked to stop, and is still {status.state}: {status.cause}",
                    remedy="`cloudrec status` tells when it has ended",
                )
            time.sleep(_POLL_S)
        self._memories.pop(str(run.path), None)
        return status
