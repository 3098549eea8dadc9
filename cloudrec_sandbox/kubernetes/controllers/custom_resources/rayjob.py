"""RayJobs of KubeRay: a RayCluster, and a job submitted to it, whose state the operator polls.

The pods run Ray itself, so a RayJob needs Ray in the sandbox's Python, and pods with separate networks.
Without these it fails with a message that says so.
"""

from __future__ import annotations

import http.client
import json
import secrets
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.kubernetes.controllers.custom_resources import ray_pods
from cloudrec_sandbox.kubernetes.controllers.custom_resources.operated import OperatedController
from cloudrec_sandbox.kubernetes.kubelet.pods.environment import contents
from cloudrec_sandbox.kubernetes.objects.table import copied
from cloudrec_sandbox.kubernetes.storage.mirror import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec_sandbox.kubernetes.storage.mirror import Key, Object

_ENDS = {"SUCCEEDED": "Complete", "FAILED": "Failed", "STOPPED": "Complete"}
_LOOK_S = 1.0
_TIMEOUT_S = 5.0


class RayJobController(OperatedController):
    """Controls RayJobs."""

    resource: ClassVar[str] = "rayjobs"
    kind: ClassVar[str] = "RayJob"
    source: ClassVar[str] = "rayjob-controller"
    operator: ClassVar[str] = "rayjob"

    def operate(self, obj: Object) -> None:
        """Bring a RayJob one step further."""
        status = obj.get("status") or {}
        if status.get("jobDeploymentStatus") in ("Complete", "Failed"):
            self._clean_up(obj, status)
        elif obj["spec"].get("suspend"):
            self._suspend(obj, status)
        elif problem := self._problem(obj, status):
            self._end(obj, "Failed", **problem)
        elif status.get("jobDeploymentStatus") in (None, "", "Suspended"):
            self._begin(obj)
        else:
            self._follow(obj, status)

    def _problem(self, obj: Object, status: dict[str, Any]) -> dict[str, Any]:
        """Return why it cannot continue, as members of the status; empty if it can."""
        why = ""
        if find_spec("ray") is None:
            why = "ray is not installed where the sandbox runs"
        elif not self.operators.network.has_own:
            why = "Ray needs pods with separate networks, which only root can make"
        if why:
            self.record(obj, "FailedToCreateRayCluster", why, warning=True)
            message = f"the Ray cluster did not come up: {why}"
            return {"reason": "SubmissionFailed", "message": message, "jobStatus": "FAILED"}
        limit = obj["spec"].get("activeDeadlineSeconds")
        if limit is None or not status.get("startTime"):
            return {}
        left = seconds(status["startTime"]) + limit - self.cluster.now()
        if left > 0:
            self.look_later(obj, left)
            return {}
        return {"reason": "DeadlineExceeded", "message": "The RayJob has passed the activeDeadlineSeconds."}

    def _begin(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        cluster = f"{name}-{secrets.token_hex(3)[:5]}"
        body = {"metadata": {"name": cluster}, "spec": copied(obj["spec"]["rayClusterSpec"])}
        if self.make(obj, "rayclusters", body) is None:
            return
        self.record(obj, "CreatedRayCluster", f"Created RayCluster {cluster}")
        status = {
            "jobDeploymentStatus": "Initializing",
            "jobStatus": None,
            "jobId": obj["spec"].get("jobId") or f"{name}-{secrets.token_hex(3)[:5]}",
            "rayClusterName": cluster,
            "startTime": self.cluster.timestamp(),
            "endTime": None,
        }
        self.cluster.patch_status(self.resource, obj, status)

    def _follow(self, obj: Object, status: dict[str, Any]) -> None:
        """Submit the job once the cluster is ready, and then poll its state.

        A job that the cluster does not know is submitted again with its old id: a head that was
        created again has forgotten it.
        """
        space = obj["metadata"]["namespace"]
        cluster = self.cluster.mirror.get("rayclusters", space, status["rayClusterName"])
        if cluster is None or cluster.get("status", {}).get("state") != "ready":
            return
        if status["jobDeploymentStatus"] == "Initializing":
            self.cluster.patch_status(self.resource, obj, {"jobDeploymentStatus": "Running"})
            return  # the change of the status leads to the next look
        wish = {"entrypoint": obj["spec"]["entrypoint"], "submission_id": status["jobId"]}
        if obj["spec"].get("metadata"):
            wish["metadata"] = obj["spec"]["metadata"]
        key: Key = (space, obj["metadata"]["name"])
        ask = partial(self._call, self._head(cluster), self._token(cluster))
        self.operators.network.pool.submit(lambda: self._answered(key, wish, ask))

    def _answered(
        self, key: Key, wish: dict[str, Any], ask: Callable[[str, str | None], tuple[int, Any]]
    ) -> None:
        """Ask Ray for the job, submit it if unknown, pass on the answer; in a thread of the pods' network."""
        job = str(wish["submission_id"])
        code, document = ask(f"/api/jobs/{job}", None)
        if code == http.HTTPStatus.NOT_FOUND:
            code, document = ask("/api/jobs/", json.dumps(wish))
            document = {"status": "PENDING", "message": ""} if code == http.HTTPStatus.OK else document
        self.worker.soon(("rayjob-answer", key), partial(self._take, key, job, (code, document)))

    # The answer may be of a job that has been suspended or ended since.
    def _take(self, key: Key, job: str, answer: tuple[int, Any]) -> None:
        with self.cluster.store.lock:
            obj = self.cluster.mirror.get(self.resource, *key)
            status = (obj or {}).get("status") or {}
            if obj is None or status.get("jobId") != job or status["jobDeploymentStatus"] in _ENDS.values():
                return
            code, document = answer
            if code == http.HTTPStatus.OK:
                self._take_state(obj, status, document)
            self.look_later(obj, _LOOK_S)  # as in the operator, a refusal or no answer does not end the job

    def _take_state(self, obj: Object, status: dict[str, Any], document: dict[str, Any]) -> None:
        state, message = document["status"], document.get("message") or ""
        if state in _ENDS:
            reason = {"reason": "AppFailed"} if state == "FAILED" else {}
            self._end(obj, _ENDS[state], jobStatus=state, message=message, **reason)
        elif state != status.get("jobStatus") or message != status.get("message"):
            self.cluster.patch_status(self.resource, obj, {"jobStatus": state, "message": message})

    def _end(self, obj: Object, how: str, **more: str) -> None:
        status: dict[str, Any] = {"jobDeploymentStatus": how, "endTime": self.cluster.timestamp(), **more}
        known = obj.get("status") or {}
        status["succeeded"] = int(how == "Complete" and more.get("jobStatus") == "SUCCEEDED")
        status["failed"] = int(how == "Failed")
        status["startTime"] = known.get("startTime") or status["endTime"]
        self.cluster.patch_status(self.resource, obj, status)

    def _suspend(self, obj: Object, status: dict[str, Any]) -> None:
        clusters = self.cluster.mirror.owned(obj, "rayclusters")
        for each in clusters:
            self.remove("rayclusters", each)
            for pod in self.cluster.mirror.owned(each, "pods"):
                self.remove("pods", pod)
        how = "Suspending" if clusters else "Suspended"
        if status.get("jobDeploymentStatus") != how:
            self.cluster.patch_status(
                self.resource, obj, {"jobDeploymentStatus": how, "jobStatus": None, "jobId": None}
            )

    def _clean_up(self, obj: Object, status: dict[str, Any]) -> None:
        if not obj["spec"].get("shutdownAfterJobFinishes"):
            return
        left = (
            seconds(status["endTime"])
            + int(obj["spec"].get("ttlSecondsAfterFinished") or 0)
            - self.cluster.now()
        )
        if left > 0:
            self.look_later(obj, left)
            return
        for cluster in self.cluster.mirror.owned(obj, "rayclusters"):
            self.remove("rayclusters", cluster)

    def _head(self, cluster: Object) -> str:
        space = cluster["metadata"]["namespace"]
        heads = self.cluster.mirror.selected(space, ray_pods.selector(cluster, ray_pods.HEAD))
        return next(
            (
                str(pod["status"].get("podIP", ""))
                for pod in heads
                if "deletionTimestamp" not in pod["metadata"]
            ),
            "",
        )

    def _token(self, cluster: Object) -> str:
        secret = next(iter(self.cluster.mirror.owned(cluster, "secrets")), None)
        return next(iter(contents(secret).values()), b"").decode() if secret else ""

    @staticmethod
    def _call(host: str, token: str, path: str, body: str | None) -> tuple[int, Any]:
        """Return the dashboard's status and document; status 0 if it did not answer."""
        connection = http.client.HTTPConnection(host, ray_pods.DASHBOARD_PORT, timeout=_TIMEOUT_S)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            connection.request("POST" if body else "GET", path, body, headers)
            reply = connection.getresponse()
            text = reply.read().decode(errors="replace")
            return reply.status, json.loads(text) if reply.status == http.HTTPStatus.OK else text
        except (OSError, http.client.HTTPException, ValueError) as error:
            return 0, str(error)
        finally:
            connection.close()
