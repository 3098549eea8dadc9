"""Dates for tests: an end of a cluster must be within a year, whenever the tests run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def in_days(days: int) -> str:
    """Return midnight of a day from now on, in UTC, as a spec has it."""
    return f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%d}T00:00:00Z"
