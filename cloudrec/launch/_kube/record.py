"""Writes into a run's ledger what was seen in the cluster: who was taken away, and each start of all ranks.

Several processes may look at once, and none may look for an hour: each thing is told once, at the time at
which it happened, by whoever sees it first.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec.cluster.causes import is_disrupted, pod_cause
from cloudrec.errors import CloudrecError
from cloudrec.home import locked, write_atomically
from cloudrec.launch._kube import results
from cloudrec.launch._kube.checks import is_ready
from cloudrec.launch._kube.judge import ended_at, exit_code, is_over
from cloudrec.launch.ledger import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from cloudrec.launch.base import RunStatus
    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.ledger import Event
    from cloudrec.launch.runspec import RunSpec

_LOCK_S = 10.0
LOST, PREEMPTED = "pod_lost", "preempted"
_SEEN = "pods.json"  # of the run's folder: the pods that were at work when somebody last looked


def writing(run: RunFolder) -> AbstractContextManager[None]:
    """Hold the run's ledger while what was seen is compared with it."""
    return locked(run.path / "watch.lock", what=f"the ledger of run {run.name!r}", wait_s=_LOCK_S)


def note_losses(
    run: RunFolder, events: Sequence[Event], pods: Sequence[Mapping[str, Any]], launch: int
) -> None:
    """Tell of each pod that was taken away or has crashed."""
    known = {event.details.get("uid") for event in events if event.event in (LOST, PREEMPTED)}
    for pod in pods:
        metadata = pod["metadata"]
        taken = is_disrupted(pod)
        failed = (pod.get("status") or {}).get("phase") == "Failed"
        if metadata["uid"] in known or not (taken or failed):
            continue
        cause = pod_cause(pod)
        run.ledger.append(
            PREEMPTED if taken else LOST,
            launch=launch,
            uid=metadata["uid"],
            pod=metadata["name"],
            node=(pod.get("spec") or {}).get("nodeName"),
            exit_code=exit_code(pod),
            cause=cause.text if cause else None,
            **_at(ended_at(pod)),
        )


def vanished(run: RunFolder, pods: Sequence[Mapping[str, Any]], launch: int) -> dict[str, dict[str, str]]:
    """Return the pods of a launch, by uid, that were at work when somebody last looked, and are gone.

    A machine that is lost takes its pods' objects with it, a minute later: nothing else tells of them.
    """
    file = run.path / _SEEN
    now = {
        pod["metadata"]["uid"]: {"pod": pod["metadata"]["name"], "node": (pod["spec"].get("nodeName") or "")}
        for pod in pods
        if not is_over(pod)
    }
    try:
        before = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    if before != {"launch": launch, "pods": now}:
        write_atomically(file, json.dumps({"launch": launch, "pods": now}))
    there = {pod["metadata"]["uid"] for pod in pods}
    known = before.get("pods", {}) if before.get("launch") == launch else {}
    return {uid: seen for uid, seen in known.items() if uid not in there}


def note_vanished(
    run: RunFolder, gone: Mapping[str, Mapping[str, str]], nodes: Sequence[Mapping[str, Any]], launch: int
) -> None:
    """Tell of pods that are gone: taken away with their machine, or deleted by somebody.

    Args:
        run: whose.
        gone: what `vanished` returned.
        nodes: the cluster's nodes as they are now.
        launch: which launch.
    """
    well = {node["metadata"]["name"] for node in nodes if is_ready(node)}
    known = {event.details.get("uid") for event in run.ledger.read() if event.event in (LOST, PREEMPTED)}
    for uid, seen in gone.items():
        if uid not in known:
            lost = bool(seen["node"]) and seen["node"] not in well
            cause = f"its node {seen['node']} was lost" if lost else "somebody deleted it"
            run.ledger.append(PREEMPTED if lost else LOST, launch=launch, uid=uid, cause=cause, **seen)


def note_starts(run: RunFolder, spec: RunSpec, events: Sequence[Event]) -> None:
    """Tell of each time that all ranks were started again, as the pods have written it down in the store."""
    told = [event for event in events if event.event == "restarting" and "lead" in event.details]
    newest = max((int(event.details["lead"]) for event in events if "lead" in event.details), default=0)
    for lead in results.leads(spec, after=newest):
        again = any(event.launch == lead.launch and event.event == "ranks_started" for event in events)
        attempt = sum(event.launch == lead.launch for event in told) + 1
        if not again:
            run.ledger.append("ranks_started", launch=lead.launch, lead=lead.number, time=lead.time)
        else:
            run.ledger.append(
                "restarting",
                launch=lead.launch,
                attempt=attempt,
                cause=_cause_of(lead, spec, run),
                lead=lead.number,
                time=lead.time,
            )
        events = run.ledger.read()
        told = [event for event in events if event.event == "restarting" and "lead" in event.details]


def note_state(
    run: RunFolder, events: Sequence[Event], status: RunStatus, launch: int, **details: object
) -> None:
    """Tell of the first time at work in a launch, and of its end."""
    own = [event.event for event in events if event.launch == launch]
    word = status.state.lower()
    if status.state is RunState.RUNNING and not {"stop_requested", word} & set(own):
        run.ledger.append("running", launch=launch, attempt=status.attempt)
    elif status.state.is_final and word not in own:
        run.ledger.append(word, launch=launch, cause=status.cause, attempt=status.attempt, **details)


def attempts(events: Sequence[Event], launch: int) -> int:
    """Return how often all ranks were started again in a launch."""
    return sum(event.event == "restarting" and event.launch == launch for event in events)


def preemptions(events: Sequence[Event]) -> int:
    """Return how often a machine was taken from the run, over all its launches."""
    return sum(event.event == PREEMPTED for event in events)


def _cause_of(lead: results.Lead, spec: RunSpec, run: RunFolder) -> str:
    """Return why the ranks were started again: a pod that was lost, or what the leader says."""
    before = [event for event in run.ledger.read() if event.launch == lead.launch and event.time <= lead.time]
    starts = [event.time for event in before if "lead" in event.details]
    since = max(starts, default=0.0)
    lost = [event for event in before if event.event in (LOST, PREEMPTED) and event.time > since]
    own = [event for event in lost if event.event == PREEMPTED] or lost
    if own:
        return f"pod {own[0].details.get('pod')}: {own[0].details.get('cause')}"
    try:
        return results.restart_cause(spec, lead) or "its ranks were started again"
    except CloudrecError:
        return "its ranks were started again"


def _at(moment: str) -> dict[str, Any]:
    """Return the time of an event, where Kubernetes tells it."""
    seconds = next(_seconds(moment), None)
    return {} if seconds is None else {"time": seconds}


def _seconds(moment: str) -> Iterator[float]:
    try:
        yield datetime.fromisoformat(moment).astimezone(UTC).timestamp()
    except ValueError:
        return
