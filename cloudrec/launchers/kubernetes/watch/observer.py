"""Reads the state of a run from the cluster and the store, and updates the run's ledger and folder."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.kubernetes.client.errors import ApiUnreachableError, OverloadedError
from cloudrec.kubernetes.client.wire import brief
from cloudrec.launchers.base import observer as remote
from cloudrec.launchers.base import record
from cloudrec.launchers.base.ledger import LedgerEvent, RunState, last_launch, state_after
from cloudrec.launchers.base.protocol import RunStatus
from cloudrec.launchers.kubernetes import submit
from cloudrec.launchers.kubernetes.context import LOOK_S, Settings, connect, spec_here, target_of
from cloudrec.launchers.kubernetes.run_state import KubernetesSnapshot, judge
from cloudrec.launchers.kubernetes.watch import losses
from cloudrec.launchers.kubernetes.watch.stuck import is_suspect, late_rank

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from cloudrec.kubernetes.client.client import Kube, Object
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.launchers.kubernetes.engine import JobOperator
    from cloudrec.launchers.kubernetes.watch.pods import PodView

_CLOSER_S = 3.0  # between two looks at the warnings and nodes of a cluster, which are many
_TROUBLED = (RunState.PENDING, RunState.RESTARTING, RunState.FAILED)  # states that need a cause


class KubernetesObserver(remote.RunObserver):
    """Watches one run on Kubernetes."""

    def __init__(self, engine: JobOperator, run: RunFolder) -> None:
        super().__init__(run, run.spec())
        self._engine = engine
        self._seen: tuple[tuple[int, str], PodView] | None = None  # of a launch in a cluster
        self._warned = float("-inf")
        self._events: list[Object] = []
        self._nodes: list[Object] = []

    def _now(self) -> RunStatus:
        events = self._run.ledger.read()
        launch = last_launch(events)
        if final := record.final_status(events, launch):
            return final
        try:
            with brief(LOOK_S):
                return self._look(events, launch)
        except (ApiUnreachableError, OverloadedError) as error:
            # What its pods write is in the storage, which may answer although the cluster does not.
            problem = self._bring(is_final=False)
            status = RunStatus(state=state_after(events), cause=f"as last seen: {error.message}", attempt=0)
            return remote.with_problem(status, problem)

    def _look(self, events: Sequence[LedgerEvent], launch: int) -> RunStatus:
        spec = spec_here(self._run)
        target = target_of(spec)
        self._note_place(spec, launch)
        kube = connect(target)
        job = self._engine.get(kube, spec.name, target.namespace)
        own = {event.event for event in events if event.launch == launch}
        if job is None and "started" not in own:
            return RunStatus(state=RunState.PENDING, cause="its launch was not finished: resume it")
        own_job = job if job is not None and submit.launch_of(job) == launch else None
        pods = self._pods(spec, target.namespace, launch).now(kube, own_job)
        sight = KubernetesSnapshot(
            engine=self._engine,
            job=own_job,
            pods=pods,
            nodes=spec.nodes,
            min_nodes=spec.fewest_nodes,
            has_run="running" in own,
            stop_asked="stop_requested" in own,
            queue=Settings.of(spec.settings).queue,
            stepping=losses.stepping(self._run, events, launch, processes=spec.nproc_per_node),
            now_s=kube.now_s(),
        )
        status = judge(sight)
        if status.state in _TROUBLED:
            # Events and nodes are many, so they are read only to find a cause.
            status = judge(self._closer(kube, sight, target.namespace))
        return self._written(kube, sight, status, launch, cluster=spec.cluster)

    def _note_place(self, spec: RunSpec, launch: int) -> None:
        """Record the cluster that has the run, if it is not the one that had it before."""
        if self._spec.elsewhere:
            with record.writing(self._run):
                record.note_place(self._run, self._run.ledger.read(), launch, spec.cluster)

    def _pods(self, spec: RunSpec, namespace: str, launch: int) -> PodView:
        from cloudrec.launchers.kubernetes.watch.pods import PodView  # noqa: PLC0415 - the lines of a rank need none

        if self._seen is None or self._seen[0] != (launch, spec.cluster):
            view = PodView(self._run, namespace, launch, cluster=spec.cluster)
            self._seen = (launch, spec.cluster), view
        return self._seen[1]

    def _closer(self, kube: Kube, sight: KubernetesSnapshot, namespace: str) -> KubernetesSnapshot:
        """Return the snapshot with the cluster's warnings and nodes, which show why pods do not run."""
        if time.monotonic() - self._warned > _CLOSER_S:
            self._events = kube.list("Event", namespace=namespace, fields={"type": "Warning"})
            self._nodes = kube.list("Node") if any(_is_unscheduled(pod) for pod in sight.pods) else []
            self._warned = time.monotonic()
        names = {pod["metadata"]["name"] for pod in sight.pods}
        names |= {sight.job["metadata"]["name"]} if sight.job else set()
        about = [each for each in self._events if (each.get("involvedObject") or {}).get("name") in names]
        return replace(sight, events=about, cluster_nodes=self._nodes)

    def _written(
        self, kube: Kube, sight: KubernetesSnapshot, status: RunStatus, launch: int, *, cluster: str
    ) -> RunStatus:
        """Copy the results, record the status, and return it; an error of the store does not fail the run."""
        run = self._run
        problem = self._bring(is_final=status.state.is_final)
        checkpoint = self._checkpoint() if status.state.is_final else None
        status = self._with_verdict(status, sight)
        with record.writing(run):
            losses.note_losses(run, run.ledger.read(), sight.pods, launch)
            gone = losses.vanished(run, sight.pods, launch, cluster=cluster)
            if gone and not sight.stop_asked and not status.state.is_final:
                losses.note_vanished(run, gone, kube.list("Node"), launch)
            problem = problem or self._note_starts()
            events = run.ledger.read()
            if known := record.final_status(events, launch):  # recorded by another process meanwhile
                return known
            status = replace(
                status,
                attempt=record.attempts(events, launch),
                preemptions=record.preemptions(events),
                cause=_with_checkpoint(status, checkpoint),
            )
            record.note_state(run, events, status, launch, checkpoint=checkpoint)
        return remote.with_problem(status, problem)

    def _with_verdict(self, status: RunStatus, sight: KubernetesSnapshot) -> RunStatus:
        """Return the status; after a failure by a time-out, its cause also names the late rank."""
        if status.state is not RunState.FAILED or not self._spec.storage or not is_suspect(status.cause):
            return status
        try:
            verdict = late_rank(self._spec, sight.pods)
        except CloudrecError:  # the store does not answer; the cause is still correct
            return status
        return replace(status, cause=f"{status.cause}; {verdict}") if verdict else status


def _is_unscheduled(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "PodScheduled" and each.get("status") == "False" for each in conditions)


def _with_checkpoint(status: RunStatus, step: int | None) -> str | None:
    if status.state is not RunState.INTERRUPTED:
        return status.cause
    at = "no checkpoint is committed" if step is None else f"the newest checkpoint is at step {step}"
    return f"{status.cause}; {at}"
