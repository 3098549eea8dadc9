"""Finds why a pod does not run or has ended, and the remedy, from statuses and events.

Pure functions over objects of the API; the caller reads these.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.client.target import DEAD_NODE
from cloudrec.kubernetes.health.containers import Cause, exit_cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PULL = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_PRIVATE = re.compile(
    r"unauthorized|denied|forbidden|authentication required|\b40[13]\b|no basic auth", re.IGNORECASE
)
_MISSING = re.compile(r"not ?found|manifest unknown|no such|does not exist|\b404\b", re.IGNORECASE)
_INSUFFICIENT = re.compile(r"(\d+) Insufficient ([\w./-]*\w)")
_CORDONED = re.compile(r"(\d+) node\(s\) were unschedulable")
_TAINT = re.compile(r"(\d+) node\(s\) had untolerated taint\(?s?\)? \{([^}]*)\}")
_SELECTOR = re.compile(r"(\d+) node\(s\) didn't match Pod's node affinity/selector")
_OF = re.compile(r"^(\d+)/(\d+) nodes are available")
_MOUNTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_SANDBOX = "FailedCreatePodSandBox"
_TEXT_LIMIT = 300
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

# Reasons of the condition DisruptionTarget, which Kubernetes sets on a pod that it ends because of its node
# or of another pod.
_TAKEN = {
    "PreemptionByScheduler": "a pod of higher priority took its place",
    "DeletionByTaintManager": "its node was lost or is being taken away",
    "EvictionByEvictionAPI": "its node was drained",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node is shutting down or was out of resources",
}


_UNCONFIRMED_S = 60.0  # beyond a pod's grace: by then, a kubelet that lives has ended it


def is_disrupted(pod: Mapping[str, Any]) -> bool:
    """Return whether the cluster ended a pod, such as by a preemption; False if it ended by itself."""
    return _taken(pod) is not None


def pod_cause(
    pod: Mapping[str, Any],
    *,
    events: Sequence[Mapping[str, Any]] = (),
    nodes: Sequence[Mapping[str, Any]] = (),
    now_s: float | None = None,
    is_managed: bool = False,
) -> Cause | None:
    """Return what is wrong with a pod; None if nothing is.

    Args:
        pod: the pod.
        events: events about it, in any order.
        nodes: the cluster's nodes; with these, the cause names the resources that they have.
        now_s: the time by the cluster's clock, which shows that a pod ends too late; None if unknown.
        is_managed: whether the keeper of a managed cluster creates the pod's node.
    """
    status = pod.get("status") or {}
    phase = status.get("phase")
    if phase == "Succeeded":
        return None
    return (
        _taken(pod, now_s)
        or _evicted(status)
        or _unscheduled(pod, nodes, is_managed=is_managed)
        or _waiting(pod)
        or (_from_events(events) if phase == "Pending" else None)
        or exit_cause(pod)
    )


def is_left_behind(pod: Mapping[str, Any], now_s: float) -> bool:
    """Return whether a pod is on a node whose kubelet is dead, so that nothing ends the pod.

    Kubernetes marks the pods of an unreachable node for deletion and waits for the kubelet to end them. Only
    the removal of the Node object, which a cloud's controller does, ends such a pod otherwise.

    Args:
        pod: the pod.
        now_s: the time by the cluster's clock, in seconds since the epoch.
    """
    status, due = pod.get("status") or {}, pod["metadata"].get("deletionTimestamp")
    if not due or status.get("phase") in ("Succeeded", "Failed"):
        return False
    conditions = {each.get("type"): each for each in status.get("conditions") or []}
    target, ready = conditions.get("DisruptionTarget") or {}, conditions.get("Ready") or {}
    # The taint manager marks the pods of a node that is not ready; the node controller makes them unready.
    if target.get("reason") != "DeletionByTaintManager" or ready.get("status") != "False":
        return False
    # The time of deletion includes the pod's grace period.
    return now_s > datetime.fromisoformat(due).astimezone(UTC).timestamp() + _UNCONFIRMED_S


def event_cause(event: Mapping[str, Any]) -> Cause | None:
    """Return why an object does not get its pods, from an event; None for events of other kinds."""
    reason, message = str(event.get("reason", "")), str(event.get("message", ""))[:_TEXT_LIMIT]
    if reason == "FailedCreate" and "exceeded quota" in message:
        return Cause(
            kind="QuotaExceeded",
            text=f"the namespace's quota does not allow the pod: {message}",
            remedy="request less, or have the administrator of the namespace raise its ResourceQuota",
        )
    if reason == "FailedCreate":
        return Cause(
            kind=reason,
            text=f"the cluster refuses to create the pod: {message}",
            remedy="a policy of the cluster (admission, pod security) forbids it: change either",
        )
    if reason in _MOUNTS:
        return Cause(
            kind="FailedMount",
            text=f"a volume cannot be mounted: {message}",
            remedy="check that the claim, its storage class and its driver exist: `cloudrec doctor`",
        )
    if reason == _SANDBOX:
        return Cause(
            kind=reason,
            text=f"the node cannot set up the pod's network: {message}",
            remedy="often addresses of the subnet have run out, or the network add-on is not ready",
        )
    return None


def _taken(pod: Mapping[str, Any], now_s: float | None = None) -> Cause | None:
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            reason = str(condition.get("reason", ""))
            node = (pod.get("spec") or {}).get("nodeName") or "its node"
            if now_s is not None and is_left_behind(pod, now_s):
                return _left_behind(pod, node)
            why = _TAKEN.get(reason, str(condition.get("message", "") or reason))
            return Cause(
                kind="Preempted",
                text=f"it was taken from {node}: {why}",
                remedy="the run continues by itself once there is a node again",
                is_passing=True,
            )
    return None


def _left_behind(pod: Mapping[str, Any], node: str) -> Cause:
    is_replaced = ((pod["metadata"].get("annotations") or {}).get(DEAD_NODE)) == "replace"
    guarded = "the cluster's guard ends the pod within minutes; without a guard: " if is_replaced else ""
    remedy = (
        f"{guarded}if the machine is off, run: kubectl taint nodes {node} "
        f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute (or kubectl delete node {node}); "
        "the run then continues on another node"
    )
    return Cause(
        kind="DeadNode",
        text=f"{node} is dead, and its Node object stays: no kubelet confirms the end of the pod",
        remedy=remedy,
        is_passing=True,
    )


_KEEPER = "the cluster's keeper creates its nodes; `cloudrec queue` shows what it waits for"
_NOT_ADMITTED = ("UnexpectedAdmissionError", "OutOf", "NodeAffinity", "Admission")  # reasons of a kubelet


def _evicted(status: Mapping[str, Any]) -> Cause | None:
    reason, message = str(status.get("reason", "")), str(status.get("message", ""))[:_TEXT_LIMIT]
    if reason == "Evicted":
        return Cause(
            kind=reason,
            text=f"the node evicted it: {message}",
            remedy="request more of what ran out (memory, ephemeral-storage), or use larger nodes",
        )
    if reason in ("NodeLost", "NodeAffinity", "NodeShutdown", "Terminated"):
        return Cause(
            kind="NodeLost",
            text=f"its node was lost: {message or reason}",
            remedy="the run continues by itself once there is a node again",
            is_passing=True,
        )
    if status.get("phase") == "Failed" and reason.startswith(_NOT_ADMITTED):
        return Cause(
            kind=reason,
            text=f"its node could not provide the resources that it requests: {message or reason}",
            remedy="`cloudrec doctor --cluster NAME` shows the nodes' resources; other pods may use them",
        )
    return None


def _unscheduled(
    pod: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]], *, is_managed: bool
) -> Cause | None:
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if (
            condition.get("type") == "PodScheduled"
            and condition.get("status") == "False"
            and condition.get("reason") == "Unschedulable"
        ):
            cause = unschedulable(str(condition.get("message", "")), nodes)
            return replace(cause, remedy=_KEEPER) if is_managed else cause
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            return Cause(
                kind="Queued",
                text="it waits in the cluster's queue",
                remedy="it starts when the queue admits it",
                is_passing=True,
            )
    return None


def unschedulable(message: str, nodes: Sequence[Mapping[str, Any]] = ()) -> Cause:
    """Return why no node takes a pod, from the scheduler's message."""
    reasons: list[str] = []
    remedies: list[str] = []
    for count, resource in _INSUFFICIENT.findall(message):
        reasons.append(f"{count} lack {resource}{_had(resource, nodes)}")
        remedies.append(_remedy_of(resource, nodes))
    for count, taint in _TAINT.findall(message):
        reasons.append(f"{count} have the taint {taint.strip()}, which the pod does not tolerate")
        remedies.append("wait if the node is new or being repaired; else tolerate the taint")
    for count in _CORDONED.findall(message):
        reasons.append(f"{count} take no pods, since they are being drained or repaired")
        remedies.append("wait until they are back or replaced")
    for count in _SELECTOR.findall(message):
        reasons.append(f"{count} are of another kind than the run requests")
        remedies.append("bring up nodes of that kind: `cloudrec up`")
    found = _OF.match(message)
    of = f"of {found[2]} nodes " if found else ""
    text = (
        f"no node takes the pod: {of}{', '.join(reasons)}" if reasons else f"no node takes the pod: {message}"
    )
    remedy = next(iter(remedies), "`cloudrec status` shows the nodes; wait, or bring up more")
    return Cause(kind="Unschedulable", text=text[: 2 * _TEXT_LIMIT], remedy=remedy, is_passing=True)


def _had(resource: str, nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return a note on the largest amount of a resource that a node has; empty without nodes."""
    if not nodes:
        return ""
    amounts = [
        str(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")) for node in nodes
    ]
    most = max(amounts, key=amount)
    return f" (the most that a node offers is {most})"


def _remedy_of(resource: str, nodes: Sequence[Mapping[str, Any]]) -> str:
    offered = [((node.get("status") or {}).get("allocatable") or {}).get(resource, "0") for node in nodes]
    if nodes and "/" in resource and not any(amount(str(each)) for each in offered):
        return f"no node offers {resource}: is its device plugin installed? `cloudrec addons install`"
    return "wait until other work ends, request less, or bring up more nodes: `cloudrec up --nodes N`"


def amount(quantity: str) -> float:
    """Return a quantity of Kubernetes (500m, 16Gi, 8) as a number; 0 for a text that is none."""
    found = re.fullmatch(r"([0-9.eE+-]+?)(m|k|[KMGTPE]i?)?", quantity.strip())
    if found is None:
        return 0.0
    units = {"m": 1e-3, "k": 1e3} | {each: 1000.0**n for n, each in enumerate("KMGTPE", 1)}
    units |= {f"{each}i": 1024.0**n for n, each in enumerate("KMGTPE", 1)}
    try:
        return float(found[1]) * units.get(found[2] or "", 1.0)
    except ValueError:
        return 0.0


def _waiting(pod: Mapping[str, Any]) -> Cause | None:
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason", ""))
        message = str(waiting.get("message", ""))
        if reason in _PULL:
            return _image(str(container.get("image", "")), reason, message)
        if reason == "CrashLoopBackOff":
            return exit_cause(pod) or Cause(
                kind=reason,
                text=f"container {container.get('name')} crashes again and again: {message[:_TEXT_LIMIT]}",
                remedy="see its log",
            )
        if reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
            return Cause(
                kind=reason,
                text=f"container {container.get('name')} cannot be started: {message[:_TEXT_LIMIT]}",
                remedy="create or correct what the message names: a ConfigMap, a command or a device",
            )
    return None


def _image(image: str, reason: str, message: str) -> Cause:
    # The container runtime puts the reason at the end of its message.
    detail = message if len(message) <= _TEXT_LIMIT else f"...{message[-_TEXT_LIMIT:]}"
    if reason == "InvalidImageName":
        return Cause(
            kind=reason, text=f"{image!r} is no valid image name", remedy="write REGISTRY/NAME@DIGEST"
        )
    if _PRIVATE.search(message):
        return Cause(
            kind="ImagePullBackOff",
            text=f"the nodes may not pull the image {image}: {detail}",
            remedy="push it to the cluster's registry, which the nodes may read: `cloudrec image push`",
        )
    if _MISSING.search(message):
        return Cause(
            kind="ImagePullBackOff",
            text=f"there is no image {image}: {detail}",
            remedy="check the name and the digest, or build it: `cloudrec image build` and `image push`",
        )
    return Cause(
        kind="ImagePullBackOff",
        text=f"the image {image} cannot be pulled: {detail or reason}",
        remedy="check that the nodes can reach the registry",
    )


def _from_events(events: Sequence[Mapping[str, Any]]) -> Cause | None:
    def moment(event: Mapping[str, Any]) -> str:
        return str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or "")

    for event in sorted(events, key=moment, reverse=True):
        if event.get("reason") == "FailedScheduling":
            return unschedulable(str(event.get("message", "")))
        if found := event_cause(event):
            return found
    return None
