"""Durations such as 90m, 8h or 2d."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def seconds_of(duration: str) -> float:
    """Return a duration such as 90m, 8h or 2d in seconds; ValueError where it is none."""
    found = _DURATION.fullmatch(duration)
    if found is None or not float(found[1]):
        raise ValueError("is no duration such as 90m, 8h or 2d")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]
