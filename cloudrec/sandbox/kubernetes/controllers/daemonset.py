"""DaemonSets: a pod on each node that they may run on."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.sandbox.kubernetes.controllers.base import Controller
from cloudrec.sandbox.kubernetes.mirror import is_ending, is_over, is_true, key_of
from cloudrec.sandbox.kubernetes.scheduler import is_selected, tolerates
from cloudrec.sandbox.kubernetes.table import copied

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec.sandbox.kubernetes.mirror import Key, Object

_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSetController(Controller):
    """Keeps DaemonSets' pods on nodes."""

    resource: ClassVar[str] = "daemonsets"
    kind: ClassVar[str] = "DaemonSet"
    source: ClassVar[str] = "daemonset-controller"

    def look(self, obj: Object) -> None:
        """One sync."""
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
        """A node that comes or changes concerns them all."""
        return (
            [key_of(each) for each in self.cluster.mirror.all(self.resource)] if resource == "nodes" else ()
        )

    def _keep(self, obj: Object, node: str, pods: list[Object]) -> None:
        live = [pod for pod in pods if not is_ending(pod)]
        for pod in live:
            is_old = _generation(pod) != obj["metadata"]["generation"]
            if is_over(pod) or is_old:
                self.remove("pods", pod)
        if not pods:
            made = self.make(obj, "pods", _pod(obj, node))
            if made is not None:
                self.tell(obj, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")


def _belongs(obj: Object, node: Object) -> bool:
    pod = {"spec": {**obj["spec"]["template"]["spec"]}}
    pod["spec"]["tolerations"] = _tolerations(pod["spec"])
    taints = node["spec"].get("taints") or ()
    return is_selected(pod, node) and all(
        tolerates(pod, taint) for taint in taints if taint["effect"] in ("NoSchedule", "NoExecute")
    )


def _tolerations(spec: dict[str, Any]) -> list[dict[str, Any]]:
    usual = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    return [*(spec.get("tolerations") or ()), *usual]


def _pod(obj: Object, node: str) -> dict[str, Any]:
    template = copied(obj["spec"]["template"])
    metadata, spec = template.get("metadata") or {}, template["spec"]
    own = {"pod-template-generation": str(obj["metadata"]["generation"])}
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
    """The node that a pod is for."""
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def _generation(pod: Object) -> int:
    return int((pod["metadata"].get("labels") or {}).get("pod-template-generation", 0))
