"""The time that the engine waits by: real, or hurried where a stand-in's clouds live faster than ours."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

SPEED = "CLOUDREC_SANDBOX_SPEED"  # how many of a stand-in's seconds pass in one of ours
_LEAST_S = 10.0  # of ours, for any limit: a hurried clock does not hurry our own calls and machine


class Clock:
    """Counts and waits in a cloud's seconds, of which `speed` pass in a second of ours.

    Once stopped, whoever waits, or is about to, is told so by an `InterruptedWait`: a command that is
    ended leaves within a call, not at the end of a cluster's creation.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self._stopped = threading.Event()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """The clock that the environment asks for; UsageError where it is no number above 0."""
        text = environment.get(SPEED, "1")
        try:
            speed = float(text)
        except ValueError:
            speed = 0.0
        if not 0 < speed < float("inf"):
            raise UsageError(f"{SPEED} is {text!r}: not a number above 0", remedy=f"unset {SPEED}")
        return cls(speed)

    def now(self) -> float:
        """Seconds since some moment, never set back."""
        return time.monotonic() * self.speed

    def limit(self, seconds: float) -> float:
        """Return a limit in the cloud's seconds; where the clock is hurried, at least ten seconds of ours."""
        return seconds if self.speed <= 1 else max(seconds, _LEAST_S * self.speed)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        if self._stopped.wait(seconds / self.speed):
            raise InterruptedWait

    def check(self) -> None:
        """Raise InterruptedWait if the clock was stopped."""
        if self._stopped.is_set():
            raise InterruptedWait

    def stop(self) -> None:
        """End every wait."""
        self._stopped.set()


class InterruptedWait(Exception):  # noqa: N818 - not an error: somebody said stop
    """The wait was ended before its time."""
