"""The Launcher that all operators of Kubernetes share; what differs between them is an `Engine`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError, RunFailedError
from cloudrec.kube.errors import KubeError, OverloadedError, UnreachableError
from cloudrec.launch._kube import checks, submit
from cloudrec.launch._kube.context import (
    Settings,
    connect,
    profile_for,
    refuse_flags,
    target_of,
    workload_of,
)
from cloudrec.launch._kube.judge import is_over
from cloudrec.launch._kube.lines import RankLog
from cloudrec.launch._kube.observer import Observer
from cloudrec.launch._kube.probe import probe
from cloudrec.launch._remote import launches, results
from cloudrec.launch.base import LaunchPlan, RunHandle
from cloudrec.launch.ledger import last_launch
from cloudrec.manifests import run_objects
from cloudrec.spec.models import default_owner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.kube.client import Kube
    from cloudrec.kube.target import Target
    from cloudrec.launch._kube.engine import Engine
    from cloudrec.launch.base import RunStatus
    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.runspec import RunSpec
    from cloudrec.manifests.workload import Workload

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
        refuse_flags(spec)
        target = target_of(spec)
        self._objects(spec, launch=1)
        kube = connect(target)
        checks.check_cluster(kube, self.engine, target, spec)

    def dry_run(self, run: RunFolder, spec: RunSpec) -> LaunchPlan:
        """Return the objects that the next launch applies."""
        return self._plan(spec, launch=launches.next_launch(run))

    def submit(self, run: RunFolder) -> RunHandle:
        """Look from inside the cluster whether the run can work, then apply its objects."""
        spec = run.spec()
        target = target_of(spec)
        kube = connect(target)
        launch = launches.next_launch(run)
        job = self.engine.get(kube, run.name, target.namespace)
        self._refuse_alive(kube, run, job, launch)
        if job is not None and not run.ledger.read():
            checks.check_name(kube, self.engine, target, spec)
        workload = self._workload(spec, launch)
        if last_launch(run.ledger.read()) < launch:
            run.ledger.append("submitted", launch=launch, launcher=self.name)
        try:
            if Settings.of(spec.settings).probe:
                probe(kube, workload, target, profile_for(target))
            if job is not None and submit.launch_of(job) != launch:
                submit.remove_old(kube, self.engine, job)
            self._leave_word(run, spec, workload)
            made = submit.apply_all(kube, self._objects(spec, launch), self.engine)
        except KubeError as error:
            if isinstance(error, UnreachableError | OverloadedError):
                raise  # submitting again goes on from here
            run.ledger.append("failed", launch=launch, cause=error.message)
            raise
        except CloudrecError as error:
            run.ledger.append("failed", launch=launch, cause=error.message)
            raise
        uid = made["metadata"]["uid"]
        run.ledger.append("started", launch=launch, object=f"{self.engine.kind} {run.name}", uid=uid)
        self._memories.pop(str(run.path), None)
        return RunHandle(id=f"{target.namespace}/{run.name}", launch=launch)

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
        kube = connect(target)
        log = RankLog(
            kube,
            spec,
            namespace=target.namespace,
            rank=rank,
            pods=lambda: submit.pods_of(kube, run.name, target.namespace),
            is_over=lambda: self.state(run).state.is_final,
        )
        return log.lines(follow=follow, tail=tail)

    def collect(self, run: RunFolder) -> None:
        """Bring all that the run has left in the store into its folder; StorageError when it cannot be."""
        results.bring(run, run.spec(), everything=True)

    def _refuse_alive(self, kube: Kube, run: RunFolder, job: Mapping[str, Any] | None, launch: int) -> None:
        """Refuse to launch what is at work; an object that a killed process made is gone on with."""
        del kube
        if job is None or submit.launch_of(job) in (0, launch):
            return
        status = Observer(self.engine, run).status()
        launches.refuse_alive(run, status)

    def _plan(self, spec: RunSpec, *, launch: int) -> LaunchPlan:
        workload = self._workload(spec, launch)
        return LaunchPlan(
            command=workload.command,
            environment=workload.environment,
            files={"trainer.yaml": workload.config},
            objects=self._objects(spec, launch),
        )

    def _objects(self, spec: RunSpec, launch: int) -> Sequence[Mapping[str, Any]]:
        target = target_of(spec)
        return run_objects(self.name, self._workload(spec, launch), target, profile_for(target))

    def _workload(self, spec: RunSpec, launch: int) -> Workload:
        return workload_of(spec, launch=launch, owner=default_owner())

    def _leave_word(self, run: RunFolder, spec: RunSpec, workload: Workload) -> None:
        """Put what was asked for beside what comes of it, here and in the store."""
        run.config_file.write_text(workload.config, encoding="utf-8")
        results.forget_summary(run, spec)
        if spec.storage:
            place = results.place_of(spec)
            place.write("spec.json", spec.to_json().encode())
            place.write("trainer.yaml", workload.config.encode())

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
