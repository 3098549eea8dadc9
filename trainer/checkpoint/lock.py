"""One run at a time writes to a checkpoint folder."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from typing import TYPE_CHECKING

from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME = ".lock"
_PATIENCE_S = 3.0  # a process that was killed, and the writer that it had forked, take a moment to go
_PAUSE_S = 0.05


class DirectoryLock:
    """Held by this process until `release` or its end, however it ends."""

    def __init__(self, directory: Path) -> None:
        """Take the lock, or tell who has it."""
        path = directory / FILE_NAME
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + _PATIENCE_S
        while not _locked(self._descriptor):
            if time.monotonic() > deadline:
                told = os.read(self._descriptor, 200).decode(errors="replace").strip()
                holder = told or "an unknown process"
                self.release()
                raise CheckpointError(
                    f"{directory}: another run writes its checkpoints here ({holder}); "
                    "wait for it, stop it, or give another checkpoint_dir"
                )
            time.sleep(_PAUSE_S)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Give the folder to the next run; more than once does no harm."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _locked(descriptor: int) -> bool:
    """Try to take the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
