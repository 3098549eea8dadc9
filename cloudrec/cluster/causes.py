"""Why a pod does not run, or has ended, and what to do: statuses and events in a person's words.

Pure functions over objects as the API gives them; whoever holds the objects decides what to ask.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec.cluster.exits import Cause, exit_cause

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

# Reasons of the condition DisruptionTarget, by which Kubernetes says who took a pod away.
_TAKEN = {
    "PreemptionByScheduler": "a pod of higher priority took its place",
    "DeletionByTaintManager": "its node was lost or is being taken away",
    "EvictionByEvictionAPI": "its node was drained",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node is shutting down or was out of resources",
}


def is_disrupted(pod: Mapping[str, Any]) -> bool:
    """Tell whether the machine was taken from a pod, rather than that it ended by itself."""
    return _taken(pod) is not None


def pod_cause(
    pod: Mapping[str, Any],
    *,
    events: Sequence[Mapping[str, Any]] = (),
    nodes: Sequence[Mapping[str, Any]] = (),
) -> Cause | None:
    """Return what is wrong with a pod, None when nothing is.

    Args:
        pod: the pod.
        events: events about it, in any order.
        nodes: the cluster's nodes, so that what they have can be told.
    """
    status = pod.get("status") or {}
    phase = status.get("phase")
    if phase == "Succeeded":
        return None
    return (
        _taken(pod)
        or _evicted(status)
        or _unscheduled(pod, nodes)
        or _waiting(pod)
        or (_from_events(events) if phase == "Pending" else None)
        or exit_cause(pod)
    )


def event_cause(event: Mapping[str, Any]) -> Cause | None:
    """Return what an event tells about an object that cannot go on, None for news of no consequence."""
    reason, message = str(event.get("reason", "")), str(event.get("message", ""))[:_TEXT_LIMIT]
    if reason == "FailedCreate" and "exceeded quota" in message:
        return Cause(
            kind="QuotaExceeded",
            text=f"the namespace's quota does not allow the pod: {message}",
            remedy="ask for less, or have whoever looks after the namespace raise its ResourceQuota",
        )
    if reason == "FailedCreate":
        return Cause(
            kind=reason,
            text=f"the cluster refuses to make the pod: {message}",
            remedy="a policy of the cluster (admission, pod security) forbids it: change either",
        )
    if reason in _MOUNTS:
        return Cause(
            kind="FailedMount",
            text=f"a volume cannot be mounted: {message}",
            remedy="check that the claim, its storage class and its driver are there: `cloudrec doctor`",
        )
    if reason == _SANDBOX:
        return Cause(
            kind=reason,
            text=f"the node cannot set up the pod's network: {message}",
            remedy="often addresses of the subnet have run out, or the network add-on is not ready",
        )
    return None


def _taken(pod: Mapping[str, Any]) -> Cause | None:
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            reason = str(condition.get("reason", ""))
            node = (pod.get("spec") or {}).get("nodeName") or "its node"
            why = _TAKEN.get(reason, str(condition.get("message", "") or reason))
            return Cause(
                kind="Preempted",
                text=f"it was taken from {node}: {why}",
                remedy="the run goes on by itself once there is a node again",
                is_passing=True,
            )
    return None


_NOT_ADMITTED = ("UnexpectedAdmissionError", "OutOf", "NodeAffinity", "Admission")  # a kubelet's words


def _evicted(status: Mapping[str, Any]) -> Cause | None:
    reason, message = str(status.get("reason", "")), str(status.get("message", ""))[:_TEXT_LIMIT]
    if reason == "Evicted":
        return Cause(
            kind=reason,
            text=f"the node evicted it: {message}",
            remedy="ask for more of what ran out (memory, ephemeral-storage), or use larger nodes",
        )
    if reason in ("NodeLost", "NodeAffinity", "NodeShutdown", "Terminated"):
        return Cause(
            kind="NodeLost",
            text=f"its node was lost: {message or reason}",
            remedy="the run goes on by itself once there is a node again",
            is_passing=True,
        )
    if status.get("phase") == "Failed" and reason.startswith(_NOT_ADMITTED):
        return Cause(
            kind=reason,
            text=f"its node could not give it what it asks for: {message or reason}",
            remedy="`cloudrec doctor --cluster NAME` shows what nodes have; other pods may hold it",
        )
    return None


def _unscheduled(pod: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> Cause | None:
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if (
            condition.get("type") == "PodScheduled"
            and condition.get("status") == "False"
            and condition.get("reason") == "Unschedulable"
        ):
            return unschedulable(str(condition.get("message", "")), nodes)
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            return Cause(
                kind="Queued",
                text="it waits in the cluster's queue",
                remedy="it starts when the queue admits it",
                is_passing=True,
            )
    return None


def unschedulable(message: str, nodes: Sequence[Mapping[str, Any]] = ()) -> Cause:
    """Return why no node takes a pod, from the scheduler's own sentence."""
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
        reasons.append(f"{count} are of another kind than the run asks for")
        remedies.append("bring up nodes of that kind: `cloudrec up`")
    found = _OF.match(message)
    of = f"of {found[2]} nodes " if found else ""
    told = (
        f"no node takes the pod: {of}{', '.join(reasons)}" if reasons else f"no node takes the pod: {message}"
    )
    remedy = next(iter(remedies), "`cloudrec status` shows the nodes; wait, or bring up more")
    return Cause(kind="Unschedulable", text=told[: 2 * _TEXT_LIMIT], remedy=remedy, is_passing=True)


def _had(resource: str, nodes: Sequence[Mapping[str, Any]]) -> str:
    """Tell how much of a resource the nodes have at most."""
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
    return "wait until other work ends, ask for less, or bring up more nodes: `cloudrec up --nodes N`"


def amount(quantity: str) -> float:
    """Return a quantity as Kubernetes writes it (500m, 16Gi, 8) as a number; 0 for what is none."""
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
                remedy="what it names (a ConfigMap, a command, a device) is not there as the pod needs it",
            )
    return None


def _image(image: str, reason: str, message: str) -> Cause:
    said = message if len(message) <= _TEXT_LIMIT else f"...{message[-_TEXT_LIMIT:]}"  # the reason comes last
    if reason == "InvalidImageName":
        return Cause(
            kind=reason, text=f"{image!r} is no image's name", remedy="name it as REGISTRY/NAME@DIGEST"
        )
    if _PRIVATE.search(message):
        return Cause(
            kind="ImagePullBackOff",
            text=f"the nodes may not pull the image {image}: {said}",
            remedy="push it to the cluster's own registry, which the nodes may read: `cloudrec image push`",
        )
    if _MISSING.search(message):
        return Cause(
            kind="ImagePullBackOff",
            text=f"there is no image {image}: {said}",
            remedy="check the name and the digest, or make it: `cloudrec image build` and `image push`",
        )
    return Cause(
        kind="ImagePullBackOff",
        text=f"the image {image} cannot be pulled: {said or reason}",
        remedy="check that the nodes reach the registry",
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
