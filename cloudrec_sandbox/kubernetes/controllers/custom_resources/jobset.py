"""JobSets: Jobs that start, fail and are started again together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.kubernetes.controllers.custom_resources.operated import OperatedController
from cloudrec_sandbox.kubernetes.objects.table import copied
from cloudrec_sandbox.kubernetes.storage.mirror import condition, is_true, with_conditions

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.storage.mirror import Object

_PREFIX = "jobset.sigs.k8s.io"
_ENDS = ("Completed", "Failed")


class JobSetController(OperatedController):
    """Controls JobSets."""

    resource: ClassVar[str] = "jobsets"
    kind: ClassVar[str] = "JobSet"
    source: ClassVar[str] = "jobset-controller"
    operator: ClassVar[str] = "jobset"

    def look(self, obj: Object) -> None:
        """Act also while Trainer runs, which brings this controller with it."""
        # Kubeflow Trainer makes JobSets, so its installation contains this controller.
        if self.operators.works("trainjob") and not self.operators.works(self.operator):
            self.operate(obj)
        else:
            super().look(obj)

    def operate(self, obj: Object) -> None:
        """Bring a JobSet one step further."""
        jobs = self.cluster.mirror.owned(obj, "jobs")
        restarts = int(obj.get("status", {}).get("restarts") or 0)
        current = [job for job in jobs if _attempt(job) == restarts]
        status: dict[str, Any] = {"restarts": restarts, "replicatedJobsStatus": _counts(obj, current)}
        if any(is_true(obj, kind) for kind in _ENDS):
            self.cluster.patch_status(self.resource, obj, status)
            return
        # A restart replaces all jobs together: those of earlier attempts are removed.
        for job in jobs:
            if _attempt(job) != restarts:
                self.remove("jobs", job)
        self._keep_service(obj)
        wishes = self._judge(obj, current, status)
        if not any(wish["type"] in _ENDS for wish in wishes):
            self._keep_jobs(obj, jobs, restarts)
        status["conditions"] = with_conditions(obj, wishes, self.cluster.timestamp())
        self.cluster.patch_status(self.resource, obj, status)

    def _judge(self, obj: Object, jobs: list[Object], status: dict[str, Any]) -> list[dict[str, Any]]:
        wishes = []
        is_suspended = bool(obj["spec"].get("suspend"))
        if is_suspended or condition(obj, "Suspended"):
            reason = "SuspendedJobs" if is_suspended else "ResumeJobs"
            words = "jobset is suspended" if is_suspended else "jobset is resumed"
            wishes.append(
                {"type": "Suspended", "status": str(is_suspended), "reason": reason, "message": words}
            )
        failed = [job for job in jobs if is_true(job, "Failed")]
        if failed:
            most = int((obj["spec"].get("failurePolicy") or {}).get("maxRestarts") or 0)
            if status["restarts"] < most:
                status["restarts"] += 1
                self.record(
                    obj, "Restarting", f"restarting jobset, attempt: {status['restarts']}", warning=True
                )
                # The next look makes the jobs of the new attempt.
                return wishes
            name = failed[0]["metadata"]["name"]
            reason = "ReachedMaxRestarts" if most else "FailedJobs"
            words = f"jobset failed due to one or more job failures (first failed job: {name})"
            wishes.append({"type": "Failed", "status": "True", "reason": reason, "message": words})
            status["terminalState"] = "Failed"
        elif jobs and len(jobs) == _wanted(obj) and all(is_true(job, "Complete") for job in jobs):
            words = "jobset completed successfully"
            wishes.append(
                {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": words}
            )
            status["terminalState"] = "Completed"
            self.record(obj, "AllJobsCompleted", words)
        return wishes

    def _keep_jobs(self, obj: Object, jobs: list[Object], restarts: int) -> None:
        known = {job["metadata"]["name"]: job for job in jobs}
        is_suspended = bool(obj["spec"].get("suspend"))
        # A job's name has no attempt in it: a new one cannot be made before the old one is gone.
        for replicated in obj["spec"].get("replicatedJobs") or ():
            for index in range(int(replicated.get("replicas", 1))):
                name = f"{obj['metadata']['name']}-{replicated['name']}-{index}"
                job = known.get(name)
                if job is None:
                    self.make(obj, "jobs", self._job(obj, replicated, index, restarts))
                elif bool(job["spec"].get("suspend")) != is_suspended and _attempt(job) == restarts:
                    self._suspend(obj, job, suspend=is_suspended)

    def _suspend(self, obj: Object, job: Object, *, suspend: bool) -> None:
        metadata = job["metadata"]
        change = {"spec": {"suspend": suspend}}
        self.cluster.attempt(
            lambda: self.cluster.store.patch("jobs", obj["metadata"]["namespace"], metadata["name"], change)
        )

    def _job(self, obj: Object, replicated: dict[str, Any], index: int, restarts: int) -> dict[str, Any]:
        template = copied(replicated["template"])
        metadata = template.get("metadata") or {}
        own = {
            f"{_PREFIX}/jobset-name": obj["metadata"]["name"],
            f"{_PREFIX}/jobset-uid": obj["metadata"]["uid"],
            f"{_PREFIX}/replicatedjob-name": replicated["name"],
            f"{_PREFIX}/replicatedjob-replicas": str(replicated.get("replicas", 1)),
            f"{_PREFIX}/job-index": str(index),
            f"{_PREFIX}/restart-attempt": str(restarts),
        }
        spec = template["spec"]
        pod = spec["template"]
        pod_metadata = pod.setdefault("metadata", {}) or {}
        pod["metadata"] = {**pod_metadata, "labels": {**(pod_metadata.get("labels") or {}), **own}}
        pod["spec"].setdefault("restartPolicy", "OnFailure")
        pod["spec"].setdefault("subdomain", _subdomain(obj))
        spec.setdefault("completionMode", "Indexed")
        spec["suspend"] = bool(obj["spec"].get("suspend"))
        return {
            "metadata": {
                "name": f"{obj['metadata']['name']}-{replicated['name']}-{index}",
                "labels": {**(metadata.get("labels") or {}), **own},
                **({"annotations": metadata["annotations"]} if metadata.get("annotations") else {}),
            },
            "spec": spec,
        }

    def _keep_service(self, obj: Object) -> None:
        network = obj["spec"].get("network") or {}
        if network.get("enableDNSHostnames", True) and not self.cluster.mirror.owned(obj, "services"):
            spec = {
                "clusterIP": "None",
                "selector": {f"{_PREFIX}/jobset-name": obj["metadata"]["name"]},
                "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True),
            }
            self.make(obj, "services", {"metadata": {"name": _subdomain(obj)}, "spec": spec})


def _subdomain(obj: Object) -> str:
    return str((obj["spec"].get("network") or {}).get("subdomain") or obj["metadata"]["name"])


def _attempt(job: Object) -> int:
    return int((job["metadata"].get("labels") or {}).get(f"{_PREFIX}/restart-attempt", 0))


def _wanted(obj: Object) -> int:
    return sum(int(each.get("replicas", 1)) for each in obj["spec"].get("replicatedJobs") or ())


def _counts(obj: Object, jobs: list[Object]) -> list[dict[str, Any]]:
    found = []
    for replicated in obj["spec"].get("replicatedJobs") or ():
        own = [
            job
            for job in jobs
            if (job["metadata"].get("labels") or {}).get(f"{_PREFIX}/replicatedjob-name")
            == replicated["name"]
        ]
        found.append(
            {
                "name": replicated["name"],
                "ready": sum(_is_ready(job) for job in own),
                "succeeded": sum(is_true(job, "Complete") for job in own),
                "failed": sum(is_true(job, "Failed") for job in own),
                "active": sum(bool(job.get("status", {}).get("active")) for job in own),
                "suspended": sum(is_true(job, "Suspended") for job in own),
            }
        )
    return found


def _is_ready(job: Object) -> bool:
    status, spec = job.get("status", {}), job["spec"]
    wanted = min(int(spec.get("parallelism") or 1), int(spec.get("completions") or 1))
    return int(status.get("ready") or 0) + int(status.get("succeeded") or 0) >= wanted
