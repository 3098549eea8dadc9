"""PyTorchJobs, as the training operator controls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.kubernetes.controllers.custom_resources import pytorch_env
from cloudrec_sandbox.kubernetes.controllers.custom_resources.operated import OperatedController
from cloudrec_sandbox.kubernetes.objects.table import copied
from cloudrec_sandbox.kubernetes.storage.mirror import (
    is_ending,
    is_over,
    is_true,
    phase,
    seconds,
    with_conditions,
)

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.storage.mirror import Object

_PREFIX = "training.kubeflow.org"
# The operator's ExitCode policy restarts a pod only if its exit code is 128 or above: it died by a signal.
_FIRST_RETRYABLE_CODE = 128
_UNKNOWN_CODE = 0xBEEF


class PyTorchJobController(OperatedController):
    """Controls PyTorchJobs."""

    resource: ClassVar[str] = "pytorchjobs"
    kind: ClassVar[str] = "PyTorchJob"
    source: ClassVar[str] = "pytorchjob-controller"
    operator: ClassVar[str] = "pytorchjob"

    def operate(self, obj: Object) -> None:
        """Bring a PyTorchJob one step further."""
        status = self._status(obj)
        if not status["conditions"]:
            self._set(
                obj, status, "Created", "PyTorchJobCreated", f"PyTorchJob {self._name(obj)} is created."
            )
        if self._is_finished(status):
            self._clean_up(obj, status)
        elif (obj["spec"].get("runPolicy") or {}).get("suspend"):
            self._suspend(obj, status)
        else:
            self._run(obj, status)
        self.cluster.patch_status(self.resource, obj, status)

    def _run(self, job: Object, status: dict[str, Any]) -> None:
        name = self._name(job)
        if self._holds(status, "Suspended"):
            status["startTime"] = self.cluster.timestamp()
            self._set(
                job, status, "Suspended", "PyTorchJobResumed", f"PyTorchJob {name} is resumed.", value="False"
            )
        status.setdefault("startTime", self.cluster.timestamp())
        if problem := self._exceeded(job, status):
            for pod in self.cluster.mirror.owned(job, "pods"):
                self.remove("pods", pod)
            self._fail(job, status, problem)
            return
        counts = {}
        for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
            counts[role] = self._keep_replicas(job, status, role, replica)
            self._keep_services(job, role, replica)
        status["replicaStatuses"] = counts
        if not self._is_finished(status):
            self._judge(job, status, counts)

    def _keep_replicas(
        self, job: Object, status: dict[str, Any], role: str, replica: dict[str, Any]
    ) -> dict[str, Any]:
        pods = {pod["metadata"]["name"]: pod for pod in self.cluster.mirror.owned(job, "pods")}
        count: dict[str, Any] = {
            "active": 0,
            "succeeded": 0,
            "failed": 0,
            "selector": self._selector(job, role),
        }
        for index in range(int(replica.get("replicas", 1))):
            name = f"{self._name(job)}-{role.lower()}-{index}"
            pod = pods.get(name)
            if pod is None:
                made = self.make(job, "pods", self._pod(job, role, index, replica))
                if made is not None:
                    self.record(job, "SuccessfulCreatePod", f"Created pod: {name}")
                continue
            if phase(pod) == "Failed" and not is_ending(pod):
                self._after_failure(job, status, role, replica, pod)
            kind = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}.get(phase(pod))
            if kind:
                count[kind] += 1
        wanted = {
            f"{self._name(job)}-{role.lower()}-{index}" for index in range(int(replica.get("replicas", 1)))
        }
        for name, pod in pods.items():
            if name.startswith(f"{self._name(job)}-{role.lower()}-") and name not in wanted:
                self.remove("pods", pod)
        return {name: value or None for name, value in count.items()}

    def _after_failure(
        self, job: Object, status: dict[str, Any], role: str, replica: dict[str, Any], pod: Object
    ) -> None:
        policy = replica.get("restartPolicy", "Never")
        code = _exit_code(pod)
        if policy in ("OnFailure", "Always") or (policy == "ExitCode" and code >= _FIRST_RETRYABLE_CODE):
            self.remove("pods", pod)
            text = f"job {self._name(job)} is restarting because {role} replica(s) failed."
            self.record(job, "PyTorchJobRestarting", text, warning=True)
            self._set(job, status, "Restarting", "PyTorchJobRestarting", text)
            return
        text = f"PyTorchJob {self._name(job)} is failed because 1 {role} replica(s) failed."
        if policy == "ExitCode":
            text = f'job "{self._name(job)}" is failing because "{role}" replica(s) failed.'
        self._fail(job, status, text)

    def _judge(self, job: Object, status: dict[str, Any], counts: dict[str, dict[str, Any]]) -> None:
        # The master's success decides; a job without a master is decided by its workers.
        role = "Master" if "Master" in counts else "Worker"
        wanted = int(job["spec"]["pytorchReplicaSpecs"][role].get("replicas", 1))
        name = self._name(job)
        if (counts[role].get("succeeded") or 0) >= wanted:
            text = f"PyTorchJob {name} is successfully completed."
            self.record(job, "PyTorchJobSucceeded", text)
            status.setdefault("completionTime", self.cluster.timestamp())
            self._set(job, status, "Succeeded", "PyTorchJobSucceeded", text)
        elif counts[role].get("active"):
            self._set(job, status, "Running", "PyTorchJobRunning", f"PyTorchJob {name} is running.")

    def _suspend(self, job: Object, status: dict[str, Any]) -> None:
        for resource in ("pods", "services"):
            for each in self.cluster.mirror.owned(job, resource):
                self.remove(resource, each)
        for count in (status.get("replicaStatuses") or {}).values():
            count["active"] = None
        text = f"PyTorchJob {self._name(job)} is suspended."
        if not self._holds(status, "Suspended"):
            self.record(job, "PyTorchJobSuspended", text)
            if self._holds(status, "Running"):
                self._set(job, status, "Running", "PyTorchJobSuspended", text, value="False")
            self._set(job, status, "Suspended", "PyTorchJobSuspended", text)

    def _clean_up(self, job: Object, status: dict[str, Any]) -> None:
        policy = job["spec"].get("runPolicy") or {}
        kept = policy.get("cleanPodPolicy") or "None"
        for pod in self.cluster.mirror.owned(job, "pods") if kept != "None" else ():
            if kept == "All" or not is_over(pod):
                self.remove("pods", pod)
        for count in (status.get("replicaStatuses") or {}).values():
            if self._holds(status, "Succeeded") and count.get("active"):
                count["succeeded"] = (count.get("succeeded") or 0) + count["active"]
                count["active"] = None
        kept_s = policy.get("ttlSecondsAfterFinished")
        if kept_s is not None:
            left = seconds(status["completionTime"]) + kept_s - self.cluster.now()
            if left > 0:
                self.look_later(job, left)
            else:
                self.remove(self.resource, job)

    def _exceeded(self, job: Object, status: dict[str, Any]) -> str:
        """Return why the job has run too long or failed too often; '' if neither."""
        policy = job["spec"].get("runPolicy") or {}
        name = self._name(job)
        limit, deadline = policy.get("backoffLimit"), policy.get("activeDeadlineSeconds")
        pods = self.cluster.mirror.owned(job, "pods")
        restarts = sum(
            int(each["restartCount"])
            for pod in pods
            if phase(pod) == "Running"
            for each in pod["status"].get("containerStatuses") or ()
        )
        if limit is not None and restarts and restarts >= limit:
            return f"Job {name} has failed because it has reached the specified backoff limit"
        if deadline is not None:
            left = seconds(status["startTime"]) + deadline - self.cluster.now()
            if left <= 0:
                return f"Job {name} has failed because it was active longer than specified deadline"
            self.look_later(job, left)
        return ""

    def _fail(self, job: Object, status: dict[str, Any], text: str) -> None:
        self.record(job, "PyTorchJobFailed", text, warning=True)
        status.setdefault("completionTime", self.cluster.timestamp())
        self._set(job, status, "Failed", "PyTorchJobFailed", text)

    def _pod(self, job: Object, role: str, index: int, replica: dict[str, Any]) -> dict[str, Any]:
        template = copied(replica["template"])
        metadata = template.get("metadata") or {}
        own = {**self._selector_labels(job, role), f"{_PREFIX}/replica-index": str(index)}
        if role == "Master":
            own[f"{_PREFIX}/job-role"] = "master"
        spec = template["spec"]
        policy = replica.get("restartPolicy", "Never")
        # ExitCode is the operator's own policy: the kubelet must not restart the container.
        spec["restartPolicy"] = "Never" if policy == "ExitCode" else policy
        for container in spec["containers"]:
            known = {each["name"] for each in container.get("env") or ()}
            more = [each for each in pytorch_env.variables(job, role, index) if each["name"] not in known]
            container["env"] = [*(container.get("env") or ()), *more]
        return {
            "metadata": {
                "name": f"{self._name(job)}-{role.lower()}-{index}",
                "labels": {**(metadata.get("labels") or {}), **own},
                **({"annotations": metadata["annotations"]} if metadata.get("annotations") else {}),
            },
            "spec": spec,
        }

    def _keep_services(self, job: Object, role: str, replica: dict[str, Any]) -> None:
        known = {each["metadata"]["name"] for each in self.cluster.mirror.owned(job, "services")}
        for index in range(int(replica.get("replicas", 1))):
            name = f"{self._name(job)}-{role.lower()}-{index}"
            if name in known:
                continue
            selector = {**self._selector_labels(job, role), f"{_PREFIX}/replica-index": str(index)}
            port = {"name": pytorch_env.PORT_NAME, "port": pytorch_env.port_of(replica)}
            self.make(
                job,
                "services",
                {
                    "metadata": {"name": name, "labels": selector},
                    "spec": {"clusterIP": "None", "selector": selector, "ports": [port]},
                },
            )
            self.record(job, "SuccessfulCreateService", f"Created service: {name}")

    def _selector_labels(self, job: Object, role: str) -> dict[str, str]:
        return {
            f"{_PREFIX}/operator-name": self.source,
            f"{_PREFIX}/job-name": self._name(job),
            f"{_PREFIX}/replica-type": role.lower(),
        }

    def _selector(self, job: Object, role: str) -> str:
        return ",".join(f"{name}={value}" for name, value in sorted(self._selector_labels(job, role).items()))

    @staticmethod
    def _status(job: Object) -> dict[str, Any]:
        status: dict[str, Any] = copied(job.get("status") or {})
        status.setdefault("conditions", [])
        return status

    @staticmethod
    def _name(job: Object) -> str:
        return str(job["metadata"]["name"])

    @staticmethod
    def _holds(status: dict[str, Any], kind: str) -> bool:
        return is_true({"status": status}, kind)

    def _is_finished(self, status: dict[str, Any]) -> bool:
        return self._holds(status, "Succeeded") or self._holds(status, "Failed")

    def _set(
        self,
        _job: Object,
        status: dict[str, Any],
        kind: str,
        reason: str,
        message: str,
        *,
        value: str = "True",
    ) -> None:
        """Set a condition; Running and Restarting replace each other, and an end makes Running false."""
        rival = {"Running": "Restarting", "Restarting": "Running"}.get(kind)
        status["conditions"] = [each for each in status["conditions"] if each["type"] != rival]
        wishes = [{"type": kind, "status": value, "reason": reason, "message": message}]
        if kind in ("Succeeded", "Failed") and self._holds(status, "Running"):
            wishes.append({"type": "Running", "status": "False", "reason": reason, "message": message})
        now = self.cluster.timestamp()
        if not any(each["type"] == kind and each["status"] == value for each in status["conditions"]):
            status["conditions"] = with_conditions({"status": status}, wishes, now)
            for each in status["conditions"]:
                each.setdefault("lastUpdateTime", now)


def _exit_code(pod: Object) -> int:
    for each in pod["status"].get("containerStatuses") or ():
        ended = (each.get("state") or {}).get("terminated")
        if each["name"] == pytorch_env.CONTAINER and ended:
            return int(ended["exitCode"])
    return _UNKNOWN_CODE
