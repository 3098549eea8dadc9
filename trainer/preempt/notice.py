"""A notice that this machine or process ends soon, from a signal or a cloud."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An announcement that this machine or process ends soon.

    Args:
        source: the source, such as "aws" or "SIGTERM".
        reason: a description for messages.
        ends_at: when this machine ends, on `time.monotonic`'s clock; infinity if that is not known.
        fixed: whether the end comes at that time and not before, so that training may continue until then.
        announced: whether the source announced the time; otherwise it counts from the notice, by the cloud's
            usual lead time.
        final: False for advice: the end has become more likely but is not decided, so a checkpoint is useful.
    """

    source: str
    reason: str
    ends_at: float = math.inf
    fixed: bool = False
    announced: bool = True
    final: bool = True

    @property
    def seconds_left(self) -> float:
        """Seconds until this machine ends; 0 after that, infinity if it is not known."""
        return max(self.ends_at - time.monotonic(), 0.0)

    def within(self, lead_s: float) -> Notice:
        """Return the notice for a process that has `lead_s` seconds, or less if an earlier end is announced.

        A machine's settings, such as the grace of its kubelet, may leave a process more or less time than the
        cloud's usual notice.
        """
        limit = time.monotonic() + lead_s
        return replace(self, ends_at=min(self.ends_at, limit) if self.announced else limit)


class NoticeSource(Protocol):
    """A source of notices other than signals, such as a cloud's metadata service."""

    def notice(self) -> Notice | None:
        """Return the newest notice, if there is one; must not block."""
        ...


def plausible_end(seconds_left: float, *, lead_s: float, tolerance_s: float = 5.0) -> float:
    """Return the time of an end that was announced for `seconds_left` from now, on `time.monotonic`'s clock.

    A service gives the time of day, and its clock or this machine's may be wrong. A time further ahead than
    `lead_s`, the longest notice that the service promises, or well in the past is replaced by `lead_s`.
    """
    likely = -tolerance_s <= seconds_left <= lead_s + tolerance_s
    return time.monotonic() + (min(max(seconds_left, 0.0), lead_s) if likely else lead_s)
