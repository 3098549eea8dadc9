"""Copies a program's output to a log, and line by line to this process's output."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_CHUNK = 65536
_LINE_LIMIT = 65536  # a longer line is split
_LEAVE_S = 1.0  # wait after a program's end for its child processes, which still have its output open
_OUTPUT = 1


class Tee:
    """A pipe for a program's output: give it `descriptor`, then `listen`; use it as a context.

    The thread is started after the program, since a fork of a process with threads may deadlock.

    Args:
        log: the file that the output is appended to.
        prefix: the text before each line on this process's output.
        kept: lines with this beginning are copied to the output unchanged, and not to the log.
    """

    def __init__(self, log: Path, *, prefix: str, kept: str | None = None) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._prefix = prefix.encode()
        self._kept = kept.encode() if kept else None
        self._lock = threading.Lock()
        self._reader, self.descriptor = os.pipe()
        self._thread = threading.Thread(target=self._pump, name="tee", daemon=True)

    def __enter__(self) -> Self:
        return self

    def listen(self) -> None:
        """Start the thread that copies the program's output."""
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)
        if self._thread.is_alive():
            self._thread.join(_LEAVE_S)

    def say(self, line: str) -> None:
        """Write a line of this process to the log and to the output."""
        self._put(line.encode() + b"\n")

    def _pump(self) -> None:
        rest = b""
        while chunk := os.read(self._reader, _CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._put(line + b"\n")
            if len(rest) > _LINE_LIMIT:
                self._put(rest + b"\n")
                rest = b""
        if rest:
            self._put(rest + b"\n")
        os.close(self._reader)

    def _put(self, line: bytes) -> None:
        """Write a line to the log and to the output; a full disk or a closed pipe is ignored."""
        with self._lock:
            if self._kept is not None and line.startswith(self._kept):
                with suppress(OSError):
                    os.write(_OUTPUT, line)
                return
            with suppress(OSError):
                os.write(self._log, line)
            with suppress(OSError):
                os.write(_OUTPUT, self._prefix + line)
