"""Writes into a run's ledger which of its pods were taken away, have crashed, or are gone without a word."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec.cluster.causes import is_disrupted, pod_cause
from cloudrec.home import write_atomically
from cloudrec.launch._kube.checks import is_ready
from cloudrec.launch._kube.judge import ended_at, exit_code, is_over
from cloudrec.launch._remote.record import LOST, PREEMPTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.ledger import Event

_SEEN = "pods.json"  # of the run's folder: the pods that were at work when somebody last looked


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


def _at(moment: str) -> dict[str, Any]:
    """Return the time of an event, where Kubernetes tells it."""
    seconds = next(_seconds(moment), None)
    return {} if seconds is None else {"time": seconds}


def _seconds(moment: str) -> Iterator[float]:
    try:
        yield datetime.fromisoformat(moment).astimezone(UTC).timestamp()
    except ValueError:
        return
