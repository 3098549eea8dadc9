"""Files in a bucket as sources of `data prepare`: found by prefix or pattern, and read in ranges."""

from __future__ import annotations

import io
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from cloudrec.data import stores
from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from cloudrec_contract.objectstore.base import ObjectStore

_RANGE_BYTES = 8 << 20  # a request
_MAGIC = "*?["


@dataclass(frozen=True)
class StoredFile:
    """An object in a bucket.

    Attributes:
        uri: the store's, without the object's name.
        key: the object's name there.
        bytes: its size.
    """

    uri: str
    key: str
    bytes: int

    def __str__(self) -> str:
        """Return the URI."""
        return f"{self.uri}/{self.key}"

    @property
    def name(self) -> str:
        """The last part of the name."""
        return self.key.rpartition("/")[2]

    def open(self) -> BinaryIO:
        """Open it for reading; memory holds one range of it at a time."""
        return io.BufferedReader(_Ranges(stores.open_store(self.uri), self), _RANGE_BYTES)


class _Ranges(io.RawIOBase):
    """Reads an object from any place on, in requests of a range each."""

    def __init__(self, store: ObjectStore, file: StoredFile) -> None:
        super().__init__()
        self._store = store
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.bytes}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        target = memoryview(buffer).cast("B")
        size = min(len(target), self._file.bytes - self._at)
        if size <= 0:
            return 0
        with stores.explained(self._store):
            data = self._store.read(self._file.key, self._at, size)
        if not data:
            raise DataError(
                f"{self._file} ended after {self._at:,} of {self._file.bytes:,} bytes",
                remedy="it was replaced while it was read: run the command again",
            )
        target[: len(data)] = data
        self._at += len(data)
        return len(data)


def find_stored(uri: str) -> Iterator[StoredFile]:
    """Yield the objects of a URI, by name: an object, those below a prefix, or those of a glob pattern.

    Raises:
        UsageError: the scheme is not known, or the URI names no bucket.
        DataError: there is no such object.
        StorageError: the store refuses.
    """
    fixed, pattern = _split(uri)
    store = stores.open_store(fixed)
    with stores.explained(store):
        sizes = {name: size for name, size in store.sizes("").items() if name}  # "": the URI is an object's
        folder, _, last = fixed.rpartition("/")
        if not sizes and not pattern and not folder.endswith("/"):  # perhaps it is one object
            store = stores.open_store(folder)
            sizes = {name: size for name, size in store.sizes(last).items() if name == last}
    found = [
        StoredFile(uri=store.uri, key=name, bytes=size)
        for name, size in sizes.items()
        if not pattern or fnmatchcase(name, pattern)
    ]
    if not found:
        raise DataError(
            f"no object matches {uri}" if pattern else f"{uri} holds no object",
            remedy="name an object, a prefix, or a pattern such as 's3://BUCKET/clicks/*.parquet'",
        )
    yield from found


def _split(uri: str) -> tuple[str, str]:
    """Return the part of a URI before the first folder with a pattern, and the rest."""
    scheme, _, path = uri.partition("://")
    parts = path.split("/")
    first = next((place for place, part in enumerate(parts) if set(part) & set(_MAGIC)), len(parts))
    return f"{scheme}://{'/'.join(parts[:first])}", "/".join(parts[first:])
