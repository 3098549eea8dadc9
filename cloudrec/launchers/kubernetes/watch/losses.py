"""Records the pods of a run that were preempted, have crashed, or have disappeared."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec.home import read_text, write_atomically
from cloudrec.kubernetes.health.causes import is_disrupted, pod_cause
from cloudrec.kubernetes.health.containers import exit_cause
from cloudrec.launchers.base.outputs import json_lines, number, read_tail
from cloudrec.launchers.base.record import LOST, PREEMPTED
from cloudrec.launchers.kubernetes.run_state import ended_at, exit_code, is_over, is_ready, restarts
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.launchers.base.ledger import LedgerEvent
    from cloudrec.launchers.base.run_folder import RunFolder

_SEEN = "pods.json"  # in the run's folder: the pods that ran at the time of the last status


def note_losses(
    run: RunFolder, events: Sequence[LedgerEvent], pods: Sequence[Mapping[str, Any]], launch: int
) -> None:
    """Record each pod that was preempted or has crashed, and each container that was started again, once."""
    known = {event.details.get("uid") for event in events if event.event in (LOST, PREEMPTED)}
    for pod in pods:
        metadata = pod["metadata"]
        again = restarts(pod)
        if again and (start := f"{metadata['uid']}/{again}") not in known:
            earlier = _before_its_restart(pod)
            cause = exit_cause(earlier)
            text = (
                cause.text.partition(":")[0] if cause else "its container ended"
            )  # without lines of its log
            run.ledger.append(
                LOST,
                launch=launch,
                uid=start,
                pod=metadata["name"],
                node=(pod.get("spec") or {}).get("nodeName"),
                exit_code=exit_code(earlier),
                cause=f"{text}; its container was started again in its pod",
                **_at(ended_at(earlier)),
            )
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


def _before_its_restart(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod as if its containers had not been started again since their last end."""
    status = pod.get("status") or {}
    statuses = [{**each, "state": {}} for each in status.get("containerStatuses") or []]
    return {**pod, "status": {**status, "containerStatuses": statuses}}


def vanished(
    run: RunFolder, pods: Sequence[Mapping[str, Any]], launch: int, *, cluster: str
) -> dict[str, dict[str, str]]:
    """Return the pods of a launch, by uid, that ran at the time of the last status and no longer exist.

    A minute after a machine is lost, the cluster deletes its pods: no object reports their end. Those of
    another cluster ended when the run moved.
    """
    file = run.path / _SEEN
    now = {
        pod["metadata"]["uid"]: {"pod": pod["metadata"]["name"], "node": (pod["spec"].get("nodeName") or "")}
        for pod in pods
        if not is_over(pod)
    }
    try:
        before = safe_object(read_text(file))
    except (OSError, ValueError):
        before = {}
    # Written only after a change, since a watcher reads the state every second.
    seen = {"launch": launch, "cluster": cluster, "pods": now}
    if before != seen:
        write_atomically(file, json.dumps(seen))
    there = {pod["metadata"]["uid"] for pod in pods}
    is_same = (before.get("launch"), before.get("cluster", cluster)) == (launch, cluster)
    known = before.get("pods") if is_same else None
    if not isinstance(known, dict):
        return {}
    return {uid: pod for uid, pod in known.items() if uid not in there and isinstance(pod, dict)}


def note_vanished(
    run: RunFolder, gone: Mapping[str, Mapping[str, str]], nodes: Sequence[Mapping[str, Any]], launch: int
) -> None:
    """Record pods that no longer exist: lost with their machine, or deleted by another client.

    Args:
        run: the run.
        gone: the result of `vanished`.
        nodes: the cluster's present nodes.
        launch: the number of the launch.
    """
    ready = {node["metadata"]["name"] for node in nodes if is_ready(node)}
    known = {event.details.get("uid") for event in run.ledger.read() if event.event in (LOST, PREEMPTED)}
    for uid, seen in gone.items():
        if uid not in known:
            lost = bool(seen["node"]) and seen["node"] not in ready
            cause = f"its node {seen['node']} was lost" if lost else "another client deleted it"
            run.ledger.append(PREEMPTED if lost else LOST, launch=launch, uid=uid, cause=cause, **seen)


def stepping(run: RunFolder, events: Sequence[LedgerEvent], launch: int, *, processes: int) -> int | None:
    """Return the number of nodes that have made steps since the newest loss; None if it is unknown.

    A pod that runs may only look for the others. The trainer's metrics show how many ranks make steps.

    Args:
        run: the run, with the metrics that were copied from its storage.
        events: its ledger.
        launch: the number of the launch.
        processes: trainer processes on each node.
    """
    lines = list(json_lines(read_tail(run.metrics_file)))
    starts = [line for line in lines if line.get("kind") == "start" and number(line.get("world_size"))]
    steps = [number(line.get("time")) for line in lines if line.get("kind") == "train"]
    if not starts or not steps:  # no trainer of cloudrec, or its lines are too far back
        return None
    lost = [each.time for each in events if each.launch == launch and each.event in (LOST, PREEMPTED)]
    if max(steps) <= max([number(starts[-1].get("time")), *lost]):
        return 0
    return math.ceil(number(starts[-1]["world_size"]) / processes)


def _at(moment: str) -> dict[str, Any]:
    """Return {"time": seconds since the epoch} for a time of Kubernetes; {} if it is none."""
    seconds = next(_seconds(moment), None)
    return {} if seconds is None else {"time": seconds}


def _seconds(moment: str) -> Iterator[float]:
    try:
        yield datetime.fromisoformat(moment).astimezone(UTC).timestamp()
    except ValueError:
        return
