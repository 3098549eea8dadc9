"""Stops a run on Kubernetes: suspends it, waits for its pods, and kills those that do not end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from cloudrec.errors import CloudrecError, RunFailedError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import KubeError
from cloudrec.kubernetes.client.wire import PATIENCE_S
from cloudrec.launchers.base import launches
from cloudrec.launchers.base.ledger import last_launch
from cloudrec.launchers.kubernetes import submit
from cloudrec.launchers.kubernetes.context import connect, spec_here, target_of
from cloudrec.launchers.kubernetes.run_state import is_over
from cloudrec.launchers.kubernetes.turns import end_turns, others
from cloudrec.launchers.kubernetes.watch.observer import KubernetesObserver
from cloudrec.launchers.kubernetes.watch.pods import PodView

if TYPE_CHECKING:
    from cloudrec.launchers.base.protocol import RunStatus
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.launchers.kubernetes.engine import JobOperator

_POLL_S = 0.5
_BRIEF_S = 15.0  # for which a cluster is tried whose keeper reads that the run is stopped
_KILL_MARGIN_S = 20.0  # what a cluster may need beyond the grace before pods are killed


def stop(engine: JobOperator, run: RunFolder, grace_s: float | None) -> RunStatus:
    """Suspend a run, wait until its pods have ended, and kill those that have not after the grace.

    Args:
        engine: the operator that made the pods.
        run: the run.
        grace_s: seconds until pods are killed; None for those of the run's spec.

    Raises:
        UsageError: the run is over.
        KubeError: a cluster of the run does not answer. The run is stopped in the others.
        RunFailedError: the run is not over some time after its pods were killed.
    """
    launches.refuse_over(run, KubernetesObserver(engine, run).status())
    launch = last_launch(run.ledger.read())
    grace = run.spec().stop_grace_s if grace_s is None else grace_s
    run.ledger.append("stop_requested", launch=launch, grace_s=grace)
    here = spec_here(run)
    unwritten = _ended_in_turns(run, launch) if here.elsewhere else None
    target = target_of(here)
    kube = connect(target)
    if unwritten is None:  # its nodes cost money while another cluster does not answer
        submit.suspend(kube, engine, run.name, target.namespace)
    silent = _suspend_elsewhere(engine, run, here, unwritten) if here.elsewhere else None
    if unwritten is not None:
        submit.suspend(kube, engine, run.name, target.namespace)
    view = PodView(run, target.namespace, launch, cluster=here.cluster)
    if left := _await_end(kube, view, grace):
        submit.kill_pods(kube, left, target.namespace)
        _await_end(kube, view, _KILL_MARGIN_S)
    status = _await_final(engine, run)
    if silent is not None:
        raise silent
    return status


def _ended_in_turns(run: RunFolder, launch: int) -> CloudrecError | None:
    """Write into the turns that a run is stopped; return the error of a storage that does not answer."""
    try:
        end_turns(run.spec(), launch=launch, at=time.time())
    except CloudrecError as error:
        return error
    return None


def _suspend_elsewhere(
    engine: JobOperator, run: RunFolder, here: RunSpec, unwritten: CloudrecError | None
) -> KubeError | None:
    """Stop a run of several clusters in those that do not have it, which may be handed it meanwhile.

    Args:
        engine: the operator that made the pods.
        run: the run.
        here: the run's spec for the cluster that has it.
        unwritten: why the run's turns do not say that it is stopped; None if they do.

    Returns:
        The error of a cluster that does not answer. Its keeper reads the turns once it works again, and stops
        the run.

    Raises:
        KubeError: a cluster does not answer, and `unwritten`: it could take the run.
    """
    silent: KubeError | None = None
    for each in others(run, here):
        target = target_of(each)
        try:
            with Kube.connect(target, patience_s=PATIENCE_S if unwritten is not None else _BRIEF_S) as kube:
                submit.suspend(kube, engine, run.name, target.namespace)
        except KubeError as error:
            if unwritten is not None:
                raise KubeError(
                    f"cluster {each.cluster} could take the run {run.name!r}: it does not answer "
                    f"({error.message}), nor does the storage of the runs ({unwritten.message})",
                    remedy="run `cloudrec stop` again when one of them answers",
                ) from error
            silent = KubeError(
                f"the run {run.name!r} is stopped, but cluster {each.cluster} does not answer: "
                f"{error.message}",
                remedy="once it works again, its keeper stops the run there; until then it may have nodes: "
                f"`cloudrec status --cluster {each.cluster}`",
            )
    return silent


def _await_end(kube: Kube, view: PodView, wait_s: float) -> list[dict[str, Any]]:
    """Wait until a launch's pods have ended; return those that have not."""
    deadline = time.monotonic() + wait_s
    while True:
        pods = view.now(kube)
        alive = [pod for pod in pods if not is_over(pod)]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(_POLL_S)


def _await_final(engine: JobOperator, run: RunFolder) -> RunStatus:
    deadline = time.monotonic() + _KILL_MARGIN_S
    while not (status := KubernetesObserver(engine, run).status()).state.is_final:
        if time.monotonic() > deadline:
            raise RunFailedError(
                f"the run {run.name!r} was asked to stop, and is still {status.state}: {status.cause}",
                remedy="`cloudrec status` shows when it has ended",
            )
        time.sleep(_POLL_S)
    return status
