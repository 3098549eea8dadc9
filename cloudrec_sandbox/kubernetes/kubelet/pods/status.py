"""A pod's status, from the state of its containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.kubelet.pods.instance import INIT, MAIN
from cloudrec_sandbox.kubernetes.objects.quantities import requested
from cloudrec_sandbox.kubernetes.storage.mirror import condition, with_conditions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.kubernetes.kubelet.pods.instance import Instance


def pod_phase(pod: Mapping[str, Any], instances: Sequence[Instance], *, is_ending: bool = False) -> str:
    """Return Pending, Running, Succeeded or Failed."""
    mains = [each for each in instances if each.role == MAIN]
    policy = pod["spec"].get("restartPolicy", "Always")
    inits = [each for each in instances if each.role == INIT]
    if any(each.code for each in inits) and policy == "Never":
        return "Failed"
    is_live = any(each.is_live for each in instances)
    if all(each.is_done or (is_ending and each.code is not None) for each in mains) and not is_live:
        return "Failed" if any(each.code for each in mains) else "Succeeded"
    if any(each.code is not None or "running" in each.state or each.last_state for each in mains):
        return "Running"
    if is_ending and not is_live:
        return "Failed"
    return "Pending"


def pod_status(
    pod: Mapping[str, Any],
    instances: Sequence[Instance],
    *,
    phase: str,
    ip: str,
    host_ip: str,
    started_at: str,
    moment: str,
) -> dict[str, Any]:
    """Return the status as the kubelet reports it; conditions of others, such as DisruptionTarget, stay."""
    status: dict[str, Any] = {
        "phase": phase,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": started_at,
        "qosClass": qos_class(pod),
        "conditions": with_conditions(pod, _conditions(pod, instances, phase), moment),
        "containerStatuses": [each.status() for each in instances if each.role == MAIN],
    }
    if inits := [each.status() for each in instances if each.role != MAIN]:
        status["initContainerStatuses"] = inits
    return status


def qos_class(pod: Mapping[str, Any]) -> str:
    """Return the QoS class, from the requests and limits of CPU and memory."""
    containers = pod["spec"]["containers"]
    if all(not _asked(each) for each in containers):
        return "BestEffort"
    for each in containers:
        limits = (each.get("resources") or {}).get("limits") or {}
        if not {"cpu", "memory"} <= set(limits) or any(
            requested({"resources": {"limits": {name: limits[name]}}})[name] != value
            for name, value in _asked(each).items()
        ):
            return "Burstable"
    return "Guaranteed"


def _asked(container: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in requested(container).items() if name in ("cpu", "memory")}


def _conditions(pod: Mapping[str, Any], instances: Sequence[Instance], phase: str) -> list[dict[str, Any]]:
    inits = [each for each in instances if each.role != MAIN]
    mains = [each for each in instances if each.role == MAIN]
    undone = [each.name for each in inits if each.code != 0 and not (each.has_started and each.role != INIT)]
    unready = [each.name for each in mains if not each.is_ready]
    is_done = phase == "Succeeded"
    initialized = _verdict(
        "Initialized",
        undone if phase in ("Pending", "Failed") else [],
        "ContainersNotInitialized",
        is_done=is_done,
    )
    ready = [
        _verdict(kind, unready, "ContainersNotReady", is_done=is_done, is_ended=phase == "Failed")
        for kind in ("Ready", "ContainersReady")
    ]
    has_run = any(each.is_live for each in instances)
    scheduled = condition(pod, "PodScheduled") or {"type": "PodScheduled", "status": "True"}
    sandbox = {"type": "PodReadyToStartContainers", "status": str(has_run)}
    return [sandbox, initialized, *ready, {name: scheduled[name] for name in ("type", "status")}]


def _verdict(
    kind: str, missing: Sequence[str], reason: str, *, is_done: bool, is_ended: bool = False
) -> dict[str, Any]:
    if is_done:
        true = kind == "Initialized"
        return {"type": kind, "status": str(true), "reason": "PodCompleted"}
    if is_ended:
        return {"type": kind, "status": "False", "reason": "PodFailed"}
    if not missing:
        return {"type": kind, "status": "True"}
    what = "incomplete" if kind == "Initialized" else "unready"
    text = f"containers with {what} status: [{' '.join(missing)}]"
    return {"type": kind, "status": "False", "reason": reason, "message": text}
