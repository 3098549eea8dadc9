"""A store in a bucket of a cloud, through fsspec.

`create` is one conditional upload: If-None-Match on S3 and Azure, ifGenerationMatch=0 on GCS. For large
objects, the request that completes the parts has the same condition. A stream is a multipart upload, which
becomes an object when it is completed. This module retries the requests that the SDKs do not retry.
"""

from __future__ import annotations

import io
import logging
import uuid
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from fsspec.callbacks import Callback

from cloudrec_contract.objectstore.base import check_name, is_hidden
from cloudrec_contract.objectstore.errors import (
    AccessDeniedError,
    DamagedUploadError,
    NoObjectError,
    ObjectExistsError,
    ObjectStoreError,
    UnauthenticatedError,
)
from cloudrec_contract.objectstore.retries import TRANSIENT, repeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from _typeshed import ReadableBuffer

    from cloudrec_contract.objectstore.base import StoreOptions, UploadFile

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_GROWING_AFTER = 1500  # parts
_PIECE_BYTES = 8 * 2**20
_TAKEN = 412
_UNAUTHENTICATED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404
_THREADS = 8
_WORDS = 300  # characters of a service's message
MARK = "upload"  # names an upload's mark in an object's metadata


class BucketStore(ABC):
    """Objects in a bucket; see `ObjectStore` for the guarantees.

    Args:
        uri: the URI.
        files: a separate fsspec file system, without caches, which retries transient errors as the options
            require. The SDK finds the credentials: workload identity, a profile or variables.
        root: the URI's path in it.
        options: the options.
    """

    def __init__(self, uri: str, files: Any, root: str, options: StoreOptions) -> None:  # noqa: ANN401 - untyped
        self.uri = uri.rstrip("/")
        self._files = files
        self._root = root
        self._bucket, _, folder = root.partition("/")
        self._folder = f"{folder}/" if folder else ""
        self._patience = options.patience
        self._part_bytes = options.part_bytes

    @abstractmethod
    def status(self, error: BaseException) -> int | None:
        """Return the HTTP status of an error; None if there was no response, or its status is not known."""

    @abstractmethod
    def is_unanswered(self, error: BaseException) -> bool:
        """Return whether the request got no complete response; it may have had its effect."""

    @abstractmethod
    def _ask_for_bucket(self) -> None:
        """List the bucket; raises an error if that fails."""

    @abstractmethod
    def _is_there(self, name: str, file: UploadFile) -> bool:
        """Return whether the object is this file; FileNotFoundError if there is none."""

    @abstractmethod
    def _send(self, name: str, file: UploadFile, sent: Callable[[int], None]) -> None:
        """Upload a file, with its checksum if the service verifies it."""

    @abstractmethod
    def _marked(self, mark: str) -> Mapping[str, Any]:
        """Return the options of `open` that write a mark to the object's metadata."""

    @abstractmethod
    def _mark_of(self, path: str) -> str | None:
        """Return the mark of the object at the path."""

    def _in_parts(self) -> Mapping[str, Any]:
        """Return the options of `pipe_file` that limit the size of one request."""
        return {"chunksize": self._part_bytes}

    def _arrived(self, name: str, file: UploadFile) -> bool:
        """Return whether the uploaded object equals the file."""
        return self._is_there(name, file)

    def _discard_unfinished(self) -> None:  # noqa: B027 - most services do so by themselves
        """Abort unfinished uploads, if the service keeps them without a limit."""

    def check(self) -> None:
        """See `ObjectStore`."""
        self._call("", self._ask_for_bucket)

    def create(self, name: str, data: bytes) -> None:
        """See `ObjectStore`."""
        path = self._path(name)
        options = self._in_parts()
        try:
            self._call(name, lambda: self._files.pipe_file(path, data, mode="create", **options))
        except ObjectExistsError:
            # A retry after a lost response finds the object of the first attempt: then the bytes are equal.
            if self.read(name) != data:
                raise

    def put(self, name: str, data: bytes) -> None:
        """See `ObjectStore`."""
        path, options = self._path(name), self._in_parts()
        self._call(name, lambda: self._files.pipe_file(path, data, **options))

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """See `ObjectStore`; uses memory for about four parts, of 32 MiB each unless the object is huge."""
        path, mark = self._path(name), uuid.uuid4().hex
        options = self._marked(mark)
        with self._translating(name):
            file = self._files.open(path, "wb", block_size=self._part_bytes, **options)
        try:
            yield cast("BinaryIO", _Pieces(file, self._translating, name))
            self._finish(name, file, mark)
        except BaseException:
            self._discard(file)
            raise

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """See `ObjectStore`."""
        path = self._path(name)
        end = None if length is None else start + length
        if end == start:
            self._size(name)
            return b""
        try:
            return bytes(self._call(name, lambda: self._files.cat_file(path, start=start or None, end=end)))
        except NoObjectError:
            raise
        except ObjectStoreError:
            # A range that begins after the last byte is an error (416) for the services, but not for `read`.
            if start >= self._size(name):
                return b""
            raise

    def download(self, name: str, target: Path) -> None:
        """See `ObjectStore`."""
        path = self._path(name)
        self._call(name, lambda: self._files.get_file(path, str(target)))

    def upload(self, name: str, file: UploadFile, sent: Callable[[int], None]) -> None:
        """See `ObjectStore`."""
        with self._translating(name):
            self._send(check_name(name), file, sent)
            if not self._arrived(name, file):
                where = f"{self.uri}/{name}"
                raise DamagedUploadError(where, "what arrived is not what was sent", may_pass=True)

    def holds(self, name: str, file: UploadFile) -> bool:
        """See `ObjectStore`."""
        try:
            return self._call(name, lambda: self._is_there(check_name(name), file))
        except NoObjectError:
            return False

    def local_file(self, name: str) -> Path | None:
        """See `ObjectStore`: there is none."""
        check_name(name)
        return None

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """See `ObjectStore`."""
        try:
            found = self._call(prefix, lambda: self._listed(f"{self._folder}{prefix}"))
        except NoObjectError:
            return {}
        sizes = {key.removeprefix(self._folder): size for key, size in found.items()}
        return {
            name: sizes[name] for name in sorted(sizes) if name.startswith(prefix) and not is_hidden(name)
        }

    def _listed(self, prefix: str) -> Mapping[str, int]:
        """Return the size of each object in the folder of a prefix; those without the prefix may be left out.

        The file systems of some services search an empty folder for an object of its name, which needs the
        permission to read that. The keepers of managed clusters may list some folders and read nothing there,
        so the stores of these services list by the prefix alone.
        """
        found = self._files.find(f"{self._bucket}/{prefix}".rpartition("/")[0], detail=True)
        return {path.partition("/")[2]: int(info["size"]) for path, info in found.items()}

    def children(self, folder: str = "") -> dict[str, int]:
        """See `ObjectStore`."""
        path = f"{self._root}/{folder}".rstrip("/")
        try:
            found = self._call(folder, lambda: self._files.ls(path, detail=True))
        except NoObjectError:
            return {}
        sizes = {}
        for info in found:
            whole = str(info["name"]).rstrip("/")
            if whole != path and not is_hidden(name := whole.rpartition("/")[2]):
                sizes[name] = int(info["size"] or 0) if info["type"] == "file" else -1
        return dict(sorted(sizes.items()))

    def remove(self, names: Iterable[str]) -> None:
        """See `ObjectStore`."""
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(self._remove, names))

    def tidy(self) -> None:
        """See `ObjectStore`."""
        self._call("", self._discard_unfinished)

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

    def _size(self, name: str) -> int:
        return int(self._call(name, lambda: self._files.info(self._path(name)))["size"])

    def _remove(self, name: str) -> None:
        path = self._path(name)
        try:
            self._call(name, lambda: self._files.rm_file(path))
        except NoObjectError:
            return

    def _finish(self, name: str, file: Any, mark: str) -> None:  # noqa: ANN401 - fsspec has no types
        try:
            with self._translating(name):
                file.close()
        except ObjectStoreError as error:
            # The upload may be complete, with only the response lost: then the object has this upload's mark.
            try:
                found = self._call(name, lambda: self._mark_of(self._path(name)))
            except ObjectStoreError:
                raise error from None
            if found != mark:
                raise

    def _discard(self, file: Any) -> None:  # noqa: ANN401 - fsspec has no types
        try:
            file.discard()
        except Exception as error:  # noqa: BLE001 - it costs space only, and the first error counts
            _LOG.warning("%s: an unfinished upload stays, which costs space only: %s", self.uri, error)
        finally:
            file.closed = True  # otherwise fsspec's finaliser would complete the upload

    def _call(self, name: str, action: Callable[[], T]) -> T:
        with self._translating(name):
            return repeat(action, self._patience, self._may_pass)

    def _may_pass(self, error: Exception) -> bool:
        if isinstance(error, (FileExistsError, FileNotFoundError, PermissionError)):
            return False
        status = self.status(error)
        return status in TRANSIENT if status is not None else self.is_unanswered(error)

    @contextmanager
    def _translating(self, name: str) -> Iterator[None]:
        """Translate the clouds' errors into the store's."""
        try:
            yield
        except ObjectStoreError:
            raise
        except Exception as error:
            raise self._translated(f"{self.uri}/{name}", error) from error

    def _translated(self, where: str, error: Exception) -> ObjectStoreError:
        status = self.status(error)
        if isinstance(error, FileExistsError) or status == _TAKEN:
            return ObjectExistsError(where, "is there already, from another writer")
        if isinstance(error, FileNotFoundError) or status == _NOT_FOUND:
            return NoObjectError(where, "is not there, or its bucket is not")
        message = " ".join(str(error).split())[:_WORDS]
        words = f"{type(error).__name__}: {message}".rstrip(". ")
        if status == _UNAUTHENTICATED:
            return UnauthenticatedError(where, words)
        if isinstance(error, PermissionError) or status == _FORBIDDEN:
            return AccessDeniedError(where, words)
        return ObjectStoreError(where, words, may_pass=self._may_pass(error))


class UploadProgress(Callback):  # type: ignore[misc]  # fsspec has no types
    """Reports the bytes of each part; fsspec reports the total so far."""

    def __init__(self, sent: Callable[[int], None]) -> None:
        super().__init__()
        self._sent = sent
        self._so_far = 0

    def absolute_update(self, value: int) -> None:
        """See `Callback`."""
        if value > self._so_far:
            self._sent(value - self._so_far)
            self._so_far = value


class _Pieces(io.BufferedIOBase):
    """Writes to fsspec's stream in small pieces, because that stream copies each piece."""

    def __init__(self, file: Any, translating: Callable[[str], Any], name: str) -> None:  # noqa: ANN401 - fsspec
        self._file = file
        self._translating = translating
        self._name = name
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: ReadableBuffer) -> int:
        with memoryview(data).cast("B") as view, self._translating(self._name):
            for start in range(0, len(view), _PIECE_BYTES):
                self._file.blocksize = part_bytes_at(self._position, self._file.blocksize)
                self._position += self._file.write(view[start : start + _PIECE_BYTES])
            return len(view)


def part_bytes_at(position: int, least: int) -> int:
    """Return the size of the part at a position; it grows: S3's limit of 10,000 parts then allows 10 TB."""
    return max(least, position // _GROWING_AFTER)
