"""What a notice says, whoever gives it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Somebody's word that the end is near.

    Args:
        source: who says so, such as "aws" or "SIGTERM".
        reason: what is said, in words.
        ends_at: when this machine goes, on `time.monotonic`'s clock; infinity where nobody knows.
        fixed: whether the end comes when it was said, so that until then there is time for training.
        final: False for advice: the end has become likelier, so a checkpoint pays, but nothing is decided.
    """

    source: str
    reason: str
    ends_at: float = math.inf
    fixed: bool = False
    final: bool = True

    @property
    def seconds_left(self) -> float:
        """Until this machine goes; 0 when that is over, infinity where nobody knows."""
        return max(self.ends_at - time.monotonic(), 0.0)


class NoticeSource(Protocol):
    """Something besides a signal that announces the end, such as a cloud's metadata service."""

    def notice(self) -> Notice | None:
        """The newest notice, if there is any; must return at once."""
        ...


def plausible_end(seconds_left: float, *, lead_s: float, tolerance_s: float = 5.0) -> float:
    """When an end comes that was announced for `seconds_left` from now, on `time.monotonic`'s clock.

    A service tells the time of day, and its clock or this machine's may be wrong. What lies further ahead
    than `lead_s`, which is all that the service ever promises, or well in the past, is taken for `lead_s`.
    """
    likely = -tolerance_s <= seconds_left <= lead_s + tolerance_s
    return time.monotonic() + (min(max(seconds_left, 0.0), lead_s) if likely else lead_s)
