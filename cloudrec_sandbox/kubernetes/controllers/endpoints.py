"""EndpointSlices of Services: the addresses of a Service's pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.kubernetes.controllers.base import Controller
from cloudrec_sandbox.kubernetes.storage.mirror import is_ending, is_over, is_true, key_of, labels

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec_sandbox.kubernetes.storage.mirror import Key, Object


class EndpointsController(Controller):
    """Keeps a slice for each Service."""

    resource: ClassVar[str] = "services"
    kind: ClassVar[str] = "Service"
    source: ClassVar[str] = "endpoint-slice-controller"

    def look(self, obj: Object) -> None:
        """Update a Service's slice."""
        selector = obj["spec"].get("selector")
        if not selector or is_ending(obj):
            return
        space, name = key_of(obj)
        pods = self.cluster.mirror.selected(space, selector)
        endpoints = [
            self._endpoint(pod, obj)
            for pod in pods
            if pod.get("status", {}).get("podIP") and not is_over(pod)
        ]
        ports = [
            {"name": port.get("name", ""), "port": port["port"], "protocol": port.get("protocol", "TCP")}
            for port in obj["spec"].get("ports") or ()
        ]
        own = f"{name}-endpoints"
        if self.cluster.mirror.get("endpointslices", space, own) is None:
            metadata = {"name": own, "labels": {"kubernetes.io/service-name": name}}
            body = {"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": ports}
            self.make(obj, "endpointslices", body)
        else:
            change = {"endpoints": endpoints, "ports": ports}
            self.cluster.attempt(lambda: self.cluster.store.patch("endpointslices", space, own, change))

    def concerned(self, resource: str, obj: Object) -> Iterable[Key]:
        """Return the Services that select a changed pod."""
        if resource != "pods":
            return ()
        return [
            key_of(each)
            for each in self.cluster.mirror.all(self.resource, obj["metadata"]["namespace"])
            if each["spec"].get("selector") and each["spec"]["selector"].items() <= labels(obj).items()
        ]

    @staticmethod
    def _endpoint(pod: Object, service: Object) -> dict[str, Any]:
        is_ready = is_true(pod, "Ready") or bool(service["spec"].get("publishNotReadyAddresses"))
        metadata = pod["metadata"]
        return {
            "addresses": [pod["status"]["podIP"]],
            "conditions": {
                "ready": is_ready and not is_ending(pod),
                "serving": is_ready,
                "terminating": is_ending(pod),
            },
            "nodeName": pod["spec"]["nodeName"],
            "targetRef": {
                "kind": "Pod",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            **({"hostname": pod["spec"]["hostname"]} if pod["spec"].get("hostname") else {}),
        }
