"""The clocks of a process: one that nobody can set, and the time of day, which jumps."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

_START_TICKS = 19  # of /proc/self/stat's fields after the name in parentheses
_STAT = Path("/proc/self/stat")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_IMPORTED = time.monotonic()


class Clock(Protocol):
    """What accounting over several processes needs."""

    @property
    def boot_id(self) -> str:
        """Of this machine's time since it was switched on; "" where nobody knows."""
        ...

    @property
    def process_start(self) -> float:
        """When this process began, on `boot`'s clock."""
        ...

    def boot(self) -> float:
        """Seconds since this machine was switched on; never goes back."""
        ...

    def wall(self) -> float:
        """The time of day, in seconds since 1970; may jump."""
        ...


class SystemClock:
    """This machine's; without Linux's /proc, the process began when this module was imported."""

    def __init__(self) -> None:
        self.boot_id = ""
        self.process_start = _IMPORTED
        try:
            ticks = float(_STAT.read_text(encoding="utf-8").rpartition(")")[2].split()[_START_TICKS])
            self.boot_id = _BOOT_ID.read_text(encoding="ascii").strip()
            self.process_start = ticks / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            self._now = time.monotonic
        else:
            self._now = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot(self) -> float:
        """See Clock."""
        return self._now()

    def wall(self) -> float:
        """See Clock."""
        return time.time()
