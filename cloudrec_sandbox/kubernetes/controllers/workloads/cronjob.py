"""CronJobs: a Job at each time of their schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from cloudrec_sandbox.kubernetes.controllers.base import Controller
from cloudrec_sandbox.kubernetes.objects.table import copied
from cloudrec_sandbox.kubernetes.rules.kinds import runs
from cloudrec_sandbox.kubernetes.storage.mirror import is_ending, is_true

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.storage.mirror import Object

_SHORT = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0"}
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MINUTE = timedelta(minutes=1)
_SEARCHED = 366 * 24 * 60  # minutes


class CronJobController(Controller):
    """Creates Jobs when they are due."""

    resource: ClassVar[str] = "cronjobs"
    kind: ClassVar[str] = "CronJob"
    source: ClassVar[str] = "cronjob-controller"

    def look(self, obj: Object) -> None:
        """Create the Job that is due, and delete old ones."""
        if is_ending(obj):
            return
        jobs = self.cluster.mirror.owned(obj, "jobs")
        active = [job for job in jobs if not is_true(job, "Complete") and not is_true(job, "Failed")]
        status = obj.get("status", {})
        since = datetime.fromisoformat(status.get("lastScheduleTime") or obj["metadata"]["creationTimestamp"])
        now = datetime.fromtimestamp(self.cluster.now(), UTC)
        # Only the last missed time counts, as in Kubernetes: an outage does not cause a burst of Jobs.
        due = _last(obj["spec"]["schedule"], since, now)
        change: dict[str, object] = {"active": [_reference(job) for job in active]}
        if due is not None and not obj["spec"].get("suspend"):
            policy = obj["spec"].get("concurrencyPolicy", "Allow")
            if policy == "Replace":
                for job in active:
                    self.remove("jobs", job)
            if not (active and policy == "Forbid"):
                self._start(obj, due)
            change["lastScheduleTime"] = due.strftime("%Y-%m-%dT%H:%M:%SZ")
        self.cluster.patch_status(self.resource, obj, change)
        self._forget(obj, jobs)
        following = _next(obj["spec"]["schedule"], now)
        if following is not None:
            self.look_later(obj, (following - now).total_seconds())

    def _start(self, obj: Object, due: datetime) -> None:
        template = copied(obj["spec"]["jobTemplate"])
        metadata = template.get("metadata") or {}
        kept = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
        name = f"{obj['metadata']['name']}-{int(due.timestamp()) // 60}"
        if self.make(obj, "jobs", {"metadata": {"name": name, **kept}, "spec": template["spec"]}) is not None:
            self.record(obj, "SuccessfulCreate", f"Created job {name}")

    def _forget(self, obj: Object, jobs: list[Object]) -> None:
        for kind, field, usual in (
            ("Complete", "successfulJobsHistoryLimit", 3),
            ("Failed", "failedJobsHistoryLimit", 1),
        ):
            ended = sorted(
                (job for job in jobs if is_true(job, kind)),
                key=lambda job: str(job["metadata"]["creationTimestamp"]),
                reverse=True,
            )
            for job in ended[int(obj["spec"].get(field, usual)) :]:
                self.remove("jobs", job)


def _reference(job: Object) -> dict[str, str]:
    metadata = job["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
    }


def _last(schedule: str, after: datetime, until: datetime) -> datetime | None:
    """Return the last time of a schedule in (after, until]; None if there is none."""
    sets = _parsed(schedule)
    moment = until.replace(second=0, microsecond=0)
    while moment > after:
        if _is_due(sets, moment):
            return moment
        moment -= _MINUTE
    return None


def _next(schedule: str, after: datetime) -> datetime | None:
    sets = _parsed(schedule)
    moment = after.replace(second=0, microsecond=0)
    for _ in range(_SEARCHED):
        moment += _MINUTE
        if _is_due(sets, moment):
            return moment
    return None


def _parsed(schedule: str) -> list[set[int]]:
    parts = _SHORT.get(schedule, schedule).lower().split()
    return [_values(part, *bounds) for part, bounds in zip(parts, _RANGES, strict=True)]


def _values(part: str, first: int, last: int) -> set[int]:
    found: set[int] = set()
    for each in part.split(","):
        span, _, step = each.partition("/")
        low, _, high = span.partition("-")
        start = first if low == "*" else _number(low)
        end = _number(high) if high else last if low == "*" or step else start
        found |= set(range(start, end + 1, int(step or 1)))
    return found


def _number(text: str) -> int:
    """Return a number, a month or a day, which the API server has checked."""
    found = runs.number(text)
    if found is None:
        raise ValueError(f"{text!r} is no part of a schedule")
    return found


def _is_due(sets: list[set[int]], moment: datetime) -> bool:
    minutes, hours, days, months, weekdays = sets
    weekday = moment.isoweekday() % 7
    is_weekday = weekday in weekdays or (weekday == 0 and 7 in weekdays)  # noqa: PLR2004 - 0 and 7 are Sunday
    return (
        moment.minute in minutes
        and moment.hour in hours
        and moment.day in days
        and moment.month in months
        and is_weekday
    )
