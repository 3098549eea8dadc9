"""A store in a folder.

ROOT/step-00000010/commit.json   an object
ROOT/.tmp/                       files of `write`s in progress, and of writers that died
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote, urlsplit

from cloudrec_contract.objectstore.base import check_name, crc32_of
from cloudrec_contract.objectstore.errors import (
    DamagedUploadError,
    FileSystemError,
    NoObjectError,
    ObjectExistsError,
    StoreUriError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cloudrec_contract.objectstore.base import StoreOptions, UploadFile

_PIECE_BYTES = 8 * 2**20
_TEMPORARY = ".tmp"
_TRIES = 10  # another process may remove an empty folder before it is used, but hardly this many times
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_counter = itertools.count()


def open_store(uri: str, options: StoreOptions) -> LocalStore:
    """Return the folder that a path or a file:// URI names."""
    del options
    return LocalStore(path_of(uri))


def path_of(uri: str) -> Path:
    """Return the path that a plain path or a file:// URI names.

    Raises:
        StoreUriError: it names another host, or nothing.
    """
    if "://" not in uri:
        path = Path(uri).expanduser()
    else:
        parts = urlsplit(uri)
        if parts.netloc not in {"", "localhost"}:
            raise StoreUriError(f"names the host {parts.netloc!r}; a local URI is file:///path")
        path = Path(unquote(parts.path))
    return path


class LocalStore:
    """Objects as files; see `ObjectStore` for the guarantees."""

    def __init__(self, root: Path, *, link: Callable[[Path, Path], None] = os.link) -> None:
        self.uri = str(root)
        self._root = root
        self._link = link

    def check(self) -> None:
        """See `ObjectStore`."""

    def create(self, name: str, data: bytes) -> None:
        """See `ObjectStore`."""
        target = self._path(name)
        with _translated(target), self._temporary(data) as temporary:
            try:
                _in_folder(target.parent, lambda: self._give_name(temporary, target, data))
            except FileExistsError as error:
                if target.read_bytes() != data:
                    raise ObjectExistsError(str(target), "is there already, from another writer") from error
            sync_directory(target.parent)

    def put(self, name: str, data: bytes) -> None:
        """See `ObjectStore`."""
        with self.write(name) as file:
            file.write(data)

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """See `ObjectStore`."""
        target = self._path(name)
        with _translated(target), self._temporary() as temporary:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _in_folder(target.parent, lambda: temporary.replace(target))
            sync_directory(target.parent)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """See `ObjectStore`."""
        path = self._path(name)
        with _translated(path), path.open("rb") as file:
            file.seek(start)
            return file.read(-1 if length is None else length)

    def download(self, name: str, target: Path) -> None:
        """See `ObjectStore`."""
        path = self._path(name)
        with _translated(path):
            shutil.copyfile(path, target)

    def upload(self, name: str, file: UploadFile, sent: Callable[[int], None]) -> None:
        """See `ObjectStore`; the copy is read back and verified before the rename."""
        target = self._path(name)
        with _translated(target), self._temporary() as temporary:
            with file.path.open("rb") as source, temporary.open("wb") as draft:
                while block := source.read(_PIECE_BYTES):
                    draft.write(block)
                    sent(len(block))
                draft.flush()
                os.fsync(draft.fileno())
            if crc32_of(temporary) != file.crc32:
                raise DamagedUploadError(str(target), "the copy is not what was read", may_pass=True)
            _in_folder(target.parent, lambda: temporary.replace(target))
            sync_directory(target.parent)

    def holds(self, name: str, file: UploadFile) -> bool:
        """See `ObjectStore`."""
        path = self._path(name)
        with _translated(path):
            return path.is_file() and path.stat().st_size == file.size and crc32_of(path) == file.crc32

    def local_file(self, name: str) -> Path | None:
        """See `ObjectStore`."""
        return self._path(name)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """See `ObjectStore`."""
        folder = self._root / prefix.rpartition("/")[0]
        with _translated(folder):
            found = {path.relative_to(self._root).as_posix(): size for path, size in _files(folder)}
        return {name: found[name] for name in sorted(found) if name.startswith(prefix)}

    def children(self, folder: str = "") -> dict[str, int]:
        """See `ObjectStore`."""
        path = self._root / folder
        found = {}
        with _translated(path), suppress(FileNotFoundError, NotADirectoryError):
            for entry in sorted(os.scandir(path), key=lambda each: each.name):
                with suppress(FileNotFoundError):  # removed meanwhile
                    if not entry.name.startswith("."):
                        found[entry.name] = -1 if entry.is_dir() else entry.stat().st_size
        return found

    def remove(self, names: Iterable[str]) -> None:
        """See `ObjectStore`; empty folders are removed, too."""
        folders = set()
        for path in map(self._path, names):
            with _translated(path), suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
                folders.add(path.parent)
        for folder in folders:
            with _translated(folder):
                self._drop_empty(folder)

    def tidy(self) -> None:
        """See `ObjectStore`."""
        folder = self._root / _TEMPORARY
        with _translated(folder), suppress(FileNotFoundError):
            for path in folder.iterdir():
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._root / check_name(name)

    @contextmanager
    def _temporary(self, data: bytes | None = None) -> Iterator[Path]:
        folder = self._root / _TEMPORARY
        path = folder / f"{os.getpid()}-{threading.get_ident()}-{next(_counter)}-{os.urandom(4).hex()}"

        def make() -> None:
            if data is None:
                path.touch(exist_ok=False)
            else:
                _write_durably(path, data, "xb")

        try:
            _in_folder(folder, make, _make)
            yield path
        finally:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # it was removed, or others write to it
                folder.rmdir()

    def _give_name(self, temporary: Path, target: Path, data: bytes) -> None:
        try:
            self._link(temporary, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # Mounted buckets and some network file systems have no hard links. Exclusive creation still never
            # touches another writer's file, but a crash here leaves a partial file, which checksums detect.
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
    """Flush a folder's entries to disk, so that they survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _in_folder(folder: Path, act: Callable[[], object], make: Callable[[Path], None] | None = None) -> None:
    """Create a folder, durably unless `make` is given, and run an action in it.

    Both are retried if another process removes the empty folder in between.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            (make or _make_durably)(folder)
            act()
        except FileNotFoundError:
            if not tries_left:
                raise
        else:
            return


def _make(folder: Path) -> None:
    with suppress(FileExistsError):  # and not exist_ok, which fails if it is removed at that instant
        folder.mkdir(parents=True)


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
def _translated(path: Path) -> Iterator[None]:
    """Translate the operating system's errors into the store's."""
    try:
        yield
    except FileNotFoundError as error:
        raise NoObjectError(str(error.filename or path), "is not there") from error
    except OSError as error:
        raise FileSystemError(str(error.filename or path), error.strerror or str(error)) from error
