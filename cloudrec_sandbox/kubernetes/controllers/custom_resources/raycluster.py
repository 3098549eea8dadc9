"""RayClusters of KubeRay: a head, its Service, and workers; a pod that ends is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.kubernetes.controllers.custom_resources import ray_pods
from cloudrec_sandbox.kubernetes.controllers.custom_resources.operated import OperatedController
from cloudrec_sandbox.kubernetes.storage.mirror import is_ending, is_over, is_true, labels

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.storage.mirror import Object


class RayClusterController(OperatedController):
    """Controls RayClusters."""

    resource: ClassVar[str] = "rayclusters"
    kind: ClassVar[str] = "RayCluster"
    source: ClassVar[str] = "raycluster-controller"
    operator: ClassVar[str] = "rayjob"

    def operate(self, obj: Object) -> None:
        """Bring a RayCluster one step further."""
        if not self.cluster.mirror.owned(obj, "services"):
            self.make(obj, "services", ray_pods.head_service(obj))
        if ray_pods.has_token(obj) and not self.cluster.mirror.owned(obj, "secrets"):
            self.make(obj, "secrets", ray_pods.token_secret(obj))
        spec = obj["spec"]
        self._keep(obj, ray_pods.HEAD, ray_pods.HEAD_GROUP, spec["headGroupSpec"], 1)
        wanted = 1
        for group in spec.get("workerGroupSpecs") or ():
            count = int(group.get("replicas", 1))
            wanted += count
            self._keep(obj, ray_pods.WORKER, group["groupName"], group, count)
        self._publish(obj, wanted)

    def _keep(self, obj: Object, kind: str, group: str, wish: dict[str, Any], count: int) -> None:
        pods = [
            pod
            for pod in self.cluster.mirror.owned(obj, "pods")
            if labels(pod).get("ray.io/group") == group and not is_ending(pod)
        ]
        for pod in pods:
            if is_over(pod):
                self.remove("pods", pod)
                self.record(
                    obj, "DeletedPod", f"Deleted Pod {pod['metadata']['name']}; it has ended", warning=True
                )
        for _ in range(count - sum(not is_over(pod) for pod in pods)):
            made = self.make(obj, "pods", ray_pods.pod(obj, kind, group, wish))
            if made is not None:
                self.record(obj, f"Created{kind.capitalize()}Pod", f"Created Pod {made['metadata']['name']}")

    def _publish(self, obj: Object, wanted: int) -> None:
        pods = [pod for pod in self.cluster.mirror.owned(obj, "pods") if not is_ending(pod)]
        ready = [pod for pod in pods if is_true(pod, "Ready")]
        workers = [pod for pod in ready if labels(pod).get("ray.io/node-type") == ray_pods.WORKER]
        name = obj["metadata"]["name"]
        status: dict[str, Any] = {
            "desiredWorkerReplicas": wanted - 1,
            "readyWorkerReplicas": len(workers),
            "availableWorkerReplicas": len(workers),
            "head": {"serviceName": f"{name}-head-svc"},
            "observedGeneration": obj["metadata"]["generation"],
        }
        if len(ready) >= wanted:
            status["state"] = "ready"
        self.cluster.patch_status(self.resource, obj, status)
