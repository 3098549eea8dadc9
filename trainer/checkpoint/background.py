"""The trainer's side of the process that writes: start it, give it jobs, hear what became of them."""

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

from trainer.checkpoint.snapshot import Sender

if TYPE_CHECKING:
    from trainer.checkpoint.frames import Allocate, Group

SILENCE_S = 300.0  # without a sign of life a writer, or who sends to it, is taken for dead
_PACKAGES = Path(__file__).parents[2]  # where the trainer's own package lies


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a job: JSON from the writer, or nothing where a process died over it."""

    values: dict[str, Any]
    lost: bool = False

    @property
    def error(self) -> str | None:
        """Why it failed, for good."""
        error: str | None = self.values.get("error")
        return error

    @property
    def fenced(self) -> bool:
        """Whether it failed because a newer run writes there."""
        return bool(self.values.get("fenced"))


class BackgroundWriter:
    """Writes one save at a time in another process, which is started when it is first needed."""

    def __init__(self, *, silence_s: float = SILENCE_S) -> None:
        self._silence_s = silence_s
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._sender: Sender | None = None
        self._received = b""
        self._heard_at = 0.0

    @property
    def pid(self) -> int | None:
        """The process that writes, if there is one."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Have the process ready; it comes up while training goes on."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self._control, theirs = socket.socketpair()
        paths = [str(_PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trainer.checkpoint.writer", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            )

    def submit(
        self, job: dict[str, Any], groups: list[Group], *, fork: bool, allocate: Allocate = np.empty
    ) -> None:
        """Freeze the groups as they are now and have them written; OSError where that cannot begin.

        Args:
            job: what the writer is told.
            groups: what it writes.
            fork: freeze by a fork, where the system lets us; else by copies.
            allocate: gives the copies' memory, which is in use until the job is answered.
        """
        self.start()
        assert self._control is not None  # noqa: S101 - for the type checker: `start` made it
        self._heard_at = time.monotonic()
        text = json.dumps(job).encode()
        if self._sender is not None:
            self._sender.close()  # its save is over: nobody reads what it may still have to say
        reading, writing = os.pipe()
        try:
            self._sender = Sender(groups, writing, fork=fork, allocate=allocate)
            socket.send_fds(self._control, [len(text).to_bytes(8, "little")], [reading])
            self._control.sendall(text)
        finally:
            os.close(reading)

    def answer(self) -> Answer | None:
        """What became of the job; None while it is under way."""
        if self._control is None:
            return Answer({}, lost=True)
        if self._sender is not None:
            self._sender.reap()
        with suppress(BlockingIOError):
            while True:
                while b"\n" not in self._received:
                    more = self._hear(self._control)
                    if not more:
                        return Answer({}, lost=True)
                    self._received += more
                    self._heard_at = time.monotonic()
                line, _, self._received = self._received.partition(b"\n")
                if line:
                    values = json.loads(line)
                    return Answer(values, lost="lost" in values)
        silent = time.monotonic() > self._heard_at + self._silence_s
        return Answer({}, lost=True) if silent else None

    def _hear(self, control: socket.socket) -> bytes:
        try:
            return control.recv(1 << 16, socket.MSG_DONTWAIT)
        except ConnectionError:
            return b""

    def close(self) -> None:
        """End the process at once; what it was writing is not committed, or already is."""
        if self._sender is not None:
            self._sender.close()
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._control = self._sender = None
        self._received = b""
