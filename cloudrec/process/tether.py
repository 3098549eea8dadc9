"""Kills processes whose parent has ended, so that killing a parent leaves no orphans (Linux)."""

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

PARENT_PID = "CLOUDREC_PARENT_PID"  # the environment variable with the process id of the parent
ONE_SIGNAL = "CLOUDREC_ONE_SIGNAL"  # 1 if an engine signals whole process groups, and does so repeatedly
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent ends; ends it now if the parent has ended already.

    The setting survives an exec, but a forked child does not inherit it: each process of a chain must call
    this.

    Args:
        parent: the process that started this one.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # If the parent ended before the call, the kernel sends nothing: this process has another parent by now.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Return the process ids of this process's children; empty if /proc does not list them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123 - procfs
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def kill_children(*, spared: Container[int] = (), give_up_s: float = 5.0) -> int:
    """Kill and reap this process's children, and their children once adopted; return their number.

    Args:
        spared: process ids of children to keep.
        give_up_s: seconds after which new children are no longer killed.
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
    """Reap children that have ended; the first process of a container must, or they stay as zombies."""
    for pid in children():
        if pid not in spared:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
