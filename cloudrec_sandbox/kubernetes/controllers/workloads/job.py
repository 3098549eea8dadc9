"""Jobs: pods for each completion, counted as they end, until the Job has succeeded or failed.

The rules are those of Kubernetes' own controller, pkg/controller/job in kubernetes/kubernetes:
job_controller.go decides when a Job ends, backoff_utils.go and indexed_job_utils.go when a pod is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.kubernetes.controllers.base import Controller
from cloudrec_sandbox.kubernetes.controllers.workloads import job_pods as pods_of
from cloudrec_sandbox.kubernetes.controllers.workloads.job_policy import (
    FAIL_INDEX,
    FAIL_JOB,
    IGNORE,
    meets_success_policy,
    parsed,
    verdict,
    written,
)
from cloudrec_sandbox.kubernetes.controllers.workloads.job_view import View
from cloudrec_sandbox.kubernetes.storage.mirror import condition, is_ending, is_true, key_of, phase, seconds

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.storage.mirror import Key, Object

_BACKOFF_S, _LONGEST_BACKOFF_S = 10.0, 600.0
_DEFAULT_BACKOFF_LIMIT = 6
_OWN_NAME = "kubernetes.io/job-controller"
_WHOLE_JOB = -1  # index of failures that count for the Job as a whole
_NO_LIMIT = 10**9
_EVENT_PODS = 5000  # more creations at once are not reported one by one
_BATCH = 100  # pods created at a time, so that other callers do not wait long


@dataclass
class _Failures:
    """The failures of a Job since its last success; with backoffLimitPerIndex, those of one index."""

    counted: int = 0
    ignored: int = 0  # by the pod failure policy; they delay the next pod, too
    until: float = 0.0  # no new pod before this virtual moment

    def add(self, now: float, *, ignored: bool) -> None:
        """Count a failure; the wait doubles with each (getRemainingTimeForFailuresCount)."""
        self.counted += not ignored
        self.ignored += ignored
        wait = _BACKOFF_S * 2 ** (self.counted + self.ignored - 1)
        self.until = now + min(wait, _LONGEST_BACKOFF_S)

    def annotations(self) -> dict[str, int]:
        """Return the annotations of the index's next pod (addIndexFailureCountAnnotation)."""
        ignored = {pods_of.IGNORED_FAILURES: self.ignored} if self.ignored else {}
        return {pods_of.FAILURES: self.counted, **ignored}


class JobController(Controller):
    """Controls Jobs."""

    resource: ClassVar[str] = "jobs"
    kind: ClassVar[str] = "Job"
    source: ClassVar[str] = "job-controller"
    _failures: dict[tuple[str, int], _Failures]  # by the Job's uid and the index, -1 for the Job's own

    def look(self, obj: Object) -> None:
        """Bring a Job one step further."""
        if not hasattr(self, "_failures"):
            self._failures = {}
        # Another controller keeps such a Job, and this one ignores it (Kubernetes, "Delegation of managing a
        # Job object to external controller").
        if obj["spec"].get("managedBy", _OWN_NAME) != _OWN_NAME:
            return
        if is_ending(obj):
            # A finalizer holds each pod until it is counted, so a Job's end must release those that remain.
            self._release(self.cluster.mirror.owned(obj, "pods"))
            return
        if is_true(obj, "Complete") or is_true(obj, "Failed"):
            self._after_end(obj)
            return
        status = obj.get("status", {})
        view = View(
            job=obj,
            pods=self.cluster.mirror.owned(obj, "pods"),
            succeeded=int(status.get("succeeded") or 0),
            failed=int(status.get("failed") or 0),
            completed=parsed(status.get("completedIndexes") or ""),
            failed_indexes=parsed(status.get("failedIndexes") or ""),
            conditions=list(status.get("conditions") or ()),
            moment=self.cluster.timestamp(),
        )
        started = self._count(view)
        self._judge(view)
        self._act(view)
        self._publish(view, started)

    def gone(self, key: Key) -> None:
        """Release its pods, which no Job counts any more."""
        self._release(
            [
                pod
                for pod in self.cluster.mirror.all("pods", key[0])
                if (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name") == key[1]
            ]
        )

    def _count(self, view: View) -> list[Object]:
        """Count the pods that have ended since the last look; return them."""
        job, counted = view.job, []
        for pod in view.pods:
            if pods_of.is_counted(pod):
                continue
            if phase(pod) == "Succeeded":
                self._count_success(view, pod)
            elif pods_of.has_failed(job, pod):
                self._count_failure(view, pod)
            else:
                continue
            counted.append(pod)
        return counted

    def _count_success(self, view: View, pod: Object) -> None:
        index = pods_of.index_of(pod)
        if not pods_of.is_indexed(view.job):
            view.succeeded += 1
        elif index not in view.completed:
            view.completed.add(index)
            view.succeeded = len(view.completed)
        # A success resets the backoff (backoff_utils.go).
        self._failures.pop((view.job["metadata"]["uid"], _WHOLE_JOB), None)

    def _count_failure(self, view: View, pod: Object) -> None:
        action, words = verdict(view.job, pod)
        if action == FAIL_JOB:
            view.final = view.final or words
        # Ignored failures do not count against backoffLimit, but they delay the next pod like counted ones.
        if action != IGNORE:
            view.failed += 1
        index = _WHOLE_JOB
        if pods_of.limits_each_index(view.job):
            index = pods_of.index_of(pod)
            before = self._failures.get((view.job["metadata"]["uid"], index), _Failures()).counted
            is_over = action != IGNORE and before >= int(view.job["spec"]["backoffLimitPerIndex"])
            if is_over or action == FAIL_INDEX:  # isIndexFailed
                view.failed_indexes.add(index)
        failures = self._failures.setdefault((view.job["metadata"]["uid"], index), _Failures())
        failures.add(self.cluster.now(), ignored=action == IGNORE)

    def _judge(self, view: View) -> None:
        """Set the condition that ends the Job: it fails, or it meets its criteria of success."""
        spec = view.job["spec"]
        if any(view.holds(kind) for kind in ("FailureTarget", "SuccessCriteriaMet")):
            return
        limit = spec.get("backoffLimit", _DEFAULT_BACKOFF_LIMIT)
        if view.final:
            view.turn("FailureTarget", "PodFailurePolicy", view.final)
        elif view.failed > limit:
            view.turn("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif self._is_past_deadline(view):
            view.turn("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline")
        elif view.failed_indexes and len(view.failed_indexes) > spec.get("maxFailedIndexes", _NO_LIMIT):
            words = "Job has exceeded the specified maximal number of failed indexes"
            view.turn("FailureTarget", "MaxFailedIndexesExceeded", words)
        elif view.failed_indexes and self._is_complete(view):
            view.turn("FailureTarget", "FailedIndexes", "Job has failed indexes")
        elif words := meets_success_policy(view.job, view.completed):
            view.turn("SuccessCriteriaMet", "SuccessPolicy", words)
        elif self._is_complete(view):
            view.turn("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")

    def _is_complete(self, view: View) -> bool:
        completions = view.job["spec"].get("completions")
        if completions is None:
            active = any(pods_of.is_active(pod) for pod in view.pods)
            return view.succeeded > 0 and not active
        return view.succeeded + len(view.failed_indexes) >= int(completions)

    def _is_past_deadline(self, view: View) -> bool:
        limit = view.job["spec"].get("activeDeadlineSeconds")
        started = view.job.get("status", {}).get("startTime")
        if limit is None or not started or view.job["spec"].get("suspend"):
            return False
        left = seconds(started) + float(limit) - self.cluster.now()
        if left > 0:
            self.look_later(view.job, left)
        return left <= 0

    def _act(self, view: View) -> None:
        """Create or delete pods, or end the Job."""
        active = [pod for pod in view.pods if pods_of.is_active(pod)]
        if view.holds("FailureTarget") or view.holds("SuccessCriteriaMet"):
            for pod in active:
                self._delete(view.job, pod)
            # The Job ends only after its last pod: clients rely on no pod running after Complete or Failed.
            if not any(not pods_of.is_counted(pod) and not _has_ended(pod) for pod in self._pods(view)):
                self._finish(view)
            return
        is_suspended = bool(view.job["spec"].get("suspend"))
        if is_suspended != view.holds("Suspended"):
            word = "Suspended" if is_suspended else "Resumed"
            if is_suspended or view.find("Suspended"):
                view.turn("Suspended", f"Job{word}", f"Job {word.lower()}", status=str(is_suspended))
                self.record(view.job, word, f"Job {word.lower()}")
        if is_suspended:
            self._dismiss(view, active)
        else:
            self._fill(view, active)

    def _fill(self, view: View, active: list[Object]) -> None:
        spec = view.job["spec"]
        parallelism, completions = int(spec.get("parallelism", 1)), spec.get("completions")
        wanted = parallelism
        if completions is not None:
            wanted = min(parallelism, int(completions) - view.succeeded - len(view.failed_indexes))
        elif view.succeeded:
            wanted = len(active)
        if len(active) > wanted:
            self._dismiss(view, sorted(active, key=pods_of.is_ready)[: len(active) - wanted])
            return
        busy = len(active)
        # With Failed, a pod that is terminating keeps its place until it has ended.
        if pods_of.replaces_failed_only(view.job):
            busy += sum(pods_of.is_terminating(pod) for pod in view.pods)
        lacking = min(wanted - busy, _BATCH)  # the new pods cause the next look
        if lacking <= 0:
            return
        if self._must_wait(view.job, _WHOLE_JOB):
            return
        indexes = self._next_indexes(view, lacking)
        for index in indexes:
            made = self.make(view.job, "pods", self._new_pod(view.job, index))
            if made is not None and len(indexes) < _EVENT_PODS:
                self.record(view.job, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")

    def _next_indexes(self, view: View, lacking: int) -> list[int | None]:
        """Return the index of each pod to make now; None in a Job without indexes."""
        if not pods_of.is_indexed(view.job):
            return [None] * lacking
        done = view.completed | view.failed_indexes
        indexes = pods_of.wanted_indexes(view.job, view.pods, done, lacking)
        if not pods_of.limits_each_index(view.job):
            return [*indexes]
        return [index for index in indexes if not self._must_wait(view.job, index)]

    def _must_wait(self, job: Object, index: int) -> bool:
        """Return whether backoff delays the next pod of an index or of the whole Job; look again after it."""
        failures = self._failures.get((job["metadata"]["uid"], index))
        left = failures.until - self.cluster.now() if failures else 0.0
        if left > 0:
            self.look_later(job, left)
        return left > 0

    def _new_pod(self, job: Object, index: int | None) -> dict[str, Any]:
        if index is None or not pods_of.limits_each_index(job):
            return pods_of.new_pod(job, index)
        failures = self._failures.get((job["metadata"]["uid"], index), _Failures())
        return pods_of.new_pod(job, index, failures.annotations())

    def _dismiss(self, view: View, pods: list[Object]) -> None:
        """Delete pods without counting them as failed."""
        self._release(pods)
        for pod in pods:
            self._delete(view.job, pod)

    def _delete(self, job: Object, pod: Object) -> None:
        self.remove("pods", pod)
        self.record(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    def _finish(self, view: View) -> None:
        target = view.find("FailureTarget")
        kind = "Failed" if target else "Complete"
        source = target or view.find("SuccessCriteriaMet")
        if source is None:
            return
        view.turn(kind, source["reason"], source["message"])
        if target:
            self.record(view.job, source["reason"], source["message"], warning=True)
        else:
            self.record(view.job, "Completed", "Job completed")

    def _publish(self, view: View, counted: list[Object]) -> None:
        pods = self._pods(view)
        now = self.cluster.timestamp()
        status: dict[str, Any] = {
            "active": sum(pods_of.is_active(pod) for pod in pods),
            "ready": sum(pods_of.is_ready(pod) for pod in pods),
            "terminating": sum(pods_of.is_terminating(pod) for pod in pods),
            "succeeded": view.succeeded,
            "failed": view.failed,
            "conditions": view.conditions,
            "uncountedTerminatedPods": {},
        }
        if pods_of.is_indexed(view.job):
            status["completedIndexes"] = written(view.completed)
        if pods_of.limits_each_index(view.job):
            status["failedIndexes"] = written(view.failed_indexes)
        old = view.job.get("status", {})
        if view.job["spec"].get("suspend"):
            status["startTime"] = None
        elif not old.get("startTime"):
            status["startTime"] = now
            if "activeDeadlineSeconds" in view.job["spec"]:
                self.look_later(view.job, float(view.job["spec"]["activeDeadlineSeconds"]))
        if view.holds("Complete"):
            status["completionTime"] = now
        self.cluster.patch_status("jobs", view.job, status)
        # Only after the numbers are in the status: released earlier, a pod could vanish uncounted.
        self._release(counted)

    def _after_end(self, job: Object) -> None:
        """Release the pods; remove the Job itself when its ttlSecondsAfterFinished is over."""
        self._release(self.cluster.mirror.owned(job, "pods"))
        kept_s = job["spec"].get("ttlSecondsAfterFinished")
        if kept_s is None:
            return
        ended = condition(job, "Complete") or condition(job, "Failed") or {}
        left = seconds(ended["lastTransitionTime"]) + float(kept_s) - self.cluster.now()
        if left > 0:
            self.look_later(job, left)
        else:
            self.remove("jobs", job)

    def _release(self, pods: list[Object]) -> None:
        for pod in pods:
            if not pods_of.is_counted(pod):
                rest = [each for each in pod["metadata"]["finalizers"] if each != pods_of.FINALIZER]
                change = {"metadata": {"finalizers": rest or None}}
                self.cluster.attempt(self.cluster.store.patch, "pods", *key_of(pod), change)

    def _pods(self, view: View) -> list[Object]:
        return self.cluster.mirror.owned(view.job, "pods")


def _has_ended(pod: Object) -> bool:
    return phase(pod) in ("Succeeded", "Failed")
