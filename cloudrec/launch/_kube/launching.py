"""How a run comes to its cluster: looked at, rendered, applied, so that a killed process can do it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError
from cloudrec.kube.errors import OverloadedError, UnreachableError
from cloudrec.launch._kube import checks
from cloudrec.launch._kube import submit as applying
from cloudrec.launch._kube.context import Settings, connect, target_of
from cloudrec.launch._kube.observer import Observer
from cloudrec.launch._kube.probe import probe
from cloudrec.launch._kube.workloads import profile_for, refuse_flags, workload_of
from cloudrec.launch._remote import launches, results
from cloudrec.launch.base import LaunchPlan, RunHandle
from cloudrec.launch.ledger import last_launch
from cloudrec.manifests import run_objects
from cloudrec.spec.models import default_owner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kube.client import Kube
    from cloudrec.launch._kube.engine import Engine
    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.runspec import RunSpec
    from cloudrec.manifests.workload import Workload


def preflight(engine: Engine, spec: RunSpec) -> None:
    """Refuse names, a cluster or nodes with which the run cannot work; nothing is made."""
    refuse_flags(spec)
    target = target_of(spec)
    _objects(engine, spec, launch=1)
    checks.check_cluster(connect(target), engine, target, spec)


def plan(engine: Engine, run: RunFolder, spec: RunSpec) -> LaunchPlan:
    """Return the objects that the next launch applies."""
    launch = launches.next_launch(run)
    workload = _workload(spec, launch)
    return LaunchPlan(
        command=workload.command,
        environment=workload.environment,
        files={"trainer.yaml": workload.config},
        objects=_objects(engine, spec, launch),
    )


def submit(engine: Engine, run: RunFolder) -> RunHandle:
    """Look from inside the cluster whether the run can work, then apply its objects."""
    spec = run.spec()
    target = target_of(spec)
    kube = connect(target)
    launch = launches.next_launch(run)
    job = engine.get(kube, run.name, target.namespace)
    _refuse_alive(engine, run, job, launch)
    if job is not None and not run.ledger.read():
        checks.check_name(kube, engine, target, spec)
    workload = _workload(spec, launch)
    if last_launch(run.ledger.read()) < launch:
        run.ledger.append("submitted", launch=launch, launcher=engine.name)
    try:
        made = _applied(engine, kube, run, workload, job)
    except CloudrecError as error:
        if not isinstance(
            error, UnreachableError | OverloadedError
        ):  # else submitting again goes on from here
            run.ledger.append("failed", launch=launch, cause=error.message)
        raise
    uid = made["metadata"]["uid"]
    run.ledger.append("started", launch=launch, object=f"{engine.kind} {run.name}", uid=uid)
    return RunHandle(id=f"{target.namespace}/{run.name}", launch=launch)


def _applied(
    engine: Engine, kube: Kube, run: RunFolder, workload: Workload, job: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Apply a launch's objects in place of an earlier one's; return the one that stands for the run."""
    spec = run.spec()
    target = target_of(spec)
    if Settings.of(spec.settings).probe:
        probe(kube, workload, target, profile_for(target))
    objects = _objects(engine, spec, workload.launch)
    if job is not None and applying.launch_of(job) != workload.launch:
        applying.remove_old(kube, engine, job, objects)
    _leave_word(run, spec, workload)
    return applying.apply_all(kube, objects, engine)


def _refuse_alive(engine: Engine, run: RunFolder, job: Mapping[str, Any] | None, launch: int) -> None:
    """Refuse to launch what is at work; an object that a killed process made is gone on with."""
    if job is None or applying.launch_of(job) in (0, launch):
        return
    launches.refuse_alive(run, Observer(engine, run).status())


def _objects(engine: Engine, spec: RunSpec, launch: int) -> Sequence[Mapping[str, Any]]:
    target = target_of(spec)
    return run_objects(engine.name, _workload(spec, launch), target, profile_for(target))


def _workload(spec: RunSpec, launch: int) -> Workload:
    return workload_of(spec, launch=launch, owner=default_owner())


def _leave_word(run: RunFolder, spec: RunSpec, workload: Workload) -> None:
    """Put what was asked for beside what comes of it, here and in the store."""
    run.config_file.write_text(workload.config, encoding="utf-8")
    results.forget_summary(run, spec)
    if spec.storage:
        place = results.place_of(spec)
        place.write("spec.json", spec.to_json().encode())
        place.write("trainer.yaml", workload.config.encode())
