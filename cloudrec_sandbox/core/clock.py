"""Virtual time: it runs a number of times faster than real time, and can be advanced."""

from __future__ import annotations

import time
from datetime import UTC, datetime

DEFAULT_SPEED = 60.0


class Clock:
    """Seconds since the epoch in the stand-in's cloud; they never run backwards.

    Attributes:
        real_times: whether the times that clients name, such as the end of a cluster in 8 h, are those of a
            clock in real time, whatever the speed; else they are virtual times.
    """

    def __init__(self, speed: float = DEFAULT_SPEED) -> None:
        self.real_times = True
        self._speed = speed
        self._virtual = time.time()
        self._real = time.monotonic()

    @property
    def speed(self) -> float:
        """Virtual seconds in a real second."""
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        if speed <= 0:
            raise ValueError(f"speed {speed:g} is not above 0")
        # The time until now passed at the old speed, so take the present moment first.
        self._set(self.now())
        self._speed = speed

    def now(self) -> float:
        """Return the virtual time, in seconds since the epoch."""
        return self._virtual + (time.monotonic() - self._real) * self._speed

    def advance(self, seconds: float) -> None:
        """Let `seconds` of virtual time pass at once."""
        if seconds < 0:
            raise ValueError(f"advance_s {seconds:g} is below 0")
        self._set(self.now() + seconds)

    def go_to(self, moment: float) -> None:
        """Return to the moment of a snapshot: the only way back in time."""
        self._set(moment)

    def _set(self, virtual: float) -> None:
        self._virtual = virtual
        self._real = time.monotonic()


def as_datetime(moment: float) -> datetime:
    """Return a moment as a datetime in UTC, as the clouds' replies carry it."""
    return datetime.fromtimestamp(moment, UTC)
