"""Where cloudrec keeps what it knows: CLOUDREC_HOME (default ~/.cloudrec), its folders and its locks."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import BusyError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PRIVATE = 0o700  # runs and journals may name accounts and buckets: nobody else's business


@dataclass(frozen=True, kw_only=True)
class Home:
    """The root of everything that cloudrec writes on this machine."""

    root: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Home:
        """Return the home that CLOUDREC_HOME names, or ~/.cloudrec."""
        named = environment.get("CLOUDREC_HOME", "")
        root = Path(named).expanduser() if named else Path.home() / ".cloudrec"
        return cls(root=root.absolute())

    @property
    def runs(self) -> Path:
        """One folder a run: spec.json, logs, metrics.jsonl, summary.json, checkpoints."""
        return self.root / "runs"

    @property
    def clusters(self) -> Path:
        """One folder a cluster: what its provider keeps on this machine."""
        return self.root / "clusters"

    @property
    def locks(self) -> Path:
        """Lock files; they stay when a cluster goes, so that a waiting process holds the same one."""
        return self.root / "locks"

    @property
    def journal(self) -> Path:
        """The SQLite file in which intents and identities are written before and after each call."""
        return self.root / "journal.sqlite"

    def run(self, name: str) -> Path:
        """Return the folder of one run, which may not exist yet."""
        return self.runs / name


def make_private(path: Path) -> Path:
    """Create a folder, parents too, that only its owner may read; StorageError when it cannot be."""
    try:
        # One by one: with parents=True the parents would get the usual, open mode.
        for folder in reversed([path, *path.parents]):
            if not folder.exists():
                folder.mkdir(mode=_PRIVATE, exist_ok=True)
        path.mkdir(mode=_PRIVATE, exist_ok=True)  # refuses a file in its place
    except OSError as error:
        raise storage_error(path, error) from error
    return path


def storage_error(path: Path, error: OSError) -> StorageError:
    """Turn a failed write into a message with its remedy."""
    elsewhere = "use another folder (CLOUDREC_HOME for cloudrec's own)"
    remedies = {
        errno.ENOSPC: f"free some space, or {elsewhere}",
        errno.EDQUOT: f"free some of your quota, or {elsewhere}",
        errno.EROFS: elsewhere,
        errno.EACCES: f"make it writable for you, or {elsewhere}",
        errno.ENOTDIR: f"a file stands where a folder is needed: move it, or {elsewhere}",
        errno.EEXIST: f"a file stands where a folder is needed: move it, or {elsewhere}",
    }
    reason = error.strerror or str(error)
    return StorageError(f"cannot write {path}: {reason}", remedy=remedies.get(error.errno or 0))


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's text so that a reader, or a crash, sees the old text or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise storage_error(path, error) from error


@contextmanager
def locked(path: Path, *, what: str, wait_s: float = 0.0, poll_s: float = 0.05) -> Iterator[None]:
    """Hold an exclusive lock on a file while the block runs; BusyError names who holds it.

    The kernel drops the lock with the process that held it, so a dead holder never blocks anyone.

    Args:
        path: the lock file; made when absent and never removed.
        what: what is locked, for the message ("cluster 'dev'").
        wait_s: seconds to wait for another holder before giving up.
        poll_s: seconds between two tries.
    """
    make_private(path.parent)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(path, error) from error
    try:
        deadline = time.monotonic() + wait_s
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise BusyError(
                    f"{what} is in use by {_holder(path)}",
                    remedy="wait until it has finished, then try again",
                )
            time.sleep(poll_s)
        _sign(descriptor)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Tell whether a living process holds the lock at this path."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two who ask at once do not take each other for the holder.
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "command": command[:200]}).encode(), 0)


def _holder(path: Path) -> str:
    try:
        signature = json.loads(path.read_text(encoding="utf-8"))
        return f"process {signature['pid']} ({signature['command']})"
    except (OSError, ValueError, KeyError):
        return "another process"
