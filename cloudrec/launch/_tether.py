"""Ties a process's life to its parent's, so that killing any parent leaves no orphan behind (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

PARENT_PID = "CLOUDREC_PARENT_PID"  # the environment variable by which a parent says who it is
ONE_SIGNAL = "CLOUDREC_ONE_SIGNAL"  # likewise: set to 1 where an engine signals whole groups, again and again
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with(parent: int) -> None:
    """Have the kernel kill this process the moment its parent ends, which may be right now.

    The setting outlives an exec, but not a fork: every process of a chain asks for itself.

    Args:
        parent: the process that started this one. When it is the parent no longer, it died before
            the kernel was asked, and this process ends at once.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Return the process ids of this process's children (none where /proc does not tell)."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123 - procfs
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def kill_children(*, spared: Container[int] = (), give_up_s: float = 5.0) -> int:
    """Kill and reap this process's children, and theirs as they are adopted; return how many there were.

    Args:
        spared: process ids that are left alone.
        give_up_s: how long those that appear meanwhile are followed.
    """
    killed, give_up = 0, time.monotonic() + give_up_s
    while orphans := [pid for pid in children() if pid not in spared]:
        for pid in orphans:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        killed += len(orphans)
        if time.monotonic() > give_up:
            break
    return killed


def reap(*, spared: Container[int] = ()) -> None:
    """Collect children that have ended by themselves, as the first process of a container must."""
    for pid in children():
        if pid not in spared:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
