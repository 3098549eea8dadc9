"""A started container: a real process, a built-in program, or a simulation."""

from __future__ import annotations

import itertools
import json
import os
import selectors
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import cloudrec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_CHUNK = 1 << 16
_SOURCES = Path(cloudrec.__file__).resolve().parent.parent


class Listener(Protocol):
    """Is called for each change of a container; always in the kubelet's thread."""

    def started(self, pid: int) -> None:
        """Note that it runs; `pid` is 0 if there is no process."""

    def refused(self, reason: str, message: str) -> None:
        """Note that it could not be started."""

    def ended(self, code: int) -> None:
        """Note that it has ended."""

    def said(self, data: bytes) -> None:
        """Take what it has printed."""


class Running(Protocol):
    """A container that was started."""

    def signal(self, number: int) -> None:
        """Send a signal to its first process."""

    def execute(self, command: Sequence[str], done: Callable[[int, str], None]) -> None:
        """Run a command in it; `done` gets the exit code and the output."""

    def kill(self) -> None:
        """End it at once; the listener is not called."""


class Process:
    """A container that is a process tree on this machine; it dies with the thread that started it."""

    def __init__(
        self,
        folder: Path,
        spec: Mapping[str, Any],
        *,
        selector: selectors.BaseSelector,
        listener: Listener,
    ) -> None:
        """Start it; the calling thread must live as long as it.

        Args:
            folder: an empty folder for it.
            spec: see `container`.
            selector: gets its pipes; `read` is the data of its keys.
            listener: is called for its changes.
        """
        self._listener = listener
        self._selector = selector
        self._rest = b""
        self._numbers = itertools.count()
        self._waiting: dict[str, Callable[[int, str], None]] = {}
        self._said_end = False
        self._code: int | None = None
        (folder / "root").mkdir(parents=True)
        self.spec_path = path = folder / "spec.json"
        path.write_text(json.dumps({**spec, "root": str(folder / "root")}), encoding="utf-8")
        self._shim = subprocess.Popen(
            [sys.executable, "-PsSm", "cloudrec_sandbox.kubernetes.kubelet.container", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"PYTHONPATH": str(_SOURCES)},
            start_new_session=True,
            pass_fds=[] if spec["network"] is None else [spec["network"]],
        )
        assert self._shim.stdout and self._shim.stderr  # noqa: S101, PT018 - both are pipes
        self._files = {self._shim.stdout: self._on_events, self._shim.stderr: listener.said}
        for file in self._files:
            os.set_blocking(file.fileno(), False)
            selector.register(file, selectors.EVENT_READ, self._read)

    @property
    def pid(self) -> int:
        """Return the process that follows the container, in whose namespaces its programs start."""
        return self._shim.pid

    def signal(self, number: int) -> None:
        """Send a signal to its first process; before that has started, any signal ends it."""
        self._order({"signal": number})

    def execute(self, command: Sequence[str], done: Callable[[int, str], None]) -> None:
        """Run a command in it, in its namespaces and as its user."""
        identity = str(next(self._numbers))
        self._waiting[identity] = done
        self._order({"exec": identity, "command": list(command)})

    def kill(self) -> None:
        """End it at once, in any state, and wait for its end."""
        self._shim.kill()
        self._shim.wait()
        self._close_stdin()
        for file in list(self._files):
            self._close(file)

    def _order(self, command: Mapping[str, Any]) -> None:
        assert self._shim.stdin  # noqa: S101 - it is a pipe
        with suppress(OSError):  # the container has just ended
            self._shim.stdin.write((json.dumps(command) + "\n").encode())
            self._shim.stdin.flush()

    def _read(self, file: Any) -> None:  # noqa: ANN401 - a pipe
        take = self._files.get(file)
        if take is None:
            return
        try:
            data = os.read(file.fileno(), _CHUNK)
        except BlockingIOError:
            return
        if data:
            take(data)
        else:
            self._close(file)
            if not self._files:
                self._end()

    def _close(self, file: Any) -> None:  # noqa: ANN401 - a pipe
        del self._files[file]
        self._selector.unregister(file)
        file.close()

    def _end(self) -> None:
        """Report the end: both pipes are closed, so all output has been read."""
        code = self._shim.wait()
        self._close_stdin()
        for done in self._waiting.values():
            done(128 + 9, "the container has ended")
        if not self._said_end:
            self._said_end = True
            killed = 128 + 9  # the shim was killed before it could report
            self._listener.ended(self._code if self._code is not None else killed if code else 0)

    def _close_stdin(self) -> None:
        with suppress(OSError):
            if self._shim.stdin:
                self._shim.stdin.close()

    def _on_events(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        if event["event"] == "started":
            self._listener.started(event["pid"])
        elif event["event"] == "refused":
            self._said_end = True
            self._listener.refused(event["reason"], event["message"])
        elif event["event"] == "exec":
            self._waiting.pop(event["id"])(event["code"], event["output"])
        else:
            self._code = event["code"]
