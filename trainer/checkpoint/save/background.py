"""The trainer's side of the background writer: start the process, send it jobs, read its answers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.checkpoint.save.snapshot import Sender

if TYPE_CHECKING:
    from trainer.checkpoint.format.frames import Allocate, Group
    from trainer.checkpoint.save.table_stream import TableStream

SILENCE_S = 300.0  # without a heartbeat, the writer or the process that sends to it counts as dead
_PACKAGES = Path(__file__).parents[3]  # the folder that contains the trainer's package


@dataclass(frozen=True, slots=True)
class JobResult:
    """The outcome of a job: the writer's JSON, or no values if a process died during the job."""

    values: dict[str, Any]
    lost: bool = False

    @property
    def error(self) -> str | None:
        """Why it failed; such a job is not tried again."""
        error: str | None = self.values.get("error")
        return error

    @property
    def fenced(self) -> bool:
        """Whether it failed because a newer run has claimed the store."""
        return bool(self.values.get("fenced"))


class BackgroundWriter:
    """Writes one save at a time in another process, which is started on first use."""

    def __init__(self, *, silence_s: float = SILENCE_S) -> None:
        self._silence_s = silence_s
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._sender: Sender | None = None
        self._received = b""
        self._received_at = 0.0  # when the last byte from the writer came

    @property
    def pid(self) -> int | None:
        """The id of the writer's process; None before it is started."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process unless it is running; training continues while it starts."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self._control, theirs = socket.socketpair()
        paths = [str(_PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "trainer.checkpoint.save.writer", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            )

    def submit(
        self,
        job: dict[str, Any],
        groups: list[Group],
        *,
        fork: bool,
        allocate: Allocate = np.empty,
        tables: TableStream | None = None,
    ) -> None:
        """Freeze the groups in their current state and send them to the writer.

        Args:
            job: the writer's instructions, as JSON values.
            groups: the tensors to write.
            fork: freeze by a fork, if the system allows it; otherwise by copies.
            allocate: allocates the copies; the memory is in use until the job is answered.
            tables: a device's tables, sent after the groups.

        Raises:
            OSError: the writer cannot be started or reached.
        """
        self.start()
        assert self._control is not None  # noqa: S101 - for the type checker: `start` made it
        self._received_at = time.monotonic()
        text = json.dumps(job).encode()
        if self._sender is not None:
            self._sender.close()  # its save has ended, so nothing reads the rest of its stream
        reading, writing = os.pipe()
        try:
            self._sender = Sender(groups, writing, fork=fork, allocate=allocate, tables=tables)
            socket.send_fds(self._control, [len(text).to_bytes(8, "little")], [reading])
            self._control.sendall(text)
        finally:
            os.close(reading)

    def answer(self) -> JobResult | None:
        """Return the outcome of the job; None while it is in progress. Does not block."""
        if self._control is None:
            return JobResult({}, lost=True)
        if self._sender is not None:
            self._sender.reap()
        with suppress(BlockingIOError):
            while True:
                while b"\n" not in self._received:
                    more = self._receive(self._control)
                    if not more:
                        return JobResult({}, lost=True)
                    self._received += more
                    self._received_at = time.monotonic()
                line, _, self._received = self._received.partition(b"\n")
                if line:
                    values = json.loads(line)  # noqa: TID251 - of its child process
                    return JobResult(values, lost="lost" in values)
        silent = time.monotonic() > self._received_at + self._silence_s
        return JobResult({}, lost=True) if silent else None

    def _receive(self, control: socket.socket) -> bytes:
        try:
            return control.recv(1 << 16, socket.MSG_DONTWAIT)
        except ConnectionError:
            return b""

    def close(self) -> None:
        """Kill the process; a save in progress is then either committed completely or not at all."""
        if self._sender is not None:
            self._sender.close()
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._control = self._sender = None
        self._received = b""
