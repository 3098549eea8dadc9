"""The engine's clock: real time, or faster for a simulated cloud (`cloudrec_sandbox`)."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

SPEED = "CLOUDREC_SANDBOX_SPEED"  # simulated seconds in one real second
# The smallest limit in real seconds. A faster clock makes neither cloudrec's own calls nor the machine
# faster, so a scaled limit alone could end before the first call returns.
_LEAST_S = 10.0


class Clock:
    """A clock in the cloud's seconds; `speed` of them pass in one real second.

    After `stop`, each wait raises `InterruptedWait`, including waits that begin later. An interrupted command
    therefore ends after its current calls, not at the end of a cluster's creation.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self._stopped = threading.Event()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Return a clock with the speed in CLOUDREC_SANDBOX_SPEED (1 if unset).

        Raises:
            UsageError: the variable is not a finite number above 0.
        """
        text = environment.get(SPEED, "1")
        try:
            speed = float(text)
        except ValueError:
            speed = 0.0
        if not 0 < speed < float("inf"):
            raise UsageError(f"{SPEED} is {text!r}: not a number above 0", remedy=f"unset {SPEED}")
        return cls(speed)

    def now(self) -> float:
        """Return the cloud's seconds since an arbitrary start; never decreases."""
        return time.monotonic() * self.speed

    def limit(self, seconds: float) -> float:
        """Return a limit in the cloud's seconds; at least ten real seconds if the clock runs faster."""
        return seconds if self.speed <= 1 else max(seconds, _LEAST_S * self.speed)

    def sleep(self, seconds: float) -> None:
        """Wait for some of the cloud's seconds; InterruptedWait if the clock is stopped."""
        if self._stopped.wait(seconds / self.speed):
            raise InterruptedWait

    def check(self) -> None:
        """Raise InterruptedWait if the clock was stopped."""
        if self._stopped.is_set():
            raise InterruptedWait

    def stop(self) -> None:
        """End all waits, in every thread."""
        self._stopped.set()


class InterruptedWait(Exception):  # noqa: N818 - not an error: the command was interrupted
    """The clock was stopped during or before a wait."""
