"""Pods, Jobs and nodes as an API server returns them."""

from __future__ import annotations

from typing import Any


def pod(
    name: str = "run-0",
    phase: str = "Running",
    *,
    code: int | None = None,
    message: str = "",
    reason: str = "",
    waiting: dict[str, str] | None = None,
    disrupted: str = "",
    unschedulable: str = "",
    finished: str = "2026-11-20T10:00:00Z",
    deleting: bool = False,
    created: str = "2026-11-20T09:00:00Z",
) -> dict[str, Any]:
    """A pod; with an exit code its container has ended, with `waiting` it has not started."""
    state: dict[str, Any] = {"running": {}} if phase == "Running" else {}
    if code is not None:
        ended = {"exitCode": code, "message": message, "reason": reason or "Error", "finishedAt": finished}
        state = {"terminated": ended}
    if waiting:
        state = {"waiting": waiting}
    conditions = []
    if disrupted:
        conditions.append({"type": "DisruptionTarget", "status": "True", "reason": disrupted})
    if unschedulable:
        conditions.append(
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unschedulable}
        )
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "creationTimestamp": created}
    if deleting:
        metadata["deletionTimestamp"] = finished
    container = {"name": "trainer", "image": "registry/trainer:1", "restartCount": 0, "state": state}
    return {
        "metadata": metadata,
        "spec": {"nodeName": "" if unschedulable else "node-a", "containers": [{"name": "trainer"}]},
        "status": {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": [container] if state else [],
        },
    }


def node(
    name: str, *, gpus: str = "0", ready: bool = True, taints: list[dict[str, str]] | None = None
) -> dict[str, Any]:
    """A node with its GPUs."""
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {"taints": taints or []},
        "status": {
            "allocatable": {"nvidia.com/gpu": gpus, "cpu": "8"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def job(*conditions: dict[str, str], suspend: bool = False, **metadata: Any) -> dict[str, Any]:
    """A Job with conditions that are true."""
    return {
        "metadata": {"name": "run", "uid": "job", **metadata},
        "spec": {"suspend": suspend},
        "status": {"conditions": [{"status": "True", **each} for each in conditions]},
    }
