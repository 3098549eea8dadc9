"""A cluster in this process, used through the official client, and pods for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes import client

from cloudrec_sandbox.core.client import Control
from cloudrec_sandbox.kubernetes import serve

IMAGE = "registry.example.com/team/cloudrec-trainer:1"
NAMESPACE = "default"
_WAIT_S = 120.0
_LEAST_BAD_STATUS = 400


class Cluster:
    """The stand-in with the calls that tests make; answers are plain JSON."""

    def __init__(self, announcement: dict[str, Any]) -> None:
        self.announcement = announcement
        self._control = Control.of(announcement)
        configuration = client.Configuration(host=self._control.address)
        configuration.ssl_ca_cert = announcement["certificate_authority"]
        configuration.api_key = {"authorization": f"Bearer {announcement['token']}"}
        self.api = client.ApiClient(configuration)
        self.core = client.CoreV1Api(self.api)
        self.batch = client.BatchV1Api(self.api)
        self.custom = client.CustomObjectsApi(self.api)

    def control(self, **wishes: Any) -> Any:
        return self._control.order(**wishes)

    def apply(self, obj: dict[str, Any]) -> None:
        """Create any object."""
        group = obj["apiVersion"]
        prefix = f"/apis/{group}" if "/" in group else f"/api/{group}"
        place = "" if obj["kind"] in CLUSTER_WIDE else f"/namespaces/{NAMESPACE}"
        self._call(f"{prefix}{place}/{obj['kind'].lower()}s", "POST", obj)

    def patch(self, path: str, body: dict[str, Any]) -> None:
        self._call(path, "PATCH", body)

    def get(self, path: str) -> Any:
        return self._call(path, "GET", None)

    def delete(self, path: str) -> None:
        self._call(path, "DELETE", None)

    def _call(self, path: str, method: str, body: Any) -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = self.api.param_serialize(
            method,
            path,
            header_params={"Content-Type": kind, "Accept": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
        )
        reply = self.api.call_api(*request)
        data = reply.read()
        if reply.status >= _LEAST_BAD_STATUS:
            raise AssertionError(f"{method} {path}: {data.decode()}")
        return json.loads(data)

    def pods(self, **labels: str) -> list[dict[str, Any]]:
        selector = (
            "&labelSelector=" + ",".join(f"{name}={value}" for name, value in labels.items())
            if labels
            else ""
        )
        found: list[dict[str, Any]] = self.get(f"/api/v1/namespaces/{NAMESPACE}/pods?limit=2000{selector}")[
            "items"
        ]
        return found

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
        return found

    def job(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}")
        return {"status": {}, **found}

    def pods_have_networks(self) -> bool:
        """Whether each pod has its own network."""
        return all(
            each["status"]["podIP"].startswith("10.") for each in self.pods() if each["status"].get("podIP")
        )

    def log(self, pod: str, **options: Any) -> str:
        text: str = self.core.read_namespaced_pod_log(pod, NAMESPACE, **options)
        return text

    def events(self, reason: str) -> list[str]:
        found = self.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
        return [event["message"] for event in found if event["reason"] == reason]


CLUSTER_WIDE = ("Node", "ClusterTrainingRuntime")


def wait(condition: Callable[[], Any], *, what: str, timeout_s: float = _WAIT_S) -> Any:
    """The first result of `condition` that is not empty."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.03)
    raise AssertionError(f"{what} did not come about in {timeout_s:g} s")


@contextmanager
def running() -> Iterator[Cluster]:
    """A stand-in served from a thread."""
    server = serve(0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Cluster(server.announcement())
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def pod(name: str, *command: str, **spec: Any) -> dict[str, Any]:
    """A pod of one container that is not started again."""
    container = {"name": "main", "image": IMAGE, "command": list(command), **spec.pop("container", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": spec.pop("labels", {})},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        },
    }


def job(name: str, *command: str, pods: int = 1, **spec: Any) -> dict[str, Any]:
    """An Indexed Job of pods like `pod`'s, each labelled run=NAME."""
    template = pod(name, *command, labels={"run": name}, **spec.pop("pod", {}))
    template["spec"]["subdomain"] = name
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": {"run": name}}, "spec": template["spec"]},
            **spec,
        },
    }


def service(name: str) -> dict[str, Any]:
    """The headless Service that gives a job's pods their names."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "clusterIP": "None",
            "selector": {"run": name},
            "publishNotReadyAddresses": True,
            "ports": [{"name": "rdzv", "port": 29400}],
        },
    }


def state(pod: dict[str, Any], name: str = "main") -> dict[str, Any]:
    """A container's state."""
    status = pod.get("status", {})
    statuses = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
    return next((dict(each["state"]) for each in statuses if each["name"] == name), {})


def conditions(obj: dict[str, Any]) -> dict[str, str]:
    """The conditions that hold, with their reasons."""
    found = obj.get("status", {}).get("conditions") or ()
    return {each["type"]: each.get("reason", "") for each in found if each["status"] == "True"}
