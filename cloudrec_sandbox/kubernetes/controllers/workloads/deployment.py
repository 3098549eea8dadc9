"""Deployments: a ReplicaSet for the present template; those of earlier templates have no pods."""

from __future__ import annotations

import hashlib
import json
from typing import ClassVar

from cloudrec_sandbox.kubernetes.controllers.base import Controller
from cloudrec_sandbox.kubernetes.objects.table import copied
from cloudrec_sandbox.kubernetes.storage.mirror import Object, is_ending, with_conditions

_HASH = "pod-template-hash"


class DeploymentController(Controller):
    """Rolls out Deployments."""

    resource: ClassVar[str] = "deployments"
    kind: ClassVar[str] = "Deployment"
    source: ClassVar[str] = "deployment-controller"

    def look(self, obj: Object) -> None:
        """Bring a Deployment one step further."""
        if is_ending(obj):
            return
        wanted = int(obj["spec"].get("replicas", 1))
        text = json.dumps(obj["spec"]["template"], sort_keys=True)
        mark = hashlib.sha256(text.encode()).hexdigest()[:10]
        name = f"{obj['metadata']['name']}-{mark}"
        sets = {each["metadata"]["name"]: each for each in self.cluster.mirror.owned(obj, "replicasets")}
        current = sets.pop(name, None)
        if current is None:
            self._make(obj, name, mark, wanted)
            return
        if current["spec"].get("replicas") != wanted:
            self._scale(current, wanted)
        ready = int(current.get("status", {}).get("readyReplicas") or 0)
        # Old pods end only once the new ones are ready, so that the Deployment keeps serving.
        if ready >= wanted:
            for old in sets.values():
                if old["spec"].get("replicas"):
                    self._scale(old, 0)
        self._publish(obj, current, wanted, ready)

    def _make(self, obj: Object, name: str, mark: str, wanted: int) -> None:
        template = copied(obj["spec"]["template"])
        metadata = template.setdefault("metadata", {})
        metadata["labels"] = {**(metadata.get("labels") or {}), _HASH: mark}
        selector = copied(obj["spec"]["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _HASH: mark}
        spec = {"replicas": wanted, "selector": selector, "template": template}
        self.make(
            obj, "replicasets", {"metadata": {"name": name, "labels": metadata["labels"]}, "spec": spec}
        )
        self.record(obj, "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {wanted}")

    def _scale(self, replica_set: Object, replicas: int) -> None:
        metadata = replica_set["metadata"]
        change = {"spec": {"replicas": replicas}}
        self.cluster.attempt(
            lambda: self.cluster.store.patch("replicasets", metadata["namespace"], metadata["name"], change)
        )

    def _publish(self, obj: Object, current: Object, wanted: int, ready: int) -> None:
        name = current["metadata"]["name"]
        available = {
            "type": "Available",
            "status": str(ready >= wanted),
            "reason": "MinimumReplicasAvailable" if ready >= wanted else "MinimumReplicasUnavailable",
            "message": f"Deployment {'has' if ready >= wanted else 'does not have'} minimum availability.",
        }
        state = "has successfully progressed" if ready >= wanted else "is progressing"
        progress = {
            "type": "Progressing",
            "status": "True",
            "reason": "NewReplicaSetAvailable" if ready >= wanted else "ReplicaSetUpdated",
            "message": f'ReplicaSet "{name}" {state}.',
        }
        status = {
            "observedGeneration": obj["metadata"]["generation"],
            "replicas": int(current.get("status", {}).get("replicas") or 0),
            "updatedReplicas": int(current.get("status", {}).get("replicas") or 0),
            "readyReplicas": ready or None,
            "availableReplicas": ready or None,
            "unavailableReplicas": wanted - ready or None,
            "conditions": with_conditions(obj, [available, progress], self.cluster.timestamp()),
        }
        self.cluster.patch_status(self.resource, obj, status)
