"""Reads a log's lines, and goes on with the lines that are still to come."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_BLOCK = 64 * 1024


def follow_lines(
    path: Path, *, tail: int | None, is_over: Callable[[], bool], poll_s: float
) -> Iterator[str]:
    """Yield a growing file's lines, without their ends, until nothing can come any more.

    Args:
        path: the file; it may not be there yet.
        tail: begin with the last so many lines of what is there now; None for all of it.
        is_over: tells that nobody will write any more. What was written before it said so is still read.
        poll_s: seconds between two looks at the file.
    """
    position, rest = 0, b""
    if tail is not None:
        position = _start_of_tail(path, tail)
    while True:
        over = is_over()  # before the read, so that the read after it finds everything
        while block := _read(path, position):
            position += len(block)
            *lines, rest = (rest + block).split(b"\n")
            yield from (line.decode("utf-8", errors="replace").rstrip("\r") for line in lines)
        if over:
            break
        time.sleep(poll_s)
    if rest:
        yield rest.decode("utf-8", errors="replace")


def _start_of_tail(path: Path, tail: int) -> int:
    """Return the offset in bytes at which the last `tail` lines begin, reading from the end backwards."""
    try:
        end = path.stat().st_size
    except FileNotFoundError:
        return 0
    if not end or not tail:
        return end
    left = tail + (_read(path, end - 1) == b"\n")  # the end of the last line does not begin another one
    position = end
    while position > 0:
        start = max(position - _BLOCK, 0)
        block = _read(path, start)[: position - start]
        at = len(block)
        while left and (at := block.rfind(b"\n", 0, at)) >= 0:
            left -= 1
        if not left:
            return start + at + 1
        position = start
    return 0


def _read(path: Path, position: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(_BLOCK)
    except FileNotFoundError:
        return b""
