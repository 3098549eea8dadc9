"""Runs of bytes in a store's objects: reading them, and comparing their checksums in the same pass."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from isal import isal_zlib

from trainer.checkpoint.format.commit import DamagedError, data_name, read_manifest
from trainer.checkpoint.store.base import MissingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from trainer.checkpoint.format.commit import ManifestReference, Part
    from trainer.checkpoint.store.base import Store

THREADS = min(4, len(os.sched_getaffinity(0)))  # that read in parallel
CHUNK_BYTES = 8 << 20  # read at a time if the bytes cannot be read straight into their tensor
_SUMMED_BYTES = 1 << 20  # read from a file at a time: still in the processor's cache when they are summed


@dataclass(frozen=True, slots=True)
class Run:
    """A range of bytes in a file, with their checksum."""

    file: str
    position: int  # bytes from the start of the file
    length: int
    crc32: int
    content: str = field(compare=False)  # a description for messages


def values_run(file: str, part: Part) -> Run:
    """Return the run of a part's values."""
    return Run(file, part.position, part.length, part.crc32, f"{part.name} at {part.offsets}")


def rows_run(file: str, part: Part) -> Run | None:
    """Return the run of a part's row numbers, which parts may share; None if the part holds all rows."""
    rows = part.rows
    if rows is None:
        return None
    return Run(file, rows.position, rows.length, rows.crc32, f"{part.name} at {part.offsets}")


def runs_of(parts: Iterable[tuple[str, Part]]) -> list[Run]:
    """Return every run of (file, part) pairs once, the longest first, so that ranks share them evenly."""
    found: dict[Run, None] = {}
    for file, part in parts:
        rows = rows_run(file, part)
        found |= dict.fromkeys([values_run(file, part), *([] if rows is None else [rows])])
    return sorted(found, key=lambda run: (-run.length, run.file, run.position, run.crc32))


class Files:
    """Reads a store's objects; use it as a context.

    With `checked`, every run that is read whole is compared with its checksum, and added to it if they match.
    """

    def __init__(self, store: Store, checked: set[Run] | None = None) -> None:
        self.store = store
        self.checked = checked
        self._stack = ExitStack()
        self._open: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @contextmanager
    def reading(self, run: Run, *, whole: bool) -> Iterator[RunReader]:
        """Open a run for reading; `whole` promises to read all of it, in order.

        Raises:
            DamagedError: on leaving the context: the checksum of a run read whole does not match.
        """
        reader = RunReader(self, run, summing=whole and self.checked is not None)
        yield reader
        reader.finish()

    def read_into(self, name: str, position: int, target: memoryview) -> None:
        """Fill `target` (bytes) from an object; DamagedError if the object is missing or too short."""
        try:
            missing = len(target) - self._read_into(name, position, target)
        except (OSError, MissingError) as error:
            raise DamagedError(f"{self.store.uri}/{name}: missing or unreadable: {error}") from error
        if missing:
            raise DamagedError(f"{self.store.uri}/{name}: ends {missing} bytes too early")

    def _read_into(self, name: str, position: int, target: memoryview) -> int:
        path = self.store.readable_file(name)
        if path is None:
            data = self.store.read(name, position, len(target))
            target[: len(data)] = data
            return len(data)
        if name not in self._open:
            descriptor = os.open(path, os.O_RDONLY)
            self._stack.callback(os.close, descriptor)
            self._open[name] = descriptor
        done = 0
        while done < len(target):
            count = os.preadv(self._open[name], [target[done:]], position + done)
            if not count:
                break
            done += count
        return done


class RunReader:
    """Reads a run, and computes its checksum on the way if all of it is going to be read."""

    def __init__(self, files: Files, run: Run, *, summing: bool) -> None:
        self._files = files
        self._run = run
        self._summing = summing
        self._found = 0
        self._is_local = files.store.readable_file(run.file) is not None

    def read_into(self, start: int, target: memoryview) -> None:
        """Fill `target` with the run's bytes from `start`."""
        # An object store gets one request, since each costs a round trip; a file, cache-sized pieces.
        step = _SUMMED_BYTES if self._summing and self._is_local else max(len(target), 1)
        for low in range(0, len(target), step):
            piece = target[low : low + step]
            self._files.read_into(self._run.file, self._run.position + start + low, piece)
            if self._summing:
                self._found = isal_zlib.crc32(piece, self._found)

    def read(self, start: int, length: int) -> bytearray:
        """Return `length` bytes of the run from `start`."""
        data = bytearray(length)
        self.read_into(start, memoryview(data))
        return data

    def finish(self) -> None:
        """Compare the checksum after the last read."""
        if not self._summing or self._files.checked is None:
            return
        if self._found != self._run.crc32:
            raise DamagedError(
                f"{self._files.store.uri}/{self._run.file}: the bytes of {self._run.content} have changed"
            )
        self._files.checked.add(self._run)


def verify(store: Store, reference: ManifestReference) -> None:
    """Read a manifest and its whole data file; DamagedError unless every checksum matches."""
    manifest = read_manifest(store, reference)
    check_size(store, reference)
    verify_runs(store, runs_of((manifest.file, part) for part in manifest.parts))


def check_size(store: Store, reference: ManifestReference) -> None:
    """Raise DamagedError unless the data file of a manifest has the size in the commit."""
    name = data_name(reference.name)
    size = store.sizes(name).get(name)
    if size is None:
        raise DamagedError(f"{store.uri}/{name}: missing")
    if size != reference.bytes:
        raise DamagedError(f"{store.uri}/{name}: {size} bytes, {reference.bytes} were written")


def verify_runs(store: Store, runs: Iterable[Run]) -> None:
    """Read runs; DamagedError unless all checksums match."""
    with Files(store, set()) as files, ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(lambda run: _verify_run(files, run), runs):
            pass  # the first error is raised here


def _verify_run(files: Files, run: Run) -> None:
    buffer = memoryview(bytearray(min(run.length, CHUNK_BYTES)))
    with files.reading(run, whole=True) as reader:
        for start in range(0, run.length, CHUNK_BYTES):
            reader.read_into(start, buffer[: min(CHUNK_BYTES, run.length - start)])
