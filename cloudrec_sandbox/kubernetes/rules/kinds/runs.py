"""Jobs, cron jobs, deployments: numbers, success policies, schedules."""

from __future__ import annotations

import re
import zoneinfo
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.rules.problems import Problems

_INTERVAL = re.compile(r"(\d+)(?:-(\d+))?")
_CONDITION_STATUS = ("False", "True", "Unknown")
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_STRATEGIES = {"deployments": ("strategy", ("Recreate", "RollingUpdate")),
               "daemonsets": ("updateStrategy", ("RollingUpdate", "OnDelete"))}  # fmt: skip


@check("jobs")
def _job(change: Change, problems: Problems) -> None:
    spec = change.spec
    if spec.get("activeDeadlineSeconds", 0) < 0:
        problems.invalid("spec.activeDeadlineSeconds", spec["activeDeadlineSeconds"], _at_least(0))
    if change.old is not None:
        return
    most, indexes = spec.get("completions"), spec.get("maxFailedIndexes")
    if indexes is not None and most is not None and indexes > most:
        problems.invalid("spec.maxFailedIndexes", indexes, f"must be less than or equal to {most}")
    # Admission makes the selector, unless the user takes it upon himself.
    if spec.get("manualSelector") and not spec.get("selector"):
        problems.required("spec.selector")
    if (by := spec.get("managedBy")) is not None and "/" not in by:
        problems.invalid("spec.managedBy", by, 'should be a domain-prefixed path (such as "acme.io/foo")')
    if spec.get("successPolicy") is not None and spec.get("completionMode") == "Indexed":
        _check_success(spec["successPolicy"].get("rules") or (), int(most or 0), problems)
    for index, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        path = f"spec.podFailurePolicy.rules[{index}].onPodConditions"
        for number, pattern in enumerate(rule.get("onPodConditions") or ()):
            _check_pattern(pattern, f"{path}[{number}]", problems)


def _at_least(number: int) -> str:
    return f"must be greater than or equal to {number}"


def _check_pattern(pattern: Mapping[str, Any], path: str, problems: Problems) -> None:
    if not pattern.get("type"):
        problems.invalid(f"{path}.type", pattern.get("type", ""), "name part must be non-empty")
    if pattern.get("status") not in _CONDITION_STATUS:
        problems.unsupported(f"{path}.status", pattern.get("status"), _CONDITION_STATUS)


def _check_success(rules: Any, completions: int, problems: Problems) -> None:  # noqa: ANN401 - JSON
    if not rules:
        problems.required("spec.successPolicy.rules", "at least one rules must be specified")
    for index, rule in enumerate(rules):
        path = f"spec.successPolicy.rules[{index}]"
        count, text = rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and text is None:
            problems.required(path, "at least one of succeededCount or succeededIndexes must be specified")
        if count is not None and count > completions:
            problems.invalid(f"{path}.succeededCount", count, f"must be less than or equal to {completions}")
        if count is not None and count < 0:
            problems.invalid(f"{path}.succeededCount", count, _at_least(0))
        if text is None:
            continue
        number = _indexes(text, completions)
        if number is None:
            problems.invalid(f"{path}.succeededIndexes", text, "error parsing succeededIndexes")
        elif count is not None and count > number:
            problems.invalid(f"{path}.succeededCount", count, f"must be less than or equal to {number}")


def _indexes(text: str, completions: int) -> int | None:
    """Return how many indexes a list such as 0-2,5 has; None for a malformed one."""
    last, number = -1, 0
    for part in text.split(","):
        found = _INTERVAL.fullmatch(part)
        if found is None:
            return None
        low, high = int(found[1]), int(found[2] or found[1])
        if low <= last or high < low or high >= completions:
            return None
        last, number = high, number + high - low + 1
    return number


@check("cronjobs")
def _cron_job(change: Change, problems: Problems) -> None:
    spec = change.spec
    schedule = spec.get("schedule", "")
    if "TZ" not in schedule and len(schedule.split()) == len(_BOUNDS) and not _is_schedule(schedule):
        problems.invalid("spec.schedule", schedule, "failed to parse the schedule")
    for name in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        if spec.get(name, 0) < 0:
            problems.invalid(f"spec.{name}", spec[name], _at_least(0))
    if "timeZone" in spec and not _is_zone(spec["timeZone"]):
        problems.invalid("spec.timeZone", spec["timeZone"], f"unknown time zone {spec['timeZone']}")


def _is_zone(name: str) -> bool:
    # `validateTimeZone`: Go's "Local" is no zone's name, and neither is an empty one.
    if not name or name.lower() == "local":
        return False
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return False
    return True


def _is_schedule(text: str) -> bool:
    return all(_is_field(field, bounds) for field, bounds in zip(text.lower().split(), _BOUNDS, strict=True))


def _is_field(field: str, bounds: tuple[int, int]) -> bool:
    for part in field.split(","):
        values, _, step = part.partition("/")
        if step and not (step.isdigit() and int(step) > 0):
            return False
        if values in ("*", "?"):
            continue
        ends = [number(each) for each in values.split("-")]
        if len(ends) > 2 or any(each is None or not bounds[0] <= each <= bounds[1] for each in ends):  # noqa: PLR2004 - a range
            return False
        if len(ends) == 2 and (ends[0] or 0) > (ends[1] or 0):  # noqa: PLR2004 - a range
            return False
    return True


def number(text: str) -> int | None:
    """Return the number of a month, a day or a number in a schedule; None for anything else."""
    if text.isdigit():
        return int(text)
    if text in _MONTHS:
        return _MONTHS.index(text) + 1
    return _DAYS.index(text) if text in _DAYS else None


@check("deployments", "daemonsets")
def _workload(change: Change, problems: Problems) -> None:
    if change.spec.get("replicas", 0) < 0:
        problems.invalid("spec.replicas", change.spec["replicas"], _at_least(0))
    name, types = _STRATEGIES[change.resource.key]
    kind = (change.spec.get(name) or {}).get("type")
    if kind is not None and kind not in types:
        problems.unsupported(f"spec.{name}", change.spec[name], types)
