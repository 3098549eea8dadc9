"""DaemonSets: a pod on each node that they may run on."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.kubernetes.controllers.base import Controller
from cloudrec_sandbox.kubernetes.objects.table import copied
from cloudrec_sandbox.kubernetes.scheduling.scheduler import is_selected, tolerates
from cloudrec_sandbox.kubernetes.storage.mirror import is_ending, is_over, is_true, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec_sandbox.kubernetes.storage.mirror import Key, Object

_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSetController(Controller):
    """Keeps the pods of DaemonSets on nodes."""

    resource: ClassVar[str] = "daemonsets"
    kind: ClassVar[str] = "DaemonSet"
    source: ClassVar[str] = "daemonset-controller"

    def look(self, obj: Object) -> None:
        """Make missing pods, and delete wrong ones."""
        if is_ending(obj):
            return
        pods: dict[str, list[Object]] = {}
        for pod in self.cluster.mirror.owned(obj, "pods"):
            pods.setdefault(_target(pod), []).append(pod)
        wanted = [
            node["metadata"]["name"] for node in self.cluster.mirror.all("nodes") if _belongs(obj, node)
        ]
        for name in wanted:
            self._keep(obj, name, pods.get(name, []))
        for name, strays in pods.items():
            for pod in strays if name not in wanted else ():
                self.remove("pods", pod)
        current = [pod for name in wanted for pod in pods.get(name, []) if not is_ending(pod)]
        ready = sum(is_true(pod, "Ready") for pod in current)
        updated = sum(_generation(pod) == obj["metadata"]["generation"] for pod in current)
        status: dict[str, Any] = {
            "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": len({_target(pod) for pod in current}),
            "numberMisscheduled": 0,
            "numberReady": ready,
            "numberAvailable": ready or None,
            "numberUnavailable": len(wanted) - ready or None,
            "updatedNumberScheduled": updated,
            "observedGeneration": obj["metadata"]["generation"],
        }
        self.cluster.patch_status(self.resource, obj, status)

    def concerned(self, resource: str, _obj: Object) -> Iterable[Key]:
        """Return all DaemonSets when a node changes."""
        return (
            [key_of(each) for each in self.cluster.mirror.all(self.resource)] if resource == "nodes" else ()
        )

    def _keep(self, obj: Object, node: str, pods: list[Object]) -> None:
        live = [pod for pod in pods if not is_ending(pod)]
        for pod in live:
            is_old = _generation(pod) != obj["metadata"]["generation"]
            if is_over(pod) or is_old:
                # The pod's removal leads to the next look, which makes the new one: never two on a node.
                self.remove("pods", pod)
        if not pods:
            made = self.make(obj, "pods", _pod(obj, node))
            if made is not None:
                self.record(obj, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")


def _belongs(obj: Object, node: Object) -> bool:
    pod = {"spec": {**obj["spec"]["template"]["spec"]}}
    pod["spec"]["tolerations"] = _tolerations(pod["spec"])
    taints = node["spec"].get("taints") or ()
    return is_selected(pod, node) and all(
        # PreferNoSchedule only discourages the scheduler.
        tolerates(pod, taint)
        for taint in taints
        if taint["effect"] in ("NoSchedule", "NoExecute")
    )


def _tolerations(spec: dict[str, Any]) -> list[dict[str, Any]]:
    usual = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    return [*(spec.get("tolerations") or ()), *usual]


def _pod(obj: Object, node: str) -> dict[str, Any]:
    template = copied(obj["spec"]["template"])
    metadata, spec = template.get("metadata") or {}, template["spec"]
    own = {"pod-template-generation": str(obj["metadata"]["generation"])}
    # Kubernetes lets the scheduler place these pods too, each with an affinity to its node.
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = spec.setdefault("affinity", {})
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    affinity["nodeAffinity"] = required
    spec["tolerations"] = _tolerations(spec)
    return {
        "metadata": {
            "name": f"{obj['metadata']['name']}-{secrets.token_hex(3)[:5]}",
            "labels": {**(metadata.get("labels") or {}), **own},
            **({"annotations": metadata["annotations"]} if metadata.get("annotations") else {}),
        },
        "spec": spec,
    }


def _target(pod: Object) -> str:
    """Return the name of the node that a pod is for."""
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def _generation(pod: Object) -> int:
    return int((pod["metadata"].get("labels") or {}).get("pod-template-generation", 0))
