"""The store of checkpoints: an object store whose errors are the trainer's.

All access to a checkpoint's files uses a `Store`, so that a commit means the same on a disk and in a bucket.
This module must not import torch: the background writer imports it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from cloudrec_contract.objectstore import open as stores
from cloudrec_contract.objectstore.base import is_name
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
from cloudrec_contract.objectstore.schemes import require_shared
from trainer.base.errors import CheckpointError, ConfigError
from trainer.checkpoint.store.near import CopyingStream, NearTier

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from cloudrec_contract.objectstore.base import ObjectStore, StoreOptions
    from trainer.checkpoint.store.near import NearOptions


class StoreError(CheckpointError):
    """The store refused or did not answer; the message has the place, the problem and the remedy."""


class NameTakenError(StoreError):
    """The name is taken by an object with other bytes."""


class MissingError(StoreError):
    """No object has the name."""


class Store:
    """Objects below one URI; `ObjectStore` documents the guarantees of each method.

    Every method raises `StoreError` if the store fails or refuses.

    Args:
        objects: the object store.
        near: this machine's copies of its data files; None for none.
    """

    def __init__(self, objects: ObjectStore, near: NearTier | None = None) -> None:
        self.objects = objects
        self.uri = objects.uri
        self.near = near

    def create(self, name: str, data: bytes) -> None:
        """Create an object under a new name; creating the same bytes again succeeds.

        Raises:
            NameTakenError: the name exists with other bytes.
        """
        with _translated():
            self.objects.create(name, data)

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """Open a stream for a large object, which appears whole when the `with` block succeeds."""
        copy = None if self.near is None else self.near.copy(name)
        try:
            with _translated(), self.objects.write(name) as file:
                yield file if copy is None else cast("BinaryIO", CopyingStream(file, copy))
        except BaseException:
            if copy is not None:
                copy.drop()
            raise
        if copy is not None:
            copy.finish()

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes from `start`, or all bytes that follow; fewer if the object ends before.

        Raises:
            MissingError: no object has the name.
        """
        with _translated():
            return self.objects.read(name, start, length)

    def local_file(self, name: str) -> Path | None:
        """Return the path to memory-map the object from, which may not exist; None for a bucket."""
        return self.objects.local_file(name)

    def readable_file(self, name: str) -> Path | None:
        """Return the path to read an object's bytes from: its own, or that of this machine's copy, if any."""
        path = self.local_file(name)
        return self.near.usable(name) if path is None and self.near is not None else path

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Return the size in bytes of every object whose name begins with `prefix`, sorted by name."""
        with _translated():
            return {name: size for name, size in self.objects.sizes(prefix).items() if is_name(name)}

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, in any order; absent names are ignored. The objects do not exist on return."""
        with _translated():
            self.objects.remove(names)

    def tidy(self) -> None:
        """Remove the invisible remains of `write`s that died; no `write` may be in progress."""
        with _translated():
            self.objects.tidy()


def open_store(uri: str, options: StoreOptions | None = None, *, near: NearOptions | None = None) -> Store:
    """Return the store that a path or a URI names; makes no request.

    Args:
        uri: the path or URI.
        options: of the object store.
        near: where this machine keeps copies; ignored if the store itself is a folder.

    Raises:
        ConfigError: the scheme is unknown, or its stores are not reached by every machine, or the extra for
            it is not installed.
    """
    try:
        require_shared(uri)
        objects = stores.open_store(uri, options)
    except StoreUriError as error:
        raise ConfigError(f"checkpoint_dir {uri!r}: {_problem(error)}") from error
    if near is None or objects.local_file("step") is not None:
        return Store(objects)
    return Store(objects, NearTier(near, objects.uri))


def _problem(error: StoreUriError) -> str:
    match error:
        case UnknownSchemeError():
            known = ", ".join(f"{each}://" for each in error.known)
            return f"{error}, only a path, {known}"
        case MissingDriverError(why=""):
            return f"{error}; pip install 'cloudrec[{error.extra}]'"
        case MissingDriverError():
            return f"{error} as it should be ({error.why}); pip install 'cloudrec[{error.extra}]'"
        case _:
            return str(error)


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the object store's errors into the trainer's, with the remedy."""
    try:
        yield
    except ObjectExistsError as error:
        raise NameTakenError(str(error)) from error
    except NoObjectError as error:
        raise MissingError(str(error)) from error
    except FileSystemError as error:
        raise StoreError(f"{error}; fix that (free space, permissions), or give another folder") from error
    except AccessDeniedError as error:
        raise StoreError(
            f"{error.where}: refused ({error.words}); give this process's identity the permission to list, "
            "read, write and delete objects there, or fix its credentials"
        ) from error
    except ObjectStoreError as error:
        raise StoreError(
            f"{error.where}: the store did not do it ({error.words}); see whether it can be reached and is "
            "well, then start again, which continues from the last checkpoint"
        ) from error
