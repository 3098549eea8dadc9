"""Binds pods to nodes that can run them, or says in the scheduler's words why none can."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects.quantities import amount, requests
from cloudrec_sandbox.kubernetes.storage.mirror import is_ending, is_over, key_of, labels, with_conditions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.kubernetes.storage.cluster import Cluster, Worker
    from cloudrec_sandbox.kubernetes.storage.mirror import Key

SOURCE = "default-scheduler"
_REPELLING = ("NoSchedule", "NoExecute")
_BATCH = 20  # pods placed before other threads get the store's lock


class Scheduler:
    """Places waiting pods whenever a pod or a node changes."""

    def __init__(self, cluster: Cluster, worker: Worker) -> None:
        self._cluster = cluster
        self._worker = worker
        cluster.mirror.subscribe(self._note)

    def _note(self, event: str, resource: str, obj: dict[str, Any]) -> None:
        is_freed = resource == "pods" and (event == "DELETED" or is_over(obj))
        is_new = resource == "pods" and not obj["spec"].get("nodeName")
        if is_freed or is_new or resource in ("nodes", "persistentvolumeclaims"):
            self._worker.soon("scheduler", self.run)

    def run(self) -> None:
        """Bind all pods that can be bound."""
        with self._cluster.store.lock:
            waiting = [pod for pod in self._cluster.mirror.all("pods") if _is_waiting(pod)]
            waiting.sort(key=lambda each: -int(each["spec"].get("priority") or 0))
            self._some([key_of(pod) for pod in waiting])

    def _some(self, keys: Sequence[Key]) -> None:
        """Bind a batch, and the rest after other threads had the store's lock."""
        with self._cluster.store.lock:
            found = [self._cluster.mirror.get("pods", *key) for key in keys[:_BATCH]]
            waiting = [pod for pod in found if pod is not None and _is_waiting(pod)]
            nodes = self._nodes() if waiting else []
            free = {node["metadata"]["name"]: self._free_on(node) for node in nodes}
            for pod in waiting:
                self._place(pod, free)
        if rest := keys[_BATCH:]:
            self._worker.soon("scheduler, the rest", lambda: self._some(rest))

    def _nodes(self) -> list[dict[str, Any]]:
        return self._cluster.mirror.all("nodes")

    def _place(self, pod: Mapping[str, Any], free: dict[str, dict[str, float]]) -> None:
        asked = {**requests(pod), "pods": 1.0}
        problems: Counter[str] = Counter()
        fitting = []
        if missing := self._missing_claim(pod):
            self._refuse(pod, f"0/{len(free)} nodes are available: {missing}")
            return
        for node in self._nodes():
            name = node["metadata"]["name"]
            if blame := _objections(pod, node, asked, free[name]):
                problems.update(blame)
            else:
                fitting.append(name)
        if not fitting:
            self._refuse(pod, _words(problems, len(free)))
            return
        best = max(fitting, key=lambda name: (free[name].get("cpu", 0.0), name))
        for resource, value in asked.items():
            free[best][resource] = free[best].get(resource, 0.0) - value
        self._bind(pod, best)

    def _bind(self, pod: Mapping[str, Any], node: str) -> None:
        metadata = pod["metadata"]
        space, name = metadata["namespace"], metadata["name"]
        store = self._cluster.store
        store.patch("pods", space, name, {"spec": {"nodeName": node}}, "binding")
        conditions = with_conditions(
            pod, [{"type": "PodScheduled", "status": "True"}], self._cluster.timestamp()
        )
        store.patch("pods", space, name, {"status": {"phase": "Pending", "conditions": conditions}}, "status")
        self._cluster.event(
            pod, "Scheduled", f"Successfully assigned {space}/{name} to {node}", source=SOURCE
        )

    def _refuse(self, pod: Mapping[str, Any], why: str) -> None:
        wish = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        conditions = with_conditions(pod, [wish], self._cluster.timestamp())
        if conditions != (pod.get("status", {}).get("conditions") or []):
            self._cluster.event(pod, "FailedScheduling", why, source=SOURCE, warning=True)
            self._cluster.patch_status("pods", pod, {"phase": "Pending", "conditions": conditions})

    def _free_on(self, node: Mapping[str, Any]) -> dict[str, float]:
        allocatable = node.get("status", {}).get("allocatable") or {}
        free = {name: amount(value) for name, value in allocatable.items()}
        free.setdefault("pods", 110.0)
        for pod in self._cluster.mirror.on_node(node["metadata"]["name"]):
            if not is_over(pod):
                for name, value in {**requests(pod), "pods": 1.0}.items():
                    free[name] = free.get(name, 0.0) - value
        return free

    def _missing_claim(self, pod: Mapping[str, Any]) -> str:
        for volume in pod["spec"].get("volumes") or ():
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if not name:
                continue
            claim = self._cluster.mirror.get("persistentvolumeclaims", pod["metadata"]["namespace"], name)
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found. preemption: not helpful for scheduling'
            if claim.get("status", {}).get("phase") != "Bound":
                return (
                    "pod has unbound immediate PersistentVolumeClaims. preemption: not helpful for scheduling"
                )
        return ""


def tolerates(pod: Mapping[str, Any], taint: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the toleration that a pod has for a taint, or None."""
    for each in pod["spec"].get("tolerations") or ():
        if each.get("effect") and each["effect"] != taint["effect"]:
            continue
        if each.get("operator") == "Exists":
            is_meant = not each.get("key") or each["key"] == taint["key"]
        else:
            is_meant = each.get("key") == taint["key"] and (each.get("value") or "") == (
                taint.get("value") or ""
            )
        if is_meant:
            found: Mapping[str, Any] = each
            return found
    return None


def is_selected(pod: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Return whether a pod's selector and affinity allow a node."""
    spec = pod["spec"]
    if not (spec.get("nodeSelector") or {}).items() <= labels(node).items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms")
    return terms is None or any(_matches_term(term, node) for term in terms)


def _is_waiting(pod: Mapping[str, Any]) -> bool:
    spec = pod["spec"]
    return (
        not (spec.get("nodeName") or spec.get("schedulingGates") or is_ending(pod) or is_over(pod))
        and spec.get("schedulerName", SOURCE) == SOURCE
    )


def _objections(
    pod: Mapping[str, Any], node: Mapping[str, Any], asked: Mapping[str, float], free: Mapping[str, float]
) -> list[str]:
    """Return why a node does not fit: the reasons of the first filter that fails, in their order."""
    if (
        node["spec"].get("unschedulable")
        and tolerates(pod, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}) is None
    ):
        return ["node(s) were unschedulable"]
    for taint in node["spec"].get("taints") or ():
        if taint["effect"] in _REPELLING and tolerates(pod, taint) is None:
            value = taint.get("value") or ""
            return [f"node(s) had untolerated taint {{{taint['key']}: {value}}}"]
    if not is_selected(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    # The tolerance is for sums of fractions of a core in floating point.
    lacking = [name for name, value in asked.items() if value > 0 and free.get(name, 0.0) < value - 1e-9]
    return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in lacking]


def _words(problems: Mapping[str, int], nodes: int) -> str:
    if not nodes:
        return "no nodes available to schedule pods"
    listed = ", ".join(f"{count} {text}" for text, count in sorted(problems.items()))
    insufficient = sum(
        count for text, count in problems.items() if text.startswith(("Insufficient", "Too many"))
    )
    hopeless = nodes - min(insufficient, nodes)
    parts = [f"{hopeless} Preemption is not helpful for scheduling"] if hopeless else []
    parts += [f"{nodes - hopeless} No preemption victims found for incoming pod"] if nodes > hopeless else []
    return (
        f"0/{nodes} nodes are available: {listed}. "
        f"preemption: 0/{nodes} nodes are available: {', '.join(parts)}."
    )


def _matches_term(term: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    by_field = {"metadata.name": node["metadata"]["name"]}
    verdicts = [
        *(_matches(each, labels(node)) for each in term.get("matchExpressions") or ()),
        *(_matches(each, by_field) for each in term.get("matchFields") or ()),
    ]
    return bool(verdicts) and all(verdicts)


def _matches(wish: Mapping[str, Any], known: Mapping[str, str]) -> bool:
    value, operator = known.get(wish["key"]), str(wish["operator"])
    values: Sequence[str] = wish.get("values") or ()
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) == (operator == "Exists")
    if operator == "NotIn":
        return value not in values
    if operator == "In":
        return value in values
    if value is None or not value.lstrip("-").isdigit():
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
