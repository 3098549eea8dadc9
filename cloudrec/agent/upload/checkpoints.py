"""Copies a script's folder of checkpoints to the storage, and back before its ranks start on another node.

A script writes files as on its own disk, in any format. Files are copied in the order in which they were
written, so one that names others, as DCP's `.metadata`, comes after them. A file that still changes waits.
A script that writes to CLOUDREC_CHECKPOINTS_URI itself leaves the folder empty.
"""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import unquote

from cloudrec.errors import StorageError
from cloudrec.safe_path import UnsafeNameError, safe_join

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cloudrec.launchers.base.results_store import Place

_PAUSE_S = 3.0
_AGAIN_S = 1.0
_THREADS = 8
# A store has no names with a part that begins with a dot.
_HIDDEN = re.compile(r"(^|/)\.")


class CheckpointFolder:
    """The folder of one node and its copy in the storage; from `start` to `finish` a thread copies files.

    Args:
        folder: the folder.
        place: its copy in the storage.
        say: prints a line to the pod's log.
        pause_s: seconds between two looks at the folder.
    """

    def __init__(
        self, folder: Path, place: Place, *, say: Callable[[str], None], pause_s: float = _PAUSE_S
    ) -> None:
        self._folder = folder
        self._place = place
        self._say = say
        self._pause_s = pause_s
        self._copied: dict[str, tuple[int, int]] = {}  # by name: size and time of change
        self._seen: dict[str, tuple[int, int]] = {}  # the same at the last look
        self._complaint = ""
        self._deadline = float("inf")
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def restore(self) -> None:
        """Copy the files from the storage that this node does not have; StorageError if that fails."""
        self._folder.mkdir(parents=True, exist_ok=True)
        sizes = self._place.sizes("")
        missing = [name for name, size in sizes.items() if not self._has(name, size)]
        if not missing:
            return
        total = sum(sizes[name] for name in missing)
        self._say(f"restoring {len(missing)} files of checkpoints, {total / 1e9:.3f} GB")
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._fetch, missing))

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self, *, within_s: float) -> bool:
        """Copy all changed files a last time; return False if the time runs out or the storage refuses."""
        if self._thread.ident is None:
            return True
        self._deadline = time.monotonic() + within_s
        self._ending.set()
        self._thread.join(within_s)
        return not self._thread.is_alive() and not self._complaint

    def _path(self, name: str) -> Path | None:
        try:
            return safe_join(self._folder, unquote(name))
        except UnsafeNameError:
            return None

    def _has(self, name: str, size: int) -> bool:
        path = self._path(name)
        return path is None or (path.is_file() and path.stat().st_size == size)

    def _fetch(self, name: str) -> None:
        path = self._path(name)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        self._place.fetch(name, path)
        state = _state(path)
        if state:
            self._copied[name] = state

    def _run(self) -> None:
        while not self._ending.wait(self._pause_s):
            self._look(is_last=False)
        while True:
            self._look(is_last=True)
            if not self._complaint or time.monotonic() + _AGAIN_S > self._deadline:
                return
            time.sleep(_AGAIN_S)

    def _look(self, *, is_last: bool) -> None:
        try:
            now = self._files()
            changed = [name for name in now if now[name] != self._copied.get(name)]
            for name in sorted(changed, key=lambda name: now[name][1]):
                if is_last or now[name] == self._seen.get(name):
                    self._copy(name, now[name])
            for name in [name for name in self._copied if name not in now]:
                self._place.remove(name)
                del self._copied[name]
            self._seen = now
        except (StorageError, OSError) as error:
            text = error.message if isinstance(error, StorageError) else str(error)
            if text != self._complaint:
                self._say(f"warning: checkpoints are not copied for now: {text}")
            self._complaint = text
        else:
            self._complaint = ""

    def _copy(self, name: str, state: tuple[int, int]) -> None:
        path = self._path(name)
        if path is None:
            return
        self._place.send(name, path)
        if _state(path) == state:  # else it changed meanwhile, and is copied again
            self._copied[name] = state

    def _files(self) -> dict[str, tuple[int, int]]:
        """Return the files of the folder by their names in the storage, with size and time of change."""
        found: dict[str, tuple[int, int]] = {}
        for path in self._folder.rglob("*"):
            state = _state(path) if path.is_file() and not path.is_symlink() else None
            if state:
                found[_stored(path.relative_to(self._folder).as_posix())] = state
        return found


def _stored(name: str) -> str:
    """Return a file's name in the storage."""
    return _HIDDEN.sub(r"\1%2E", name.replace("%", "%25"))


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns
