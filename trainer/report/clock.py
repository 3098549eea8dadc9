"""The clocks of a process: the boot clock, which cannot be set, and the time of day, which can jump."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

_START_TICKS = 19  # of /proc/self/stat's fields after the name in parentheses
_STAT = Path("/proc/self/stat")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_IMPORTED = time.monotonic()


class ProcessClock(Protocol):
    """The clocks that accounting over several processes needs."""

    @property
    def boot_id(self) -> str:
        """Identifies this boot of the machine; "" if it is not known."""
        ...

    @property
    def process_start(self) -> float:
        """When this process started, on the clock of `boot`."""
        ...

    def boot(self) -> float:
        """Return the seconds since the machine booted; it never decreases."""
        ...

    def wall(self) -> float:
        """Return the time of day, in seconds since 1970; it may jump."""
        ...


class SystemClock:
    """This machine's clocks; without Linux's /proc, the process counts from the import of this module."""

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
        """See ProcessClock."""
        return self._now()

    def wall(self) -> float:
        """See ProcessClock."""
        return time.time()
