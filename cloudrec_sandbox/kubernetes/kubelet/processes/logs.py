"""The output of containers, line by line with the time, in a file for each start."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cloudrec_sandbox.core.clock import Clock

_BLOCK = 1 << 16
_LOOK_S = 1.0


class Log:
    """The output of one start; written in the kubelet's thread, read in others."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._rest = b""
        self._changed = threading.Condition()
        self._is_closed = False
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Add output; a line is stored once it is complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            stamp = self._stamp()
            with self._changed:
                self._file.write(b"".join(stamp + line + b"\n" for line in lines))
                self._changed.notify_all()

    def close(self) -> None:
        """End the log."""
        if self._rest:
            self.write(b"\n")
        with self._changed:
            self._is_closed = True
            self._file.close()
            self._changed.notify_all()

    def lines(self, *, follow: bool = False, tail: int | None = None) -> Iterator[bytes | None]:
        """Yield the lines; each has its time before the first space, and no line feed.

        Args:
            follow: continue until the container has ended; None means that there is nothing new now.
            tail: begin at the last `tail` lines; None for all.
        """
        with self.path.open("rb", buffering=0) as file:
            if tail is not None:
                _seek_tail(file.fileno(), tail)
            rest = b""
            while True:
                with self._changed:
                    # Read before the file: if it is set, the file has everything by then.
                    is_last = self._is_closed
                if block := file.read(_BLOCK):
                    *lines, rest = (rest + block).split(b"\n")
                    yield from lines
                elif not follow or is_last:
                    return
                else:
                    yield None
                    with self._changed:
                        if not self._is_closed and file.tell() == self.path.stat().st_size:
                            self._changed.wait(_LOOK_S)

    def end(self, most_bytes: int, most_lines: int) -> str:
        """Return the last lines without their times, as a termination message."""
        lines = [line.partition(b" ")[2] for line in self.lines(tail=most_lines) if line is not None]
        return b"\n".join(lines)[-most_bytes:].decode(errors="replace")

    def _stamp(self) -> bytes:
        return b"%.6f " % self._clock.now()


def _seek_tail(descriptor: int, lines: int) -> None:
    """Set the file's position to its last lines."""
    end = position = os.lseek(descriptor, 0, os.SEEK_END)
    found = 0
    while position > 0 and lines > 0:
        size = min(_BLOCK, position)
        position -= size
        block = os.pread(descriptor, size, position)
        at = len(block)
        if position + size == end and block.endswith(b"\n"):
            at -= 1
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            found += 1
            if found == lines:
                os.lseek(descriptor, position + at + 1, os.SEEK_SET)
                return
    os.lseek(descriptor, end if lines <= 0 else 0, os.SEEK_SET)
