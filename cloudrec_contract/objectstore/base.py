"""The interface of every object store, and its guarantees."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Protocol

from cloudrec_contract.objectstore.retries import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

_PIECE_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Options for opening a store.

    Attributes:
        environment: variables with the store's endpoint, for a process that does not have them itself.
        patience: the time-outs and retries of requests.
        part_bytes: the minimum size of a part of a multipart upload.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    patience: Patience = field(default_factory=Patience)
    part_bytes: int = 32 * 2**20


@dataclass(frozen=True, kw_only=True)
class UploadFile:
    """A file on this machine that is uploaded to a store.

    Attributes:
        path: its path.
        size: its size in bytes.
        crc32: the crc32 of its content in hexadecimal.
    """

    path: Path
    size: int
    crc32: str


class ObjectStore(Protocol):
    """Named objects below one URI, for instance `step-00000010/commit.json`.

    A name consists of parts joined by `/`; no part is empty or begins with a dot. Several threads and
    processes may call a method at the same time. A method raises `ObjectStoreError` if the store fails or
    refuses.
    """

    uri: str

    def check(self) -> None:
        """Check that the bucket exists and may be listed; a folder is created on its first write."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Create an object under a new name (conditional creation); it is complete and durable on return.

        If the name exists with the same bytes, the method succeeds: an earlier attempt had its effect and its
        response was lost. So the `data` of two writers must differ, for example by a token. After any other
        `ObjectStoreError`, the object may exist or not.

        Raises:
            ObjectExistsError: the name exists with other bytes.
        """
        ...

    def put(self, name: str, data: bytes) -> None:
        """Create or replace an object atomically."""
        ...

    def write(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a stream for a large object, which is created or replaced.

        The object appears complete and durable when the `with` block ends without an error, and never before.
        """
        ...

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes from `start`, or all bytes that follow; fewer if the object ends before.

        Raises:
            NoObjectError: no object has the name.
        """
        ...

    def download(self, name: str, target: Path) -> None:
        """Copy an object to a file on this machine.

        Raises:
            NoObjectError: no object has the name.
        """
        ...

    def upload(self, name: str, file: UploadFile, sent: Callable[[int], None]) -> None:
        """Upload a file, in parts if it is large, and verify the object; a failed upload is not retried here.

        Args:
            name: the object's name.
            file: the file.
            sent: is called with the number of bytes of each part that was sent.

        Raises:
            DamagedUploadError: the object in the store differs from the file.
        """
        ...

    def holds(self, name: str, file: UploadFile) -> bool:
        """Return whether the object equals this file, by the size and the checksum that the store keeps."""
        ...

    def local_file(self, name: str) -> Path | None:
        """Return the path to memory-map the object from, which may not exist; None for a bucket."""
        ...

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Return the size in bytes of every object whose name begins with `prefix`, sorted by name."""
        ...

    def children(self, folder: str = "") -> dict[str, int]:
        """Return the direct children of a folder by their last name: an object's bytes, -1 for a folder."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, in any order; absent names are ignored. The objects do not exist on return."""
        ...

    def tidy(self) -> None:
        """Remove the invisible remains of `write`s that died; no `write` may be in progress."""
        ...


def check_name(name: str) -> str:
    """Return a valid name unchanged; ValueError for any other text."""
    if not is_name(name):
        raise ValueError(
            f"{name!r} is not a name in a store; parts between '/' must not be empty or begin with '.'"
        )
    return name


def is_name(key: str) -> bool:
    """Return whether a text is a valid name of an object."""
    return all(part and not part.startswith(".") for part in key.split("/"))


def is_hidden(key: str) -> bool:
    """Return whether a listing omits a key: if a part begins with a dot, or it is a folder's placeholder.

    A key with a part `..`, such as `../x`, is listed, so that a copy of the folder can refuse it.
    """
    parts = key.split("/")
    if any(part in {"", "."} or part.startswith("..") for part in parts):
        return key.endswith("/")
    return any(part.startswith(".") for part in parts)


def crc32_of(path: Path) -> str:
    """Return the crc32 of a file in hexadecimal."""
    crc = 0
    with path.open("rb") as stream:
        while block := stream.read(_PIECE_BYTES):
            crc = zlib.crc32(block, crc)
    return f"{crc:08x}"
