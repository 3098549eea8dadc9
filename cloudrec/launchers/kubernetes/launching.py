"""Launches a run in its cluster: checks, renders and applies it. After a crash, each step can be repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError
from cloudrec.kubernetes import topology
from cloudrec.kubernetes.client.errors import ApiUnreachableError, OverloadedError
from cloudrec.kubernetes.manifests import run_objects
from cloudrec.kubernetes.manifests.names import cluster_labels
from cloudrec.launchers.base import launches, results
from cloudrec.launchers.base.ledger import last_launch
from cloudrec.launchers.base.protocol import LaunchPlan, RunHandle
from cloudrec.launchers.base.script.prepare import deliver
from cloudrec.launchers.kubernetes import checks, turns
from cloudrec.launchers.kubernetes import submit as applying
from cloudrec.launchers.kubernetes.context import REQUIRED, Settings, connect, restarts_in_place, target_of
from cloudrec.launchers.kubernetes.probe import probe
from cloudrec.launchers.kubernetes.secrets import check_secrets
from cloudrec.launchers.kubernetes.watch.observer import KubernetesObserver
from cloudrec.launchers.kubernetes.workloads import profile_for, refuse_flags, workload_of
from cloudrec.spec.models import default_owner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.manifests.workload import Workload
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.launchers.kubernetes.engine import JobOperator


def preflight(engine: JobOperator, spec: RunSpec) -> None:
    """Check names, cluster and nodes, and render the manifests; nothing is created."""
    refuse_flags(spec)
    target = target_of(spec)
    objects = _objects(engine, spec, _workload(spec, launch=1))
    checks.check_cluster(connect(target), engine, target, spec)
    checks.check_queue(connect(target), target, spec, objects)
    check_secrets(connect(target), target, spec.secrets)


def plan(engine: JobOperator, run: RunFolder, spec: RunSpec) -> LaunchPlan:
    """Return the objects that the next launch applies."""
    launch = launches.next_launch(run)
    try:
        in_place = restarts_in_place(target_of(spec))
    except CloudrecError:  # a plan needs no cluster that answers
        in_place = False
    workload = _placed(engine, spec, replace(_workload(spec, launch), in_place=in_place))
    return LaunchPlan(
        command=workload.command,
        environment=workload.environment,
        files={"trainer.yaml": workload.config},
        objects=_objects(engine, spec, workload),
    )


def submit(engine: JobOperator, run: RunFolder) -> RunHandle:
    """Check the data and the storage from inside the cluster, then apply the run's objects.

    A run of several clusters has objects in each. Those of all but the first are suspended, and applied
    before it, so that a run whose launch fails runs nowhere. The data is checked in the first one alone.
    """
    spec = run.spec()
    target = target_of(spec)
    kube = connect(target)
    launch = launches.next_launch(run)
    places = [_Launch(engine, run, each, launch) for each in (*map(run.spec_in, spec.elsewhere), spec)]
    for each in places:
        each.check()
    if last_launch(run.ledger.read()) < launch:
        run.ledger.append("submitted", launch=launch, launcher=engine.name)
    try:
        if spec.elsewhere:
            turns.offer_first(spec, launch=launch, at=kube.now_s())
        made = [each.apply(waits=each.spec.cluster != spec.cluster) for each in places][-1]
    except CloudrecError as error:
        # If the API did not answer, the launch stays open, and the next submit continues it.
        if not isinstance(error, ApiUnreachableError | OverloadedError):
            run.ledger.append("failed", launch=launch, cause=error.message)
        raise
    uid = made["metadata"]["uid"]
    run.ledger.append("started", launch=launch, object=f"{engine.kind} {run.name}", uid=uid)
    return RunHandle(id=f"{target.namespace}/{run.name}", launch=launch)


class _Launch:
    """One launch of a run in one of its clusters.

    Args:
        engine: the operator.
        run: the run.
        spec: the run's spec for this cluster.
        launch: the number of the launch.
    """

    def __init__(self, engine: JobOperator, run: RunFolder, spec: RunSpec, launch: int) -> None:
        self.spec = spec
        self._engine, self._run, self._launch = engine, run, launch
        self._target = target_of(spec)
        self._kube = connect(self._target)
        self._job = engine.get(self._kube, run.name, self._target.namespace)

    def check(self) -> None:
        """Raise UsageError if the run is running, or the cluster has another run of this name."""
        _refuse_alive(self._engine, self._run, self._job, self._launch)
        if self._job is not None and not self._run.ledger.read():
            checks.check_name(self._kube, self._engine, self._target, self.spec)
        checks.check_place(self._kube, self._target, self.spec)

    def apply(self, *, waits: bool) -> dict[str, Any]:
        """Replace an earlier launch's objects by those of this one; return the run's object.

        Args:
            waits: whether it is suspended until another cluster hands the run over.
        """
        engine, kube, target, spec = self._engine, self._kube, self._target, self.spec
        workload = replace(_workload(spec, self._launch), in_place=restarts_in_place(target))
        if spec.setup is not None:
            from cloudrec.image.code import deliver  # noqa: PLC0415 - runs with an image need none of it

            deliver(kube, target, spec.setup.digest, cluster=spec.cluster, owner=workload.owner)
        # In a cluster that waits for the run the keeper would buy a node for the probe.
        if Settings.of(spec.settings).probe and not waits:
            probe(kube, workload, target, profile_for(target))
        objects = _objects(engine, spec, _placed(engine, spec, workload))
        if waits:
            objects = applying.suspended(objects, engine)
        if self._job is not None and applying.launch_of(self._job) != workload.launch:
            applying.remove_old(kube, engine, self._job, objects)
        if not waits:
            _write_inputs(self._run, spec, workload)
        if target.topology:
            own = cluster_labels(spec.cluster, workload.owner)
            topology.publish(kube, target.namespace, target.topology, own=own)
        return applying.apply_all(kube, objects, engine)


def _refuse_alive(engine: JobOperator, run: RunFolder, job: Mapping[str, Any] | None, launch: int) -> None:
    """Raise UsageError if the run is running."""
    # An object of this launch was made by a process that was killed: this submit continues it.
    if job is None or applying.launch_of(job) in (0, launch):
        return
    launches.refuse_alive(run, KubernetesObserver(engine, run).status())


def _objects(engine: JobOperator, spec: RunSpec, workload: Workload) -> Sequence[Mapping[str, Any]]:
    target = target_of(spec)
    return run_objects(engine.name, workload, target, profile_for(target))


def _placed(engine: JobOperator, spec: RunSpec, workload: Workload) -> Workload:
    """Return the workload with the part of the network in which the queue's topology places it.

    Raises:
        PreflightError: Kueue could never admit the run.
    """
    settings, target = Settings.of(spec.settings), target_of(spec)
    if not settings.queue:
        return workload
    level = checks.check_queue(connect(target), target, spec, _objects(engine, spec, workload))
    return replace(workload, level=level, level_required=settings.topology == REQUIRED)


def _workload(spec: RunSpec, launch: int) -> Workload:
    return workload_of(spec, launch=launch, owner=default_owner())


def _write_inputs(run: RunFolder, spec: RunSpec, workload: Workload) -> None:
    """Write the spec and the trainer's configuration beside the results, here and in the store."""
    run.config_file.write_text(workload.config, encoding="utf-8")
    results.forget_summary(run, spec)
    if spec.storage:
        place = results.place_of(spec)
        place.write("spec.json", spec.to_json().encode())
        place.write("trainer.yaml", workload.config.encode())
        deliver(run, spec)
