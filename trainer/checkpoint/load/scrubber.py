"""The scrubber reads the files of the newest checkpoint again and again, to find damage before a resume.

It is a thread of rank 0 that reads at a low rate and uses no tensor and no device. It reads the store itself,
not this machine's copies. What it finds is reported by the loop; the next save then begins a new chain.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from trainer.base.errors import CheckpointError
from trainer.checkpoint.format.commit import DamagedError, read_manifest
from trainer.checkpoint.format.runs import Files, check_size, runs_of
from trainer.checkpoint.store.base import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer.checkpoint.format.commit import ManifestReference
    from trainer.checkpoint.format.runs import Run
    from trainer.checkpoint.history import Chain

_LOG = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20
_POLL_S = 1.0
_TROUBLE_S = 60.0  # after an error of the store


class Scrubber:
    """Verifies the files of a chain in the background.

    Args:
        store: the store of the checkpoints.
        chain: returns the chain that the next save is built upon; called in the thread.
        bytes_per_s: the rate of reading.
        again_s: seconds until a file that was intact is read again.
    """

    def __init__(
        self, store: Store, chain: Callable[[], Chain | None], *, bytes_per_s: float, again_s: float
    ) -> None:
        self._store = Store(store.objects)  # without the copies of this machine
        self._chain = chain
        self._bytes_per_s = bytes_per_s
        self._again_s = again_s
        self._checked: dict[str, float] = {}
        self._found: dict[str, str] = {}
        self._unreported: list[str] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoint-scrubber", daemon=True)
        self.read_bytes = 0
        self._thread.start()

    @property
    def found(self) -> Mapping[str, str]:
        """The damage to each manifest or its data file, by the manifest's name."""
        return dict(self._found)

    def take_reports(self) -> list[str]:
        """Return the damage that was found since the last call."""
        reports, self._unreported = self._unreported, []
        return reports

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._end.wait(pause_s):
            pause_s = _POLL_S
            reference = self._due()
            if reference is None:
                continue
            try:
                self._check(reference)
                pause_s = 0.0
            except CheckpointError as error:  # the store does not answer: that is no damage
                _LOG.debug("the scrubber waits: %s", error)
                pause_s = _TROUBLE_S
            except Exception:  # noqa: BLE001 - it must not end with one file
                _LOG.exception("the scrubber of checkpoints passes over %s", reference.name)
                self._checked[reference.name] = time.monotonic()

    def _due(self) -> ManifestReference | None:
        """Return the file of the chain that was read longest ago, if that is long enough."""
        chain = self._chain()
        live = {} if chain is None else {each.name: each for layer in chain.layers for each in layer}
        self._checked = {name: when for name, when in self._checked.items() if name in live}
        left = [each for name, each in live.items() if name not in self._found]
        soonest = min(left, key=lambda each: self._checked.get(each.name, float("-inf")), default=None)
        if soonest is None:
            return None
        last = self._checked.get(soonest.name)
        return soonest if last is None or time.monotonic() - last >= self._again_s else None

    def _check(self, reference: ManifestReference) -> None:
        for is_last in (False, True):  # a file is damaged if it is found so twice
            try:
                self._verify(reference)
            except DamagedError as error:
                if is_last and self._is_live(reference):
                    self._found[reference.name] = str(error)
                    self._unreported.append(str(error))
            else:
                break
        self._checked[reference.name] = time.monotonic()

    def _is_live(self, reference: ManifestReference) -> bool:
        """Return whether the chain still has the file: one that a save has replaced is removed."""
        chain = self._chain()
        return chain is not None and any(reference in layer for layer in chain.layers)

    def _verify(self, reference: ManifestReference) -> None:
        manifest = read_manifest(self._store, reference)
        check_size(self._store, reference)
        self._forget_cached(manifest.file)
        with Files(self._store, set()) as files:
            for run in runs_of((manifest.file, part) for part in manifest.parts):
                self._read(files, run)

    def _read(self, files: Files, run: Run) -> None:
        buffer = memoryview(bytearray(min(run.length, _CHUNK_BYTES)))
        with files.reading(run, whole=True) as reader:
            for start in range(0, run.length, _CHUNK_BYTES):
                piece = buffer[: min(_CHUNK_BYTES, run.length - start)]
                reader.read_into(start, piece)
                self.read_bytes += len(piece)
                if self._end.wait(len(piece) / self._bytes_per_s):
                    raise CheckpointError("the run ends")

    def _forget_cached(self, name: str) -> None:
        """Let the next read of a file come from the disk: in memory, bytes do not rot with it."""
        path = self._store.readable_file(name)
        if path is None or not hasattr(os, "posix_fadvise"):
            return
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:  # the verification says what is wrong
            return
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
