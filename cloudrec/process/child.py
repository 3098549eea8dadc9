"""A child process that is killed when its parent ends, and gets the signals that its parent gets."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from cloudrec.process.tether import die_with
from cloudrec_contract.exit_codes import BAD_CONFIG

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
STANDARD = (1, 2)


def start(command: Sequence[str], *, output: int | None = None) -> int:
    """Start a program and return its process id. From then on, this process passes its signals on to it.

    Args:
        command: the program and its arguments.
        output: the descriptor for its stdout and stderr; None for those of this process.
    """
    parent = os.getpid()
    # Signals are blocked until the handlers are set: one that arrives between would end this process, or
    # reach it but not the child.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    pid = os.fork()
    if pid == 0:
        _become(command, parent, output)
    for number in _FORWARDED:
        signal.signal(number, lambda received, _frame: _pass_on(pid, received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    return pid


def end_of(pid: int) -> int:
    """Wait until a child has ended; return its exit code, or the negative number of the fatal signal."""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def as_exit_code(code: int) -> int:
    """Return the exit code that a shell reports for it: 128 + the number of a signal."""
    return code if code >= 0 else 128 - code


def _pass_on(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _become(command: Sequence[str], parent: int, output: int | None) -> None:
    """Replace the forked child by the program; never returns."""
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
