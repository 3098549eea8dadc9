"""Where checkpoints lie: a folder or an object store, seen as named objects that appear whole.

Everything that touches a checkpoint's files goes through a `Store`, so that a commit means the same
on a disk and in a bucket. No torch here: the process that writes in the background has no use for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol

from trainer.errors import CheckpointError, ConfigError
from trainer.location import is_local, local_path

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path


class StoreError(CheckpointError):
    """The store refused, or did not answer; tells where, what, and the remedy."""


class NameTakenError(StoreError):
    """Something else has the name already."""


class MissingError(StoreError):
    """Nothing has the name."""


class Store(Protocol):
    """Named objects below one URI, for instance `step-00000010/commit.json`.

    A name is made of parts joined by `/`; a part neither is empty nor begins with a dot. Every
    method may be called by several threads and processes at once, and raises `StoreError` where
    the store does not do as it is told.
    """

    uri: str

    def create(self, name: str, data: bytes) -> None:
        """Store `data` under a name that nothing has yet; it is whole and durable on return.

        Where the name holds these very bytes already, that is success: an earlier attempt got
        through and its answer was lost. So `data` of two writers must differ, by a token for instance.
        After another `StoreError` the object may be there or not.

        Raises:
            NameTakenError: it holds other bytes.
        """
        ...

    def write(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a stream for a large object, which replaces what had the name.

        It appears whole, and durable, when the `with` block is left without an error, and not otherwise.
        """
        ...

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """`length` bytes from `start` on, or all that follow; fewer where the object ends before.

        Raises:
            MissingError: nothing has the name.
        """
        ...

    def local_file(self, name: str) -> Path | None:
        """Where the object can be mapped into memory; None in an object store. It may not exist."""
        ...

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Every name that begins with `prefix`, with its bytes, in the order of names."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, in no certain order; absent ones are fine. They are gone on return."""
        ...

    def tidy(self) -> None:
        """Remove what `write`s that died left unseen. None may be under way."""
        ...


def open_store(uri: str) -> Store:
    """The store that a path or a URI names; nothing is made or asked before it is used.

    Raises:
        ConfigError: there is no store of this kind, or its extra is not installed.
    """
    if not is_local(uri):
        from trainer.checkpoint.store_fsspec import FsspecStore  # noqa: PLC0415 - only what is used

        return FsspecStore(uri)
    from trainer.checkpoint.store_local import LocalStore  # noqa: PLC0415 - it needs this module

    try:
        return LocalStore(local_path(uri))
    except ValueError as error:
        raise ConfigError(f"checkpoint_dir {error}") from error


def check_name(name: str) -> str:
    """Give a name back if it is one."""
    if any(not part or part.startswith(".") for part in name.split("/")):
        raise ValueError(f"{name!r} is no name in a store")
    return name
