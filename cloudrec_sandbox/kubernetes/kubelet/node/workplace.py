"""The folder for a kubelet's files; the next kubelet removes the folder that a killed one left."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "cloudrec-kubelet-"


class Workplace:
    """A folder for this process; a file lock shows other processes whether this one is alive."""

    def __init__(self) -> None:
        place = Path(tempfile.gettempdir())
        for other in place.glob(f"{_PREFIX}*"):
            _remove_if_left(other)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_if_left(folder: Path) -> None:
    with suppress(OSError):  # it is another user's, already gone, or being made
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
