"""Waiting for a pipe or a socket, whatever the number of its descriptor."""

from __future__ import annotations

import select
from typing import Protocol


class Descriptor(Protocol):
    """What has a file descriptor: a socket, a file."""

    def fileno(self) -> int:
        """Return the descriptor."""
        ...


def is_readable(file: Descriptor | int, *, timeout_s: float) -> bool:
    """Return whether a pipe or socket has data or its end within a time; waits so long at most.

    `select.select` takes no descriptor above 1,023: a process that has many files open, such as a trainer
    with a data loader of the user's, would fail here with a ValueError.
    """
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
