"""The folder in the cluster's storage that holds a run's files: a directory, or a prefix in a bucket."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from cloudrec.errors import DataError, MissingExtraError, StorageError
from cloudrec_contract.objectstore import open as stores
from cloudrec_contract.objectstore.base import StoreOptions, is_name
from cloudrec_contract.objectstore.errors import (
    AccessDeniedError,
    FileSystemError,
    MissingDriverError,
    NoObjectError,
    ObjectExistsError,
    ObjectStoreError,
    StoreUriError,
    UnknownSchemeError,
)
from cloudrec_contract.objectstore.retries import Patience
from cloudrec_contract.objectstore.schemes import is_remote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cloudrec_contract.objectstore.base import ObjectStore

__all__ = ["Place", "is_remote", "open_place", "require"]

_PIECE_BYTES = 2**20
_PATIENCE = Patience(attempts=5, rounds=3)


class Place(Protocol):
    """Files below one URI, by names joined with '/'; StorageError if the store refuses a call."""

    uri: str

    def read(self, name: str, *, start: int = 0, limit: int | None = None) -> bytes | None:
        """Return a file's bytes from `start` on, at most `limit` of them; None if the file is missing."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file atomically."""
        ...

    def send(self, name: str, source: Path) -> None:
        """Write or replace a file by one of this machine, which need not fit into memory."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Create a file atomically; return False if it exists."""
        ...

    def fetch(self, name: str, target: Path) -> None:
        """Copy a file to this machine; FileNotFoundError if it is missing."""
        ...

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the size in bytes of each file below a folder, by name; {} if the folder is missing."""
        ...

    def children(self, prefix: str) -> dict[str, int]:
        """Return the size in bytes of each file directly in a folder, and -1 for each folder, by name."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        ...


def open_place(
    uri: str, environment: Mapping[str, str] | None = None, *, patience: Patience | None = None
) -> Place:
    """Return the folder that a path or URI names, without a call to the store.

    Args:
        uri: the path or URI.
        environment: variables of the store's client, such as an endpoint; those of this process come first.
        patience: how often a call is repeated; None for the usual number.

    Raises:
        DataError: the scheme is unknown, or the URI names no bucket or folder.
        MissingExtraError: the store's client is not installed.
    """
    with _usable(uri):
        options = StoreOptions(environment=environment or {}, patience=patience or _PATIENCE)
        return _StoredFiles(uri.rstrip("/") or uri, stores.open_store(uri, options))


def require(uri: str) -> None:
    """Import the client for a path or URI, so that a missing one is found before the run starts.

    Raises:
        DataError: the scheme is unknown.
        MissingExtraError: the store's client is not installed, or cannot be imported.
    """
    with _usable(uri):
        stores.require(uri)


class _StoredFiles:
    """Files of an object store; the store's errors become cloudrec's."""

    def __init__(self, uri: str, store: ObjectStore) -> None:
        self.uri = uri
        self._store = store

    def read(self, name: str, *, start: int = 0, limit: int | None = None) -> bytes | None:
        # A bucket can list a key that is no path, such as `pods//log`. No file has such a name.
        if not is_name(name):
            return None
        with _explained():
            try:
                return self._store.read(name, start, limit)
            except NoObjectError:
                return None

    def write(self, name: str, data: bytes) -> None:
        with _explained():
            self._store.put(name, data)

    def send(self, name: str, source: Path) -> None:
        with source.open("rb") as file, _explained(), self._store.write(name) as target:
            shutil.copyfileobj(file, target, _PIECE_BYTES)

    def create(self, name: str, data: bytes) -> bool:
        with _explained():
            try:
                self._store.create(name, data)
            except ObjectExistsError:
                return False
            return True

    def fetch(self, name: str, target: Path) -> None:
        if not is_name(name):
            raise FileNotFoundError(name)
        with _explained():
            try:
                self._store.download(name, target)
            except NoObjectError as error:
                raise FileNotFoundError(name) from error
            except FileSystemError as error:
                raise error.__cause__ or error from None

    def sizes(self, prefix: str) -> dict[str, int]:
        with _explained():
            return self._store.sizes(prefix)

    def children(self, prefix: str) -> dict[str, int]:
        with _explained():
            return self._store.children(prefix)

    def remove(self, name: str) -> None:
        if not is_name(name):
            return
        with _explained():
            self._store.remove([name])


@contextmanager
def _usable(uri: str) -> Iterator[None]:
    """Turn the errors of opening a store into cloudrec's, with the remedy."""
    try:
        yield
    except UnknownSchemeError as error:
        remedy = f"use a path, {', '.join(f'{known}://' for known in error.known)}"
        raise DataError(f"{uri!r}: {error}", remedy=remedy) from error
    except MissingDriverError as error:
        raise MissingExtraError(error.extra, module=error.module, why=error.why) from error
    except StoreUriError as error:
        raise DataError(f"{uri!r}: {error}") from error


@contextmanager
def _explained() -> Iterator[None]:
    """Turn the store's errors into cloudrec's, with the remedy."""
    try:
        yield
    except ObjectStoreError as error:
        from cloudrec.launchers.base.ssh.shell import login_error  # noqa: PLC0415 - `status` needs no ssh

        raise login_error(error) or _error(error) from error


def _error(error: ObjectStoreError) -> StorageError:
    match error:
        case FileSystemError():
            remedy = None
        case NoObjectError():
            remedy = "name a folder or a bucket that exists"
        case AccessDeniedError():
            rights = "list, read, write and delete objects there"
            remedy = f"give the pods' service account the permission to {rights}"
        case _:
            remedy = "see whether the pods' network lets them reach it"
    return StorageError(str(error), remedy=remedy)
