"""A store in a folder of this machine, or of a file system that all machines mount.

ROOT/step-00000010/commit.json   an object
ROOT/.tmp/                       what is being written, or was when its writer died
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from trainer.checkpoint.store import MissingError, NameTakenError, StoreError, check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_TEMPORARY = ".tmp"
_TRIES = 10  # a folder can be removed between being made and being used, though hardly so often
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_counter = itertools.count()


class LocalStore:
    """Objects as files; see `Store` for what is promised."""

    def __init__(self, root: Path, *, link: Callable[[Path, Path], None] = os.link) -> None:
        self.uri = str(root)
        self._root = root
        self._link = link

    def create(self, name: str, data: bytes) -> None:
        """See `Store`."""
        target = self._path(name)
        with _told(target), self._temporary(data) as temporary:
            try:
                _placing(target, lambda: self._give_name(temporary, target, data))
            except FileExistsError as error:
                if target.read_bytes() != data:
                    raise NameTakenError(f"{target}: is there already, from another writer") from error
            sync_directory(target.parent)

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """See `Store`."""
        target = self._path(name)
        with _told(target), self._temporary() as temporary:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _placing(target, lambda: temporary.replace(target))
            sync_directory(target.parent)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Store`."""
        path = self._path(name)
        with _told(path), path.open("rb") as file:
            file.seek(start)
            return file.read(-1 if length is None else length)

    def local_file(self, name: str) -> Path | None:
        """See `Store`."""
        return self._path(name)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """See `Store`."""
        folder = self._root / prefix.rpartition("/")[0]
        with _told(folder):
            found = {path.relative_to(self._root).as_posix(): size for path, size in _files(folder)}
        return {name: found[name] for name in sorted(found) if name.startswith(prefix)}

    def remove(self, names: Iterable[str]) -> None:
        """See `Store`; folders that became empty go too."""
        folders = set()
        for path in map(self._path, names):
            with _told(path), suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
                folders.add(path.parent)
        for folder in folders:
            with _told(folder):
                self._drop_empty(folder)

    def tidy(self) -> None:
        """See `Store`."""
        folder = self._root / _TEMPORARY
        with _told(folder), suppress(FileNotFoundError):
            for path in folder.iterdir():
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._root / check_name(name)

    @contextmanager
    def _temporary(self, data: bytes | None = None) -> Iterator[Path]:
        folder = self._root / _TEMPORARY
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{threading.get_ident()}-{next(_counter)}-{os.urandom(4).hex()}"
        try:
            if data is not None:
                _write_durably(path, data, "wb")
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _give_name(self, temporary: Path, target: Path, data: bytes) -> None:
        try:
            self._link(temporary, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # Mounted buckets and some network file systems know no links: still no other's file is
            # touched, but a crash in here leaves half a file, which checksums must find.
            _write_durably(target, data, "xb")

    def _drop_empty(self, folder: Path) -> None:
        with suppress(FileNotFoundError):  # another may have removed it
            while folder != self._root:
                sync_directory(folder)
                try:
                    folder.rmdir()
                except OSError:  # not empty, or in use
                    return
                folder = folder.parent
            sync_directory(folder)


def sync_directory(directory: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _placing(target: Path, place: Callable[[], object]) -> None:
    """Place a file in a folder that is made for it, while others remove empty ones."""
    for tries_left in reversed(range(_TRIES)):
        try:
            _make_durably(target.parent)
            place()
        except FileNotFoundError:
            if not tries_left:
                raise
        else:
            return


def _make_durably(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_durably(folder.parent)
    with suppress(FileExistsError):  # and not exist_ok, which fails if it is removed at that instant
        folder.mkdir()
    sync_directory(folder.parent)


def _write_durably(path: Path, data: bytes, mode: str) -> None:
    with path.open(mode) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _files(Path(entry.path))
        else:
            with suppress(FileNotFoundError):  # removed meanwhile
                yield Path(entry.path), entry.stat().st_size


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn the operating system's errors into ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingError(f"{error.filename or path}: is not there") from error
    except OSError as error:
        raise StoreError(
            f"{error.filename or path}: {error.strerror or error}; "
            "mend that (free space, permissions), or give another folder"
        ) from error
