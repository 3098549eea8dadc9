"""Asks the cluster and the store how a run is, and keeps the run's ledger and folder up to date."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.kube.errors import OverloadedError, UnreachableError
from cloudrec.launch._kube import losses, submit
from cloudrec.launch._kube.context import Settings, connect, target_of
from cloudrec.launch._kube.judge import Sight, judge
from cloudrec.launch._kube.stuck import is_suspect, who_held_up
from cloudrec.launch._remote import observer as remote
from cloudrec.launch._remote import record
from cloudrec.launch.base import RunStatus
from cloudrec.launch.ledger import Event, RunState, last_launch, state_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.kube.client import Kube
    from cloudrec.launch._kube.engine import Engine
    from cloudrec.launch.folder import RunFolder

_TROUBLED = (RunState.PENDING, RunState.RESTARTING, RunState.FAILED)


class Observer(remote.Observer):
    """Watches one run; it remembers a little, so that who asks all the time does not cost much."""

    def __init__(self, engine: Engine, run: RunFolder) -> None:
        super().__init__(run, run.spec())
        self._engine = engine

    def _now(self) -> RunStatus:
        events = self._run.ledger.read()
        launch = last_launch(events)
        if final := record.final_status(events, launch):
            return final
        try:
            return self._look(events, launch)
        except (UnreachableError, OverloadedError) as error:
            state = state_after(events)
            return RunStatus(state=state, cause=f"as last seen: {error.message}", attempt=0)

    def _look(self, events: Sequence[Event], launch: int) -> RunStatus:
        spec, target = self._spec, target_of(self._spec)
        kube = connect(target)
        job = self._engine.get(kube, spec.name, target.namespace)
        own = {event.event for event in events if event.launch == launch}
        if job is None and "started" not in own:
            return RunStatus(state=RunState.PENDING, cause="its launch was not finished: resume it")
        pods = submit.pods_of(kube, spec.name, target.namespace, launch)
        sight = Sight(
            engine=self._engine,
            job=job if job is not None and submit.launch_of(job) == launch else None,
            pods=pods,
            nodes=spec.nnodes,
            min_nodes=spec.min_nodes or spec.nnodes,
            has_run="running" in own,
            stop_asked="stop_requested" in own,
            queue=Settings.of(spec.settings).queue,
        )
        status = judge(sight)
        if status.state in _TROUBLED:
            status = judge(_closer(kube, sight, target.namespace))
        return self._written(kube, sight, status, launch)

    def _written(self, kube: Kube, sight: Sight, status: RunStatus, launch: int) -> RunStatus:
        """Bring the results and keep the ledger; the store's troubles are no trouble of the run."""
        run = self._run
        problem = self._bring(is_final=status.state.is_final)
        checkpoint = self._checkpoint() if status.state.is_final else None
        status = self._with_verdict(status, sight)
        with record.writing(run):
            losses.note_losses(run, run.ledger.read(), sight.pods, launch)
            gone = losses.vanished(run, sight.pods, launch)
            if gone and not sight.stop_asked and not status.state.is_final:
                losses.note_vanished(run, gone, kube.list("Node"), launch)
            problem = problem or self._note_starts()
            events = run.ledger.read()
            if known := record.final_status(events, launch):  # by another process, meanwhile
                return known
            status = replace(
                status,
                attempt=record.attempts(events, launch),
                preemptions=record.preemptions(events),
                cause=_with_checkpoint(status, checkpoint),
            )
            record.note_state(run, events, status, launch, checkpoint=checkpoint)
        return remote.with_problem(status, problem)

    def _with_verdict(self, status: RunStatus, sight: Sight) -> RunStatus:
        """Add who held up the others to the cause of a failure that speaks of a time-out."""
        if status.state is not RunState.FAILED or not self._spec.storage or not is_suspect(status.cause):
            return status
        try:
            said = who_held_up(self._spec, sight.pods)
        except CloudrecError:  # the cause stands without it
            return status
        return replace(status, cause=f"{status.cause}; {said}") if said else status


def _closer(kube: Kube, sight: Sight, namespace: str) -> Sight:
    """Return the same with the cluster's warnings and nodes, which tell why something does not run."""
    events = kube.list("Event", namespace=namespace, fields={"type": "Warning"})
    names = {pod["metadata"]["name"] for pod in sight.pods}
    names |= {sight.job["metadata"]["name"]} if sight.job else set()
    about = [each for each in events if (each.get("involvedObject") or {}).get("name") in names]
    pending = any((pod.get("status") or {}).get("phase") == "Pending" for pod in sight.pods)
    nodes = kube.list("Node") if pending else []
    return replace(sight, events=about, cluster_nodes=nodes)


def _with_checkpoint(status: RunStatus, step: int | None) -> str | None:
    if status.state is not RunState.INTERRUPTED:
        return status.cause
    at = "no checkpoint is committed" if step is None else f"the newest checkpoint is at step {step}"
    return f"{status.cause}; {at}"
