"""Derives the state of a run from its object and its pods. Pure functions: no call, no file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.health.causes import event_cause, is_disrupted, pod_cause
from cloudrec.kubernetes.health.containers import Cause, exit_cause, terminated
from cloudrec.kubernetes.wishes import NODES, QUEUED
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.protocol import RunStatus, Worker
from cloudrec_contract.exit_codes import FINAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.launchers.kubernetes.engine import JobOperator, Phase

STOP_REASON = "cloudrec/stop-reason"  # the annotation of a process that suspended the run, such as the guard
_SHOWN = 3  # different causes that a message shows


@dataclass(frozen=True, kw_only=True)
class KubernetesSnapshot:
    """The objects of one launch, read at one time.

    Attributes:
        engine: the operator.
        job: the run's object; None if there is none.
        pods: the launch's pods that train.
        nodes: number of nodes of the run.
        min_nodes: number of nodes with which it continues.
        has_run: whether an earlier status of this launch was RUNNING.
        stop_asked: whether `stop` has requested the end of this launch.
        queue: the queue in which a run that is suspended, but not stopped, waits.
        events: warnings about the run's objects; empty if they were not read.
        cluster_nodes: the cluster's nodes; empty if they were not read.
        checkpoint: a sentence about the newest checkpoint; empty if unknown.
        stepping: number of nodes that have made steps since the newest loss; None if unknown.
        now_s: the time by the cluster's clock, in seconds since the epoch; None if unknown.
    """

    engine: JobOperator
    job: Mapping[str, Any] | None
    pods: Sequence[Mapping[str, Any]]
    nodes: int
    min_nodes: int
    has_run: bool = False
    stop_asked: bool = False
    queue: str = ""
    events: Sequence[Mapping[str, Any]] = ()
    cluster_nodes: Sequence[Mapping[str, Any]] = ()
    checkpoint: str = ""
    stepping: int | None = None
    now_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class _Pods:
    """The pods, sorted by phase."""

    running: list[Mapping[str, Any]] = field(default_factory=list)
    waiting: list[Mapping[str, Any]] = field(default_factory=list)
    ending: list[Mapping[str, Any]] = field(default_factory=list)
    ended: list[Mapping[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, pods: Sequence[Mapping[str, Any]]) -> _Pods:
        sorted_pods = cls()
        for pod in pods:
            phase = (pod.get("status") or {}).get("phase")
            if phase in ("Succeeded", "Failed"):
                sorted_pods.ended.append(pod)
            elif pod["metadata"].get("deletionTimestamp"):
                sorted_pods.ending.append(pod)
            elif phase == "Running" and not terminated_now(pod):
                sorted_pods.running.append(pod)
            else:
                sorted_pods.waiting.append(pod)
        return sorted_pods


def terminated_now(pod: Mapping[str, Any]) -> bool:
    """Return whether none of a pod's containers is running at this moment."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return bool(statuses) and not any("running" in (each.get("state") or {}) for each in statuses)


def is_over(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has ended."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def judge(sight: KubernetesSnapshot) -> RunStatus:
    """Return the run's status; the caller adds attempts and preemptions, which are in the ledger."""
    pods = _Pods.of(sight.pods)
    workers = tuple(_worker(pod, sight) for pod in sight.pods)
    state, cause = _state(sight, pods)
    return RunStatus(state=state, cause=cause, workers=workers)


def _state(sight: KubernetesSnapshot, pods: _Pods) -> tuple[RunState, str | None]:
    if sight.job is None:
        kind = sight.engine.kind.rpartition("/")[2]
        return RunState.FAILED, f"its {kind} is no longer in the cluster: another client deleted it"
    phase = sight.engine.phase(sight.job)
    if phase.state == "succeeded":
        return RunState.SUCCEEDED, None
    if phase.state == "failed":
        return RunState.FAILED, _why_failed(phase, sight)
    if phase.state == "suspended" or sight.engine.is_suspended(sight.job):
        return _suspended(sight, pods)
    return _active(sight, pods)


def _suspended(sight: KubernetesSnapshot, pods: _Pods) -> tuple[RunState, str | None]:
    alive = [*pods.running, *pods.waiting, *pods.ending]
    annotations = (sight.job or {}).get("metadata", {}).get("annotations") or {}
    reason = annotations.get(STOP_REASON)
    if QUEUED in annotations and not (sight.stop_asked or reason):
        return RunState.PENDING, "it waits for its turn; `cloudrec queue` shows the order"
    # Kueue suspends a job that waits for its quota: that is no stop.
    if not (sight.stop_asked or reason) and sight.queue:
        return RunState.PENDING, f"it waits in the queue {sight.queue!r}"
    cause = (
        "stopped on request" if sight.stop_asked else reason or "suspended by another client than cloudrec"
    )
    if alive:
        return RunState.RUNNING, f"{cause}: {len(alive)} of its pods are still ending"
    return RunState.INTERRUPTED, f"{cause}; {sight.checkpoint}" if sight.checkpoint else cause


def _active(sight: KubernetesSnapshot, pods: _Pods) -> tuple[RunState, str | None]:
    running = len(pods.running)
    done = sum((pod.get("status") or {}).get("phase") == "Succeeded" for pod in pods.ended)
    # Pods that have succeeded may be deleted already; the job's count still includes them.
    done = max(done, int(((sight.job or {}).get("status") or {}).get("succeeded") or 0))
    if running + done >= sight.nodes:
        return RunState.RUNNING, None
    causes = _causes(sight, pods)
    if running >= max(sight.min_nodes, 1) and (sight.has_run or pods.ended):
        # With fewer nodes than planned, but enough: torchrun continues with those.
        why = f": {causes}" if causes else ""
        if sight.stepping == 0:  # the pods that are left look for each other, or load the checkpoint
            return RunState.RESTARTING, f"{running} of {sight.nodes} nodes have made no step since{why}"
        if sight.stepping is None:
            return RunState.RUNNING, f"{running} of {sight.nodes} nodes are at work{why}"
        return RunState.RUNNING, f"{min(sight.stepping, running)} of {sight.nodes} nodes make steps{why}"
    if sight.has_run or pods.ended:
        return RunState.RESTARTING, causes or f"{running} of {sight.nodes} pods are running again"
    return RunState.PENDING, causes or f"{running} of {sight.nodes} pods are running"


def _causes(sight: KubernetesSnapshot, pods: _Pods) -> str:
    """Return why pods do not run: each cause once, the most frequent first."""
    by_pod: dict[str, list[Mapping[str, Any]]] = {}
    for event in sight.events:
        by_pod.setdefault(str((event.get("involvedObject") or {}).get("name", "")), []).append(event)
    found: Counter[str] = Counter()
    for pod in [*pods.waiting, *pods.ending]:
        events = by_pod.get(pod["metadata"]["name"], [])
        if cause := _cause(pod, sight, events=events):
            found[str(cause)] += 1
    if not found and sight.job is not None:
        own = by_pod.get(sight.job["metadata"]["name"], [])
        found.update(str(cause) for event in own if (cause := event_cause(event)))
    if not found and pods.ended:
        newest = max(pods.ended, key=ended_at)
        if cause := pod_cause(newest, nodes=sight.cluster_nodes):
            found[f"pod {newest['metadata']['name']}: {cause}"] += 1
    texts = [f"{count} pods: {text}" if count > 1 else text for text, count in found.most_common(_SHOWN)]
    return "; ".join(texts)


def _cause(
    pod: Mapping[str, Any], sight: KubernetesSnapshot, *, events: Sequence[Mapping[str, Any]] = ()
) -> Cause | None:
    labels = (sight.job or {}).get("metadata", {}).get("labels") or {}
    return pod_cause(
        pod, events=events, nodes=sight.cluster_nodes, now_s=sight.now_s, is_managed=NODES in labels
    )


def _why_failed(phase: Phase, sight: KubernetesSnapshot) -> str:
    culprit = _culprit(sight.pods)
    if culprit is not None:
        name = culprit["metadata"]["name"]
        cause = exit_cause(culprit) or pod_cause(culprit)
        if cause is not None:
            return f"pod {name}: {cause}"
    about = [cause for event in sight.events if (cause := event_cause(event))]
    if about:
        return str(about[-1])
    return (
        ": ".join(part for part in (phase.reason, phase.message) if part) or "its operator reports no cause"
    )


def _culprit(pods: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the pod that caused the failure: one that refused its input, else the first that crashed."""
    # Disrupted pods, and pods that lost a peer, fail because of another one.
    failed = [pod for pod in pods if (code := exit_code(pod)) is not None and code != 0]
    final = [pod for pod in failed if exit_code(pod) in FINAL]
    own = [pod for pod in failed if not is_disrupted(pod) and not _is_passing(exit_cause(pod))]
    chosen = final or own or failed
    return min(chosen, key=ended_at) if chosen else None


def _is_passing(cause: Cause | None) -> bool:
    return cause is not None and cause.is_passing


def exit_code(pod: Mapping[str, Any]) -> int | None:
    """Return the exit code of the container that trains; None before it has ended."""
    ended = terminated(pod)
    return int(ended["exitCode"]) if "exitCode" in ended else None


def ended_at(pod: Mapping[str, Any]) -> str:
    """Return the time at which a pod's container ended, as in its status; empty before."""
    return str(terminated(pod).get("finishedAt") or "")


def restarts(pod: Mapping[str, Any]) -> int:
    """Return how often a pod's containers were started again."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return sum(int(each.get("restartCount") or 0) for each in statuses)


def _worker(pod: Mapping[str, Any], sight: KubernetesSnapshot) -> Worker:
    status = pod.get("status") or {}
    ending = bool(pod["metadata"].get("deletionTimestamp")) and not is_over(pod)
    cause = _cause(pod, sight)
    return Worker(
        name=pod["metadata"]["name"],
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        state="Terminating" if ending else str(status.get("phase") or "Pending"),
        restarts=restarts(pod),
        problem=str(cause) if cause else "",
    )


def is_ready(node: Mapping[str, Any]) -> bool:
    """Return whether a node's condition Ready is true."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
