"""A store in a bucket of a cloud, through fsspec.

`create` is one conditional upload: If-None-Match for S3 and Azure, ifGenerationMatch=0 for GCS, and
for large objects the same condition where the parts are put together. A stream is an upload in
parts that becomes an object when it is completed. What the SDKs do not repeat themselves is repeated here.
"""

from __future__ import annotations

import io
import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import stamina

from trainer.checkpoint.clouds import TRANSIENT, Patience, find_cloud
from trainer.checkpoint.store import MissingError, NameTakenError, StoreError, check_name
from trainer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from _typeshed import ReadableBuffer

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_PART_BYTES = 32 * 2**20
_GROWING_AFTER = 1500  # parts
_PIECE_BYTES = 8 * 2**20
_TAKEN = 412
_REFUSED = {401, 403}
_THREADS = 8


class FsspecStore:
    """Objects in a bucket; see `Store` for what is promised."""

    def __init__(self, uri: str, *, part_bytes: int = _PART_BYTES, patience: Patience | None = None) -> None:
        self.uri = uri.rstrip("/")
        self._cloud = find_cloud(uri)
        self._part_bytes = part_bytes
        self._retrying = stamina.RetryingCaller(
            attempts=3, timeout=120.0, wait_initial=1.0, wait_max=15.0
        ).on(self._is_transient)
        try:
            self._files, self._root = self._cloud.connect(uri, patience or Patience())
        except ValueError as error:
            raise ConfigError(f"checkpoint_dir {uri!r}: {error}") from error

    def create(self, name: str, data: bytes) -> None:
        """See `Store`."""
        path = self._path(name)
        options = self._cloud.in_parts(self._part_bytes)
        try:
            self._call(name, lambda: self._files.pipe_file(path, data, mode="create", **options))
        except NameTakenError:
            # An attempt whose answer was lost may have been ours: the bytes tell.
            if self.read(name) != data:
                raise

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """See `Store`; takes memory for about four parts, of 32 MiB unless the object is huge."""
        path, mark = self._path(name), uuid.uuid4().hex
        options = self._cloud.marked(mark)
        with self._told(name):
            file = self._files.open(path, "wb", block_size=self._part_bytes, **options)
        try:
            yield cast("BinaryIO", _Pieces(file, self._told, name))
            self._finish(name, file, mark)
        except BaseException:
            self._discard(file)
            raise

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Store`."""
        path = self._path(name)
        end = None if length is None else start + length
        if end == start:
            self._size(name)
            return b""
        try:
            return bytes(self._call(name, lambda: self._files.cat_file(path, start=start or None, end=end)))
        except MissingError:
            raise
        except StoreError:
            if start >= self._size(name):  # nothing lies there, and asking for it is an error
                return b""
            raise

    def local_file(self, name: str) -> Path | None:
        """See `Store`: there is none."""
        check_name(name)
        return None

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """See `Store`."""
        folder = f"{self._root}/{prefix}".rpartition("/")[0]
        found = self._call(prefix, lambda: self._files.find(folder, detail=True))
        if not isinstance(found, dict):  # adlfs's answer where the prefix's folder is itself an object
            return {}
        sizes = {path[len(self._root) + 1 :]: info["size"] for path, info in found.items()}
        return {name: sizes[name] for name in sorted(sizes) if name.startswith(prefix) and _is_object(name)}

    def remove(self, names: Iterable[str]) -> None:
        """See `Store`."""
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(self._remove, names))

    def tidy(self) -> None:
        """See `Store`."""
        self._call("", lambda: self._cloud.discard_unfinished(self._files, self._root))

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

    def _size(self, name: str) -> int:
        return int(self._call(name, lambda: self._files.info(self._path(name)))["size"])

    def _remove(self, name: str) -> None:
        path = self._path(name)
        try:
            self._call(name, lambda: self._files.rm_file(path))
        except MissingError:
            return

    def _finish(self, name: str, file: Any, mark: str) -> None:  # noqa: ANN401 - fsspec has no types
        try:
            with self._told(name):
                file.close()
        except StoreError as error:
            # The upload may have been completed, and only the answer lost: the mark tells.
            try:
                found = self._call(name, lambda: self._cloud.mark_of(self._files, self._path(name)))
            except StoreError:
                raise error from None
            if found != mark:
                raise

    def _discard(self, file: Any) -> None:  # noqa: ANN401 - fsspec has no types
        try:
            file.discard()
        except Exception as error:  # noqa: BLE001 - it costs space only, and the first error counts
            _LOG.warning("%s: an unfinished upload stays, which costs space only: %s", self.uri, error)
        finally:
            file.closed = True  # else its end would complete the upload

    def _call(self, name: str, action: Callable[[], T]) -> T:
        with self._told(name):
            return self._retrying(action)

    def _is_transient(self, error: Exception) -> bool:
        if isinstance(error, (FileExistsError, FileNotFoundError, PermissionError)):
            return False
        status = self._cloud.status(error)
        return status in TRANSIENT if status is not None else self._cloud.is_unanswered(error)

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Turn the clouds' errors into ours."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            raise self._translated(f"{self.uri}/{name}", error) from error

    def _translated(self, where: str, error: Exception) -> StoreError:
        status = self._cloud.status(error)
        if isinstance(error, FileExistsError) or status == _TAKEN:
            return NameTakenError(f"{where}: is there already, from another writer")
        if isinstance(error, FileNotFoundError):
            return MissingError(f"{where}: is not there, or its bucket is not")
        words = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        if isinstance(error, PermissionError) or status in _REFUSED:
            return StoreError(
                f"{where}: refused ({words}); give this process's identity the permission to list, "
                "read, write and delete objects there, or mend its credentials"
            )
        return StoreError(
            f"{where}: the store did not do it ({words}); see whether it can be reached and is well, "
            "then start again, which goes on from the last checkpoint"
        )


class _Pieces(io.BufferedIOBase):
    """Passes a stream on in small pieces, since the one below copies each of them."""

    def __init__(self, file: Any, told: Callable[[str], Any], name: str) -> None:  # noqa: ANN401 - fsspec
        self._file = file
        self._told_of = told
        self._name = name
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: ReadableBuffer) -> int:
        with memoryview(data).cast("B") as view, self._told_of(self._name):
            for start in range(0, len(view), _PIECE_BYTES):
                self._file.blocksize = part_bytes_at(self._position, self._file.blocksize)
                self._position += self._file.write(view[start : start + _PIECE_BYTES])
            return len(view)


def part_bytes_at(position: int, least: int) -> int:
    """How large the part at a position is: the 10,000 parts that S3 takes suffice for 10 TB."""
    return max(least, position // _GROWING_AFTER)


def _is_object(name: str) -> bool:
    try:
        check_name(name)
    except ValueError:  # a folder's placeholder, say
        return False
    return True
