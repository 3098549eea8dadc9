"""Which processes a stand-in may signal: the user's own, and only those that began after it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
HAS_PROC = (_PROC / "self").exists()
_ENDED = "Z"  # the state of a process whose parent has not asked for its exit code
_BEGAN = 19  # index of the start time, field 22 of /proc/PID/stat (proc(5)), in the fields after the name


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process; a later process with the same number is not equal to it.

    Attributes:
        pid: its number.
        began: when it started, in the kernel's ticks since the machine's start.
        owner: its user's number.
    """

    pid: int
    began: int
    owner: int


def find(pid: int) -> Process | None:
    """Return a process that runs; None if there is none, if it has ended, or if the system has no /proc."""
    folder = _PROC / str(pid)
    try:
        stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        owner = folder.stat().st_uid
    except OSError:
        return None
    # The name is in parentheses and may itself have spaces and parentheses: split after the last one.
    fields = stat.rpartition(")")[2].split()
    if fields[0] == _ENDED:
        return None
    return Process(pid=pid, began=int(fields[_BEGAN]), owner=owner)


def client(pid: int) -> Process:
    """Return a process that a stand-in may signal.

    Raises:
        ValueError: the process does not run, is another user's, or began before this one.
    """
    found, own = find(pid), find(os.getpid())
    if found is None or own is None:
        raise ValueError(f"pid is {pid}; no process of this machine has it, as far as /proc shows")
    if found.owner != own.owner:
        raise ValueError(f"pid is {pid}; that process belongs to another user")
    if pid == own.pid or found.began < own.began:
        raise ValueError(f"pid is {pid}; that process began before the stand-in, so it is no client of it")
    return found
