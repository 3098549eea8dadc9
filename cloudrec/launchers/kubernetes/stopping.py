"""Stops a run on Kubernetes: suspends it, waits for its pods, and kills those that do not end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from cloudrec.errors import RunFailedError
from cloudrec.launchers.base import launches
from cloudrec.launchers.base.ledger import last_launch
from cloudrec.launchers.kubernetes import submit
from cloudrec.launchers.kubernetes.context import connect, spec_here, target_of
from cloudrec.launchers.kubernetes.run_state import is_over
from cloudrec.launchers.kubernetes.turns import others
from cloudrec.launchers.kubernetes.watch.observer import KubernetesObserver
from cloudrec.launchers.kubernetes.watch.pods import PodView

if TYPE_CHECKING:
    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.launchers.base.protocol import RunStatus
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.kubernetes.engine import JobOperator

_POLL_S = 0.5
_KILL_MARGIN_S = 20.0  # what a cluster may need beyond the grace before pods are killed


def stop(engine: JobOperator, run: RunFolder, grace_s: float | None) -> RunStatus:
    """Suspend a run, wait until its pods have ended, and kill those that have not after the grace.

    Args:
        engine: the operator that made the pods.
        run: the run.
        grace_s: seconds until pods are killed; None for those of the run's spec.

    Raises:
        UsageError: the run is over.
        RunFailedError: the run is not over some time after its pods were killed.
    """
    launches.refuse_over(run, KubernetesObserver(engine, run).status())
    launch = last_launch(run.ledger.read())
    grace = run.spec().stop_grace_s if grace_s is None else grace_s
    run.ledger.append("stop_requested", launch=launch, grace_s=grace)
    here = spec_here(run)
    # In all clusters: a keeper that is handed the run meanwhile finds it stopped.
    for each in (here, *others(run, here)):
        target = target_of(each)
        submit.suspend(connect(target), engine, run.name, target.namespace)
    target = target_of(here)
    kube = connect(target)
    view = PodView(run, target.namespace, launch, cluster=here.cluster)
    if left := _await_end(kube, view, grace):
        submit.kill_pods(kube, left, target.namespace)
        _await_end(kube, view, _KILL_MARGIN_S)
    return _await_final(engine, run)


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
