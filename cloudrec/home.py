"""cloudrec's home folder, CLOUDREC_HOME (default ~/.cloudrec): its folders, file access and locks."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, BinaryIO

from cloudrec.errors import BusyError, StorageError
from cloudrec.safe_path import check_part
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PRIVATE = 0o700  # runs and journals name accounts and buckets, which other users must not see


@dataclass(frozen=True, kw_only=True)
class Home:
    """The folder of all files that cloudrec writes on this machine."""

    root: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Home:
        """Return the home that CLOUDREC_HOME names, or ~/.cloudrec."""
        named = environment.get("CLOUDREC_HOME", "")
        root = Path(named).expanduser() if named else Path.home() / ".cloudrec"
        return cls(root=root.absolute())

    @property
    def costs(self) -> Path:
        """The folder of what was read of clusters' meters."""
        return self.root / "costs"

    @property
    def runs(self) -> Path:
        """The folder with one folder a run: spec.json, logs, metrics.jsonl, summary.json, checkpoints."""
        return self.root / "runs"

    @property
    def clusters(self) -> Path:
        """The folder with one folder a cluster: its provider's files on this machine."""
        return self.root / "clusters"

    @property
    def locks(self) -> Path:
        """The folder of lock files. They are never removed, so that a waiting process locks the same file."""
        return self.root / "locks"

    @property
    def durations(self) -> Path:
        """The file with what the steps of `up` and `down` took last (see `engine.durations`)."""
        return self.root / "durations.json"

    @property
    def journal(self) -> Path:
        """The journal's SQLite file (see `engine.journal`)."""
        return self.root / "journal.sqlite"

    def run(self, name: str) -> Path:
        """Return the folder of a run; it may not exist. UnsafeNameError if the name is that of no folder."""
        return self.runs / check_part(name)

    def cluster(self, name: str) -> Path:
        """Return the folder of a cluster; it may not exist. UnsafeNameError as in `run`.

        A cluster's name may come from the tags of a resource, which anyone may write who may tag it.
        """
        return self.clusters / check_part(name)

    def cluster_lock(self, name: str) -> Path:
        """Return the lock file of a cluster; UnsafeNameError as in `run`."""
        return self.locks / f"cluster-{check_part(name)}.lock"


def make_private(path: Path) -> Path:
    """Create a folder and its parents, readable by their owner only, and return it; raises StorageError."""
    try:
        # One by one: with parents=True, mkdir ignores the mode for the parents.
        for folder in reversed([path, *path.parents]):
            if not folder.exists():
                folder.mkdir(mode=_PRIVATE, exist_ok=True)
        path.mkdir(mode=_PRIVATE, exist_ok=True)  # fails if the path is a file
    except OSError as error:
        raise storage_error(path, error) from error
    return path


def refuse_shared(root: Path, environment: Mapping[str, str]) -> None:
    """Raise StorageError if another user may write a home: `train --resume` runs commands from it.

    As git does for repositories (safe.directory), the user who called sudo counts as the owner, too.

    Args:
        root: the home; it may not exist.
        environment: the process's variables.
    """
    try:
        found = root.stat()
    except OSError:
        return
    caller = environment.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    owners = {os.geteuid(), *([int(caller)] if caller.isdecimal() else [])}
    if found.st_uid not in owners:
        raise StorageError(
            f"{root} belongs to the user with id {found.st_uid}, and this is {os.geteuid()}",
            remedy="name another folder with CLOUDREC_HOME, or make it yours: chown",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StorageError(
            f"other users may write {root} (mode {stat.S_IMODE(found.st_mode):04o})",
            remedy=f"chmod go-w {root}; cloudrec runs commands that its files name",
        )


def storage_error(path: Path, error: OSError) -> StorageError:
    """Return a failed write as an error for users, with a remedy."""
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


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading. Raises OSError for a folder, a pipe or a device, too.

    A pipe would block until a writer opens it, and a device such as /dev/zero has no end.
    """
    # Without O_NONBLOCK, opening a pipe blocks before its type can be checked.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file, but a folder, a pipe or a device", str(path))
    return os.fdopen(descriptor, "rb")


def read_text(path: Path) -> str:
    """Return a file's text; OSError as in `open_file`, UnicodeDecodeError if it is not UTF-8."""
    with open_file(path) as file:
        return file.read().decode("utf-8")


def draft_of(path: Path) -> Path:
    """Return the path of a file's next version, in the same folder; each thread has its own.

    `train` follows a run in two threads, and `status` may look at it at the same time.
    """
    return path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}.tmp")


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's text atomically: readers see the old text or the new one, also after a crash."""
    temporary = draft_of(path)
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
    """Hold an exclusive lock on a file during the block.

    The kernel releases the lock when its process ends, so a killed process leaves no lock behind.

    Args:
        path: the lock file; created if it does not exist, and never removed.
        what: the locked object for the message ("cluster 'dev'").
        wait_s: seconds to wait for the lock.
        poll_s: seconds between two attempts.

    Raises:
        BusyError: another process holds the lock; the message names that process.
    """
    make_private(path.parent)
    try:
        descriptor = open_lock(path)
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


def open_lock(path: Path, *, create: bool = True) -> int:
    """Open a lock file and return its descriptor. Raises OSError for a symbolic link or a pipe, too.

    A lock is written by its holder: a link in its place would lead the write to another file.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file, but a folder, a pipe or a device", str(path))
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock at this path."""
    try:
        descriptor = open_lock(path, create=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise storage_error(path, error) from error
    try:
        # A shared lock: with an exclusive one, two concurrent checks would each see the other as the holder.
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
        signature = safe_object(read_text(path))
        return f"process {signature['pid']} ({signature['command']})"
    except (OSError, ValueError, KeyError):
        return "another process"
