"""ReplicaSets: a number of equal pods."""

from __future__ import annotations

import secrets
from typing import ClassVar

from cloudrec_sandbox.kubernetes.controllers.base import Controller
from cloudrec_sandbox.kubernetes.objects.table import copied
from cloudrec_sandbox.kubernetes.storage.mirror import Object, is_ending, is_over, is_true


class ReplicaSetController(Controller):
    """Keeps the number of pods."""

    resource: ClassVar[str] = "replicasets"
    kind: ClassVar[str] = "ReplicaSet"
    source: ClassVar[str] = "replicaset-controller"

    def look(self, obj: Object) -> None:
        """Make missing pods, and delete surplus ones."""
        if is_ending(obj):
            return
        wanted = int(obj["spec"].get("replicas", 1))
        pods = [
            pod for pod in self.cluster.mirror.owned(obj, "pods") if not is_ending(pod) and not is_over(pod)
        ]
        for _ in range(wanted - len(pods)):
            template = copied(obj["spec"]["template"])
            metadata = {
                name: value
                for name, value in (template.get("metadata") or {}).items()
                if name in ("labels", "annotations")
            }
            metadata["name"] = f"{obj['metadata']['name']}-{secrets.token_hex(3)[:5]}"
            made = self.make(obj, "pods", {"metadata": metadata, "spec": template["spec"]})
            if made is not None:
                self.record(obj, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        for pod in pods[wanted:]:
            self.remove("pods", pod)
            self.record(obj, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        ready = sum(is_true(pod, "Ready") for pod in pods)
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": ready or None,
            "availableReplicas": ready or None,
            "observedGeneration": obj["metadata"]["generation"],
        }
        self.cluster.patch_status(self.resource, obj, status)
