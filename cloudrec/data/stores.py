"""Opens the stores that datasets are pushed to and read from, and explains their errors to a user."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, MissingExtraError, PreflightError, StorageError, UsageError
from cloudrec.home import storage_error
from cloudrec.launchers.base.ssh.shell import login_error
from cloudrec_contract.objectstore import open as stores
from cloudrec_contract.objectstore.errors import (
    AccessDeniedError,
    FileSystemError,
    MissingDriverError,
    NoObjectError,
    ObjectStoreError,
    StoreUriError,
    UnauthenticatedError,
    UnknownSchemeError,
)
from cloudrec_contract.objectstore.local.store import path_of
from cloudrec_contract.objectstore.schemes import is_remote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_contract.objectstore.base import ObjectStore


def open_store(uri: str) -> ObjectStore:
    """Return the store that a URI names; a path is a folder.

    Raises:
        UsageError: its scheme is not known, or it names no bucket.
        MissingExtraError: its client is not installed.
    """
    if not uri.partition("://")[2 if "://" in uri else 0].strip("/"):
        raise UsageError(f"{uri} names no place", remedy="name one, as s3://BUCKET/FOLDER")
    try:
        return stores.open_store(uri if is_remote(uri) else str(path_of(uri).absolute()))
    except UnknownSchemeError as error:
        known = ", ".join(f"{each}://" for each in error.known)
        raise UsageError(
            f"{uri}: the scheme {error.scheme!r} is not known",
            remedy=f"name a folder, or a URI with one of: {known}",
        ) from error
    except MissingDriverError as error:
        raise MissingExtraError(error.extra, module=error.module, why=error.why) from error
    except StoreUriError as error:
        raise UsageError(f"{uri} names no place: it {error}") from error


def read(store: ObjectStore, name: str) -> bytes | None:
    """Return a small object; None if there is none."""
    try:
        return store.read(name)
    except NoObjectError:
        return None
    except FileSystemError as error:
        if isinstance(error.__cause__, NotADirectoryError):
            return None
        raise


@contextmanager
def explained(store: ObjectStore) -> Iterator[None]:
    """Turn the store's errors into cloudrec's, with the remedy."""
    try:
        yield
    except ObjectStoreError as error:
        raise login_error(error) or _explain(store.uri, error) from error


def _explain(uri: str, error: ObjectStoreError) -> CloudrecError:
    match error:
        case FileSystemError() if isinstance(error.__cause__, OSError):
            return storage_error(Path(error.where), error.__cause__)
        case FileSystemError():
            return StorageError(
                str(error), remedy="see its permissions and its free space there, or name another folder"
            )
        case UnauthenticatedError():
            return PreflightError(
                f"no credentials for {uri} ({error.words})",
                remedy="log in to the cloud; `cloudrec doctor` checks it",
            )
        case NoObjectError():
            return StorageError(
                f"{uri}: its bucket is not there",
                remedy="name one that exists; `cloudrec up` makes a cluster's own, "
                "which --cluster NAME finds",
            )
        case AccessDeniedError():
            return StorageError(
                f"{uri}: refused ({error.words})",
                remedy="ask the owner for permission to list, read, write and delete objects there; "
                "a store with network rules must also allow this machine's address",
            )
        case _:
            return StorageError(
                f"{uri}: the store did not complete the request ({error.words})",
                remedy="check that it can be reached, then run it again: arrived files are not sent again",
            )
