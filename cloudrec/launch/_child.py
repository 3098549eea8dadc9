"""A trainer below its thin parent: started by fork, it dies with it, and gets the signals that it gets."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from cloudrec.launch._tether import die_with
from cloudrec.launch.verdict import BAD_CONFIG

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
STANDARD = (1, 2)


def start(command: Sequence[str], *, output: int | None = None) -> int:
    """Start a program; signals that arrive here are passed on from the moment it exists.

    Args:
        command: the program and its arguments.
        output: the descriptor that it prints to; what this process prints to when left out.
    """
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    pid = os.fork()
    if pid == 0:
        _become(command, parent, output)
    for number in _FORWARDED:
        signal.signal(number, lambda received, _frame: _pass_on(pid, received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    return pid


def end_of(pid: int) -> int:
    """Wait until it has ended; its exit code, or the negative number of the signal that killed it."""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def as_exit_code(code: int) -> int:
    """Return the code that a shell would end with for it."""
    return code if code >= 0 else 128 - code


def _pass_on(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _become(command: Sequence[str], parent: int, output: int | None) -> None:
    """Turn the forked child into the program; it never returns."""
    try:
        die_with(parent)
        if output is not None:
            for standard in STANDARD:
                os.dup2(output, standard)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        os.execvp(command[0], list(command))  # noqa: S606 - an argument list, no shell
    except OSError as error:
        print(f"error: cannot start {command[0]}: {error.strerror}", flush=True)
    os._exit(BAD_CONFIG)
