"""Copies of checkpoint files on this machine's own disk, which a resume reads instead of the bucket's.

NEAR/DIGEST-OF-THE-URI/step-00000010/rank-00000.3.1.bin    what this machine wrote, byte for byte

The bucket stays the truth: commits and manifests are read there alone, and a copy is used only if its bytes
have the size and the checksums in the bucket's manifest. A copy that is missing, damaged or of another run
costs one request, as without it; a full disk costs the copy. This module must not import torch.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from isal import isal_zlib

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_LOG = logging.getLogger(__name__)
_PIECE_BYTES = 1 << 20
_FREE_SHARE = 0.5  # of the free space of the disk, for the copies of all ranks
_DRAFTS = ".drafts"
_DATA = re.compile(r"step-\d+/rank-(?P<rank>\d+)\.(?P<save>\d+\.\d+)\.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class NearOptions:
    """Where a rank keeps copies.

    Args:
        folder: a folder on the machine's own disk, which its ranks share.
        limit_bytes: of this rank's copies; None for its share of half of the free space.
        ranks: of this machine, which share the free space.
    """

    folder: str
    limit_bytes: int | None = None
    ranks: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return JSON values for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any] | None) -> Self | None:
        """Return the options that `to_json` described; None for None."""
        return None if values is None else cls(**values)


class NearTier:
    """This machine's copies of one store's data files.

    Args:
        options: where they are.
        uri: of the store.
    """

    def __init__(self, options: NearOptions, uri: str) -> None:
        self._options = options
        self._root = Path(options.folder) / hashlib.sha256(uri.encode()).hexdigest()[:16]
        self._known: dict[str, tuple[int, tuple[tuple[int, int, int], ...]]] = {}
        self._usable: dict[str, Path | None] = {}
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self.read_bytes = 0  # of the copies that were found usable

    def copy(self, name: str) -> NearCopy | None:
        """Begin a copy of an object that is about to be written; None if it is no data file."""
        found = _DATA.fullmatch(name)
        if found is None:
            return None
        draft = self._root / _DRAFTS / f"{found['rank']}.bin"  # one a rank: a dead writer's is replaced
        return NearCopy(draft, self._root / name, self._room(found["rank"]))

    def describe(self, name: str, size: int, runs: Iterable[tuple[int, int, int]]) -> None:
        """Say what an object holds according to its manifest.

        Args:
            name: the object.
            size: in bytes.
            runs: position, length and checksum of its parts.
        """
        self._known[name] = (size, tuple(dict.fromkeys(runs)))

    def usable(self, name: str) -> Path | None:
        """Return the path of a copy that equals the object that was described; None if there is none."""
        if name not in self._known:
            return None
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._usable:
                self._usable[name] = self._check(name)
            return self._usable[name]

    def prune(self, saves: Collection[str]) -> None:
        """Remove all copies but those of some saves, as OWNER.NUMBER; errors are ignored."""
        with suppress(OSError):
            for path in self._root.glob("step-*/*"):
                found = _DATA.fullmatch(path.relative_to(self._root).as_posix())
                if found is None or found["save"] not in saves:
                    path.unlink(missing_ok=True)
                    with suppress(OSError):  # another file is in it
                        path.parent.rmdir()

    def _check(self, name: str) -> Path | None:
        path = self._root / name
        size, runs = self._known[name]
        try:
            with path.open("rb") as file:
                if path.stat().st_size == size and all(_matches(file, *run) for run in runs):
                    self.read_bytes += size
                    return path
        except FileNotFoundError:
            return None
        except OSError as error:
            _LOG.warning("the copy %s cannot be read (%s); the bucket is read instead", path, error.strerror)
            return None
        _LOG.warning("the copy %s is not what the bucket holds; the bucket is read instead", path)
        return None

    def _room(self, rank: str) -> int:
        """Return the bytes that another copy of a rank may have."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            used = sum(path.stat().st_size for path in self._root.glob(f"step-*/rank-{rank}.*"))
            free = shutil.disk_usage(self._root).free
        except OSError:
            return 0
        share = int(free * _FREE_SHARE) // max(self._options.ranks, 1)
        limit = self._options.limit_bytes
        return share if limit is None else min(share, max(limit - used, 0))


class NearCopy:
    """A copy in progress: it takes the same bytes as the object, and gives up if the disk does not.

    Args:
        draft: the file to write.
        target: its path once it is complete.
        room: bytes that it may have.
    """

    def __init__(self, draft: Path, target: Path, room: int) -> None:
        self._draft = draft
        self._target = target
        self._room = room
        self._file: BinaryIO | None = None
        self._open()

    def write(self, data: bytes) -> None:
        """Append to the copy, unless it was given up."""
        self._room -= len(data)
        if self._room < 0:
            self.drop()
        if self._file is not None:
            try:
                self._file.write(data)
            except OSError as error:
                self._give_up(error)

    def finish(self) -> None:
        """Give the copy its name: the object exists."""
        if self._file is None:
            return
        try:
            # Not synchronised: after a crash of the machine, its checksum shows what the disk has lost.
            self._file.close()
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._draft.replace(self._target)
        except OSError as error:
            self._give_up(error)
        self._file = None

    def drop(self) -> None:
        """Remove the copy: there is no object, or no room."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
        with suppress(OSError):
            self._draft.unlink(missing_ok=True)

    def _open(self) -> None:
        try:
            self._draft.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._draft.open("wb")
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        _LOG.warning("%s: no copy is kept on this machine: %s", self._target, error.strerror)
        self.drop()


class CopyingStream:
    """A stream of an object whose bytes go to a copy, too."""

    def __init__(self, stream: BinaryIO, copy: NearCopy) -> None:
        self._stream = stream
        self._copy = copy

    def write(self, data: bytes) -> int:
        """Write to both."""
        written = self._stream.write(data)
        self._copy.write(data)
        return written


def _matches(file: BinaryIO, position: int, length: int, crc32: int) -> bool:
    """Return whether a file's bytes have a checksum."""
    file.seek(position)
    found = 0
    while length > 0:
        piece = file.read(min(length, _PIECE_BYTES))
        if not piece:
            return False
        found = isal_zlib.crc32(piece, found)
        length -= len(piece)
    return found == crc32
