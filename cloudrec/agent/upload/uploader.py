"""Uploads a pod's files: a thread copies those that have changed to RESULTS every few seconds.

pods/POD/{events.jsonl,agent.log,rank-N.log,flight_recorder/}            files of each pod
metrics.jsonl goodput.jsonl sharding_plan.json summary.json tensorboard/ by the pod that leads (see `leader`)
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from cloudrec.agent.lease import leader
from cloudrec.errors import StorageError
from cloudrec.launchers.base.results_store import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cloudrec.launchers.base.results_store import Place
    from cloudrec.launchers.base.run_folder import RunFolder

_PAUSE_S = 3.0
_NEAR_PAUSE_S = 0.5  # for a store that is a file system
_AGAIN_S = 1.0
_BYTES_A_PAUSE = 4 * 2**20  # larger files are copied less often: each copy sends the whole file
_RUN_FILES = ("sharding_plan.json", "metrics.jsonl", "goodput.jsonl")


class Keeper:
    """Copies files in the background from `start` to `finish`. Errors of the store are reported and retried.

    Args:
        folder: the run's folder in this pod.
        place: RESULTS.
        pod: the pod's name, the folder of its files below `pods/`.
        say: prints a line to the pod's log; each error once.
    """

    def __init__(self, folder: RunFolder, place: Place, *, pod: str, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._place = place
        self._pause_s = _PAUSE_S if is_remote(place.uri) else _NEAR_PAUSE_S
        self._pod = pod
        self._say = say
        self._kept: dict[str, tuple[int, int]] = {}  # by name: size and time of change, when it was copied
        self._due: dict[str, float] = {}  # by name: when a large file may be copied again
        self._complaint = ""
        self._deadline = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self, *, within_s: float) -> bool:
        """Copy all changed files a last time, and retry after errors; return False if the time runs out."""
        self._deadline = time.monotonic() + within_s
        self._ending.set()
        self._thread.join(within_s)
        return not self._thread.is_alive() and not self._complaint

    def _run(self) -> None:
        while not self._ending.wait(self._pause_s):
            self._pass()
        while True:
            self._due.clear()  # the last copy has every file, also large ones
            self._pass()
            if not self._complaint or time.monotonic() + _AGAIN_S > self._deadline:
                return
            time.sleep(_AGAIN_S)

    def _pass(self) -> None:
        try:
            for name, path in self._own_files():
                self._keep(name, path)
            # The claims are listed only if a file has changed: each list is a request to the store.
            claim = leader.held(self._folder)
            changed = [each for each in self._run_files() if self._has_changed(*each)] if claim else []
            if claim and changed and leader.is_newest(self._place, claim):
                for name, path in changed:
                    self._keep(name, path)
        except StorageError as error:
            self._complain(error.message)
        except OSError as error:
            self._complain(str(error))
        else:
            self._complaint = ""

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            self._say(f"warning: files are not uploaded for now: {text}")

    def _own_files(self) -> Iterator[tuple[str, Path]]:
        own = f"pods/{self._pod}"
        yield f"{own}/events.jsonl", self._folder.ledger.path
        for path in sorted(self._folder.logs.glob("*.log")):
            yield f"{own}/{path.name}", path
        for path in sorted(self._folder.path.glob("flight_recorder/*")):
            yield f"{own}/flight_recorder/{path.name}", path

    def _run_files(self) -> Iterator[tuple[str, Path]]:
        """Yield the run's files; the summary last, so that a reader of it finds the others complete."""
        for name in _RUN_FILES:
            yield name, self._folder.path / name
        for path in sorted(self._folder.path.glob("tensorboard/**/*")):
            if path.is_file():
                yield path.relative_to(self._folder.path).as_posix(), path
        yield "summary.json", self._folder.summary_file

    def _has_changed(self, name: str, path: Path) -> bool:
        return _state(path) not in (None, self._kept.get(name))

    def _keep(self, name: str, path: Path) -> None:
        state = _state(path)
        if state is None or state == self._kept.get(name) or time.monotonic() < self._due.get(name, 0.0):
            return
        self._place.write(name, path.read_bytes())
        self._kept[name] = state
        self._due[name] = time.monotonic() + _PAUSE_S * (state[0] // _BYTES_A_PAUSE)


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns
