"""Jobs: pods for each completion, counted as they end, until the Job has succeeded or failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.sandbox.kubernetes.controllers import job_pods as pods_of
from cloudrec.sandbox.kubernetes.controllers.base import Controller
from cloudrec.sandbox.kubernetes.controllers.job_policy import (
    FAIL_JOB,
    IGNORE,
    meets_success_policy,
    parsed,
    verdict,
    written,
)
from cloudrec.sandbox.kubernetes.controllers.job_view import View
from cloudrec.sandbox.kubernetes.mirror import (
    condition,
    is_ending,
    is_true,
    key_of,
    phase,
    seconds,
)

if TYPE_CHECKING:
    from cloudrec.sandbox.kubernetes.mirror import Key, Object

_BACKOFF_S, _LONGEST_BACKOFF_S = 10.0, 600.0
_DEFAULT_BACKOFF_LIMIT = 6
_EVENT_PODS = 5000  # more creations than these are not told one by one
_BATCH = 100  # pods made at one look: whoever calls meanwhile is not kept waiting


@dataclass
class _Failures:
    """The failures of a Job since its last success."""

    count: int = 0
    until: float = 0.0  # no new pod before this virtual moment


class JobController(Controller):
    """Brings Jobs to their end."""

    resource: ClassVar[str] = "jobs"
    kind: ClassVar[str] = "Job"
    source: ClassVar[str] = "job-controller"
    _failures: dict[str, _Failures]

    def look(self, obj: Object) -> None:
        """One sync of a Job."""
        if not hasattr(self, "_failures"):
            self._failures = {}
        if is_ending(obj):
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
            conditions=list(status.get("conditions") or ()),
            moment=self.cluster.timestamp(),
        )
        started = self._count(view)
        self._judge(view)
        self._act(view)
        self._publish(view, started)

    def gone(self, key: Key) -> None:
        """Its pods need nobody's count any more."""
        self._release(
            [
                pod
                for pod in self.cluster.mirror.all("pods", key[0])
                if (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name") == key[1]
            ]
        )

    def _count(self, view: View) -> list[Object]:
        """Count the pods that have ended since the last look; those whose end is now in the numbers."""
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
        self._failures.pop(view.job["metadata"]["uid"], None)

    def _count_failure(self, view: View, pod: Object) -> None:
        action, words = verdict(view.job, pod)
        if action == FAIL_JOB:
            view.final = view.final or words
        if action != IGNORE:
            view.failed += 1
        failures = self._failures.setdefault(view.job["metadata"]["uid"], _Failures())
        failures.count += 1
        wait = min(_BACKOFF_S * 2 ** (failures.count - 1), _LONGEST_BACKOFF_S)
        failures.until = self.cluster.now() + wait

    def _judge(self, view: View) -> None:
        """See whether the Job is to fail, or has met what makes it a success."""
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
        elif words := meets_success_policy(view.job, view.completed):
            view.turn("SuccessCriteriaMet", "SuccessPolicy", words)
        elif self._is_complete(view):
            view.turn("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")

    def _is_complete(self, view: View) -> bool:
        completions = view.job["spec"].get("completions")
        if completions is None:
            active = any(pods_of.is_active(pod) for pod in view.pods)
            return view.succeeded > 0 and not active
        return view.succeeded >= int(completions)

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
        """Make or remove pods, or end the Job."""
        active = [pod for pod in view.pods if pods_of.is_active(pod)]
        if view.holds("FailureTarget") or view.holds("SuccessCriteriaMet"):
            for pod in active:
                self._delete(view.job, pod)
            if not any(not pods_of.is_counted(pod) and not _has_ended(pod) for pod in self._pods(view)):
                self._finish(view)
            return
        is_suspended = bool(view.job["spec"].get("suspend"))
        if is_suspended != view.holds("Suspended"):
            word = "Suspended" if is_suspended else "Resumed"
            if is_suspended or view.find("Suspended"):
                view.turn("Suspended", f"Job{word}", f"Job {word.lower()}", status=str(is_suspended))
                self.tell(view.job, word, f"Job {word.lower()}")
        if is_suspended:
            self._dismiss(view, active)
        else:
            self._fill(view, active)

    def _fill(self, view: View, active: list[Object]) -> None:
        spec = view.job["spec"]
        parallelism, completions = int(spec.get("parallelism", 1)), spec.get("completions")
        wanted = parallelism
        if completions is not None:
            wanted = min(parallelism, int(completions) - view.succeeded)
        elif view.succeeded:
            wanted = len(active)
        if len(active) > wanted:
            self._dismiss(view, sorted(active, key=pods_of.is_ready)[: len(active) - wanted])
            return
        busy = len(active)
        if pods_of.replaces_failed_only(view.job):
            busy += sum(pods_of.is_terminating(pod) for pod in view.pods)
        lacking = min(wanted - busy, _BATCH)  # its pods call for the next look
        if lacking <= 0:
            return
        failures = self._failures.get(view.job["metadata"]["uid"])
        if failures and failures.until > self.cluster.now():
            self.look_later(view.job, failures.until - self.cluster.now())
            return
        indexes: list[int | None] = [None] * lacking
        if pods_of.is_indexed(view.job):
            indexes = [*pods_of.wanted_indexes(view.job, view.pods, view.completed, lacking)]
        for index in indexes:
            made = self.make(view.job, "pods", pods_of.new_pod(view.job, index))
            if made is not None and len(indexes) < _EVENT_PODS:
                self.tell(view.job, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")

    def _dismiss(self, view: View, pods: list[Object]) -> None:
        """Delete pods without counting them as failed."""
        self._release(pods)
        for pod in pods:
            self._delete(view.job, pod)

    def _delete(self, job: Object, pod: Object) -> None:
        self.remove("pods", pod)
        self.tell(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    def _finish(self, view: View) -> None:
        target = view.find("FailureTarget")
        kind = "Failed" if target else "Complete"
        source = target or view.find("SuccessCriteriaMet")
        if source is None:
            return
        view.turn(kind, source["reason"], source["message"])
        if target:
            self.tell(view.job, source["reason"], source["message"], warning=True)
        else:
            self.tell(view.job, "Completed", "Job completed")

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
        self._release(counted)

    def _after_end(self, job: Object) -> None:
        """Let go of the pods; remove the Job itself where it says when."""
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
