"""How a run is, judged from its object and its pods. Pure functions: no call, no file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.cluster.causes import event_cause, is_disrupted, pod_cause
from cloudrec.cluster.exits import BAD_CONFIG, BAD_DATA, UNFIT, Cause, exit_cause, terminated
from cloudrec.launch.base import RunStatus, Worker
from cloudrec.launch.ledger import RunState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.launch._kube.engine import Engine, Phase

STOP_REASON = "cloudrec/stop-reason"  # an annotation: why somebody other than `stop` ended the run
_FINAL_CODES = (BAD_CONFIG, BAD_DATA, UNFIT)
_SHOWN = 3  # causes that differ


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What was seen of one launch of a run, all at one time.

    Attributes:
        engine: the operator.
        job: its object; None where there is none.
        pods: the launch's pods that train.
        nodes: how many are wanted.
        min_nodes: with how many it goes on.
        has_run: whether it was seen at work before, in this launch.
        stop_asked: whether `stop` asked for the end of this launch.
        queue: the queue it waits in while nobody has stopped it.
        events: warnings about the run's objects, where they were asked for.
        cluster_nodes: the nodes, where they were asked for.
        checkpoint: words about the newest checkpoint.
    """

    engine: Engine
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


@dataclass(frozen=True, kw_only=True)
class _Pods:
    """The pods by what they do."""

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
    """Tell whether a pod's container that trains is not running at this moment."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return bool(statuses) and not any("running" in (each.get("state") or {}) for each in statuses)


def is_over(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod will do nothing more."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def judge(sight: Sight) -> RunStatus:
    """Return the run's status; attempts and preemptions are for who keeps the ledger."""
    pods = _Pods.of(sight.pods)
    workers = tuple(_worker(pod, sight.cluster_nodes) for pod in sight.pods)
    state, cause = _state(sight, pods)
    return RunStatus(state=state, cause=cause, workers=workers)


def _state(sight: Sight, pods: _Pods) -> tuple[RunState, str | None]:
    if sight.job is None:
        kind = sight.engine.kind.rpartition("/")[2]
        return RunState.FAILED, f"its {kind} is no longer in the cluster: somebody deleted it"
    phase = sight.engine.phase(sight.job)
    if phase.state == "succeeded":
        return RunState.SUCCEEDED, None
    if phase.state == "failed":
        return RunState.FAILED, _why_failed(phase, sight)
    if phase.state == "suspended" or sight.engine.is_suspended(sight.job):
        return _suspended(sight, pods)
    return _active(sight, pods)


def _suspended(sight: Sight, pods: _Pods) -> tuple[RunState, str | None]:
    alive = [*pods.running, *pods.waiting, *pods.ending]
    annotations = (sight.job or {}).get("metadata", {}).get("annotations") or {}
    told = annotations.get(STOP_REASON)
    if not (sight.stop_asked or told) and sight.queue:
        return RunState.PENDING, f"it waits in the queue {sight.queue!r}"
    who = "stopped on request" if sight.stop_asked else told or "suspended by somebody else than cloudrec"
    if alive:
        return RunState.RUNNING, f"{who}: {len(alive)} of its pods are still ending"
    return RunState.INTERRUPTED, f"{who}; {sight.checkpoint}" if sight.checkpoint else who


def _active(sight: Sight, pods: _Pods) -> tuple[RunState, str | None]:
    running = len(pods.running)
    done = sum((pod.get("status") or {}).get("phase") == "Succeeded" for pod in pods.ended)
    done = max(done, int(((sight.job or {}).get("status") or {}).get("succeeded") or 0))
    if running + done >= sight.nodes:
        return RunState.RUNNING, None
    causes = _causes(sight, pods)
    if running >= max(sight.min_nodes, 1) and (sight.has_run or pods.ended):
        return RunState.RUNNING, f"{running} of {sight.nodes} nodes are at work" + (
            f": {causes}" if causes else ""
        )
    if sight.has_run or pods.ended:
        return RunState.RESTARTING, causes or f"{running} of {sight.nodes} pods are running again"
    return RunState.PENDING, causes or f"{running} of {sight.nodes} pods are running"


def _causes(sight: Sight, pods: _Pods) -> str:
    """Tell why some pods do not run: each reason once, the most frequent first."""
    by_pod: dict[str, list[Mapping[str, Any]]] = {}
    for event in sight.events:
        by_pod.setdefault(str((event.get("involvedObject") or {}).get("name", "")), []).append(event)
    found: Counter[str] = Counter()
    for pod in [*pods.waiting, *pods.ending]:
        events = by_pod.get(pod["metadata"]["name"], [])
        if cause := pod_cause(pod, events=events, nodes=sight.cluster_nodes):
            found[str(cause)] += 1
    if not found and sight.job is not None:
        own = by_pod.get(sight.job["metadata"]["name"], [])
        found.update(str(cause) for event in own if (cause := event_cause(event)))
    if not found and pods.ended:
        newest = max(pods.ended, key=ended_at)
        if cause := pod_cause(newest, nodes=sight.cluster_nodes):
            found[f"pod {newest['metadata']['name']}: {cause}"] += 1
    told = [f"{count} pods: {text}" if count > 1 else text for text, count in found.most_common(_SHOWN)]
    return "; ".join(told)


def _why_failed(phase: Phase, sight: Sight) -> str:
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
        ": ".join(part for part in (phase.reason, phase.message) if part) or "its operator does not say why"
    )


def _culprit(pods: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the pod that began it: one that refuses its input, or the first to crash."""
    failed = [pod for pod in pods if (code := exit_code(pod)) is not None and code != 0]
    final = [pod for pod in failed if exit_code(pod) in _FINAL_CODES]
    own = [pod for pod in failed if not is_disrupted(pod) and not _is_passing(exit_cause(pod))]
    chosen = final or own or failed
    return min(chosen, key=ended_at) if chosen else None


def _is_passing(cause: Cause | None) -> bool:
    return cause is not None and cause.is_passing


def exit_code(pod: Mapping[str, Any]) -> int | None:
    """Return the exit code of the container that trains, None while it has none."""
    ended = terminated(pod)
    return int(ended["exitCode"]) if "exitCode" in ended else None


def ended_at(pod: Mapping[str, Any]) -> str:
    """Return when a pod's container ended, as its status says it; empty where it does not."""
    return str(terminated(pod).get("finishedAt") or "")


def _worker(pod: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> Worker:
    status = pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    ending = bool(pod["metadata"].get("deletionTimestamp")) and not is_over(pod)
    cause = pod_cause(pod, nodes=nodes)
    return Worker(
        name=pod["metadata"]["name"],
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        state="Terminating" if ending else str(status.get("phase") or "Pending"),
        restarts=sum(int(each.get("restartCount") or 0) for each in statuses),
        problem=str(cause) if cause else "",
    )
