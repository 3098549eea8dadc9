"""Statuses of Jobs, which controllers besides Kubernetes' own may write (`managedBy`).

The rules and words are those of `validateJobStatus` and `ValidateJobStatusUpdate` in
`pkg/apis/batch/validation/validation.go`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.rules.problems import Problems

_NUMBERS = ("active", "succeeded", "failed", "ready", "terminating")
_TERMINAL = ("Failed", "Complete", "FailureTarget")


@check("jobs/status")
def _job(change: Change, problems: Problems) -> None:
    new: Mapping[str, Any] = change.new.get("status") or {}
    old: Mapping[str, Any] = (change.old or {}).get("status") or {}
    if new == old:
        return
    for name in _NUMBERS:
        if new.get(name, 0) < 0:
            problems.invalid(f"status.{name}", new[name], "must be greater than or equal to 0")
    _check_conditions(change.spec, new, problems)
    _check_times(new, problems)
    _check_end(new, problems)
    if new.get("ready", 0) > new.get("active", 0):
        problems.invalid("status.ready", new["ready"], "cannot set more ready pods than active")
    _check_indexes(change.spec, new, problems)
    _check_change(change, new, old, problems)


def _holds(status: Mapping[str, Any], kind: str) -> bool:
    return any(
        each.get("type") == kind and each.get("status") == "True" for each in status.get("conditions") or ()
    )


def _is_finished(status: Mapping[str, Any]) -> bool:
    return _holds(status, "Complete") or _holds(status, "Failed")


def _check_conditions(spec: Mapping[str, Any], status: Mapping[str, Any], problems: Problems) -> None:
    is_complete, is_met = _holds(status, "Complete"), _holds(status, "SuccessCriteriaMet")
    is_failed, is_failing = _holds(status, "Failed"), _holds(status, "FailureTarget")
    found = {
        "cannot set Complete=True and Failed=true conditions": is_complete and is_failed,
        "cannot set Complete=True and FailureTarget=true conditions": is_complete and is_failing,
        "cannot set Failed=True condition without the FailureTarget=true condition": is_failed
        and not is_failing,
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition": is_complete
        and not is_met,
        "cannot set SuccessCriteriaMet=True and Failed=true conditions": is_met and is_failed,
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions": is_met and is_failing,
        "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True": is_complete
        and not is_met
        and spec.get("successPolicy") is not None,
    }
    for why, is_wrong in found.items():
        if is_wrong:
            problems.invalid_whole("status.conditions", why)


def _check_times(status: Mapping[str, Any], problems: Problems) -> None:
    completed, started = status.get("completionTime"), status.get("startTime")
    is_complete = _holds(status, "Complete")
    if completed and not is_complete:
        why = "cannot set completionTime when there is no Complete=True condition"
        problems.invalid("status.completionTime", completed, why)
    if is_complete and not completed:
        problems.required("status.completionTime", "completionTime is required for Complete jobs")
    if completed and started and completed < started:
        problems.invalid("status.completionTime", completed, "completionTime cannot be set before startTime")


def _check_end(status: Mapping[str, Any], problems: Problems) -> None:
    if not _is_finished(status):
        return
    for name in ("active", "terminating"):
        if status.get(name, 0) > 0:
            problems.invalid(f"status.{name}", status[name], f"{name}>0 is invalid for finished job")
    if not status.get("startTime"):
        problems.required("status.startTime", "startTime is required for finished job")


def _check_indexes(spec: Mapping[str, Any], status: Mapping[str, Any], problems: Problems) -> None:
    completed, failed = status.get("completedIndexes"), status.get("failedIndexes")
    if completed and spec.get("completionMode") != "Indexed":
        why = "cannot set non-empty completedIndexes when non-indexed completion mode"
        problems.invalid("status.completedIndexes", completed, why)
    if failed is not None and spec.get("backoffLimitPerIndex") is None:
        why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        problems.invalid("status.failedIndexes", failed, why)


def _check_change(change: Change, new: Mapping[str, Any], old: Mapping[str, Any], problems: Problems) -> None:
    for kind in _TERMINAL:
        if _holds(old, kind) and not _holds(new, kind):
            why = f"cannot disable the terminal {kind}=True condition"
            problems.invalid_whole("status.conditions", why)
    for name in ("failed", "succeeded"):
        if new.get(name, 0) < old.get(name, 0):
            why = f"cannot decrease the {name} counter"
            problems.invalid(f"status.{name}", new.get(name, 0), why)
    was, now = old.get("completionTime"), new.get("completionTime")
    if was and now and was != now:
        problems.invalid("status.completionTime", now, "completionTime cannot be mutated")
    began = old.get("startTime")
    if began and new.get("startTime") != began and not change.spec.get("suspend"):
        problems.required("status.startTime", "startTime cannot be removed for unsuspended job")
    if _holds(old, "SuccessCriteriaMet") and not _holds(new, "SuccessCriteriaMet"):
        why = "cannot disable the SuccessCriteriaMet=True condition"
        problems.invalid_whole("status.conditions", why)
