"""Reads the lines of a log, including those that are written later."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cloudrec.errors import DataError
from cloudrec.home import open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_BLOCK = 64 * 1024


def follow_lines(
    path: Path, *, tail: int | None, is_over: Callable[[], bool], poll_s: float
) -> Iterator[str]:
    """Yield the lines of a growing file, without their line ends, until no more are written.

    Args:
        path: the file; it need not exist yet.
        tail: number of lines of the present file to begin with; None for all of them.
        is_over: returns whether the file is complete. Lines that were written before are still read.
        poll_s: seconds between two reads of the file.
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
        with open_file(path) as file:
            file.seek(position)
            return file.read(_BLOCK)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
