"""Cron schedules of five fields, as Job.schedule of google/cloud/scheduler/v1/job.proto names them (Crontab).

The other format of Cloud Scheduler ("every 5 minutes") is not read here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Mapping

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_FIELDS: tuple[tuple[int, int, Mapping[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 7, _DAYS),
)
_LONGEST_DAYS = 8 * 366 + 2  # a 29 February can be eight years away
_UTC = ("", "utc", "UTC", "Etc/UTC")


@dataclass(frozen=True, kw_only=True)
class Cron:
    """One schedule.

    Attributes:
        minutes, hours, months: the numbers at which it is due.
        days: of the month.
        weekdays: 0 is Sunday.
        any_day: a day is due if either the day of the month or the weekday is, since both are limited.
        zone: the time zone.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    zone: ZoneInfo

    def after(self, moment: float) -> float | None:
        """Return the first time after a moment, in seconds since the epoch; None if there is none."""
        present = as_datetime(moment).astimezone(self.zone)
        for ahead in range(_LONGEST_DAYS):
            day = (present + timedelta(days=ahead)).date()
            if not self._has(day.month, day.day, day.isoweekday() % 7):
                continue
            # An hour early, since clocks are set back.
            hours = [hour for hour in sorted(self.hours) if ahead or hour >= present.hour - 1]
            for hour in hours:
                for minute in sorted(self.minutes):
                    due = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self.zone)
                    if due.timestamp() > moment:
                        return due.timestamp()
        return None

    def _has(self, month: int, day: int, weekday: int) -> bool:
        if month not in self.months:
            return False
        if self.any_day:
            return day in self.days or weekday in self.weekdays
        return day in self.days and weekday in self.weekdays


@lru_cache
def parse(text: str, zone: str) -> Cron:
    """Return the schedule; ValueError for an invalid one, or for an unknown time zone."""
    words = text.split()
    if len(words) != len(_FIELDS):
        raise ValueError(f"{text!r} has not five fields")
    found = [
        _numbers(word.lower(), low, high, names)
        for word, (low, high, names) in zip(words, _FIELDS, strict=True)
    ]
    try:
        where = ZoneInfo("Etc/UTC" if zone in _UTC else zone)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"unknown time zone {zone!r}") from error
    cron = Cron(
        minutes=found[0],
        hours=found[1],
        days=found[2],
        months=found[3],
        weekdays=frozenset(day % 7 for day in found[4]),
        any_day="*" not in (words[2], words[4]),
        zone=where,
    )
    if cron.after(datetime.now(UTC).timestamp()) is None:
        raise ValueError(f"{text!r} is never due")
    return cron


def _numbers(word: str, low: int, high: int, names: Mapping[str, int]) -> frozenset[int]:
    """Return the numbers of a field: of its list of ranges, each with an optional step."""

    def number(text: str) -> int:
        return names[text] if text in names else int(text)

    found: set[int] = set()
    for part in word.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        begin = low if first == "*" else number(first)
        alone = high if first == "*" or step else begin
        end, by = number(last) if last else alone, int(step or 1)
        if not low <= begin <= end <= high or by < 1:
            raise ValueError(f"{part!r} is not in {low}-{high}")
        found.update(range(begin, end + 1, by))
    return frozenset(found)
