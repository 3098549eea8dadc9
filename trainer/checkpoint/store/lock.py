"""The lock of a checkpoint folder: one run on this machine writes to it at a time."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from typing import TYPE_CHECKING

from trainer.base.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME = ".lock"
_PATIENCE_S = 3.0  # a killed process and its background writer take a moment to end
_PAUSE_S = 0.05


class DirectoryLock:
    """Held by this process until `release`, or until the process ends for any reason."""

    def __init__(self, directory: Path) -> None:
        """Take the lock; CheckpointError names the process that holds it."""
        path = directory / FILE_NAME
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + _PATIENCE_S
        while not _locked(self._descriptor):
            if time.monotonic() > deadline:
                holder = (
                    os.read(self._descriptor, 200).decode(errors="replace").strip() or "an unknown process"
                )
                self.release()
                raise CheckpointError(
                    f"{directory}: another run writes its checkpoints here ({holder}); "
                    "wait for it, stop it, or give another checkpoint_dir"
                )
            time.sleep(_PAUSE_S)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock; calling it again has no effect."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _locked(descriptor: int) -> bool:
    """Try to take the lock; False if another process holds it."""
    # flock, not a file with a process id: the kernel releases it when its holder dies.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
