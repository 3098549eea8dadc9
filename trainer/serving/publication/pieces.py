"""Reading a publication's objects, with errors for users. This module must not import torch."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cloudrec_contract.objectstore import open as stores
from cloudrec_contract.objectstore.errors import NoObjectError, ObjectStoreError, StoreUriError
from cloudrec_contract.objectstore.schemes import require_shared
from trainer.base.errors import ConfigError
from trainer.serving.publication.format import PublicationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_contract.objectstore.base import ObjectStore
    from trainer.serving.publication.format import StoredPiece

READ_BYTES = 8 << 20  # at a time
_PROBED_BYTES = 64 << 20  # memory is taken for more only if the object is as long
REMEDY = "put back a copy, or publish with --full"


class PieceReader:
    """Reads pieces of objects.

    Args:
        uri: of the publication: a folder, or a URI in a bucket.

    Raises:
        ConfigError: the URI names no store, or the extra for it is not installed.
    """

    def __init__(self, uri: str) -> None:
        try:
            require_shared(uri)
            self.objects: ObjectStore = stores.open_store(uri)
        except StoreUriError as error:
            raise ConfigError(
                f"publication {uri!r}: {error}; give a folder, or the URI of a bucket's"
            ) from error
        self.uri = self.objects.uri

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the size of every object whose name begins with `prefix`."""
        with _translated():
            return self.objects.sizes(prefix)

    def head(self, name: str, most: int) -> bytes | None:
        """Return the first bytes of an object, at most so many; None if it is missing."""
        try:
            with _translated():
                return self.objects.read(name, 0, most)
        except PublicationError as error:
            if isinstance(error.__cause__, NoObjectError):
                return None
            raise

    def file(self, piece: StoredPiece) -> bytes:
        """Return a piece's bytes, verified."""
        self.check_room(piece)
        data = bytearray(piece.bytes)
        self.read_into(piece, memoryview(data))
        return bytes(data)

    def read_into(self, piece: StoredPiece, target: memoryview, *, head: memoryview | None = None) -> None:
        """Fill `head` and then `target` with a piece's bytes; PublicationError if its sha256 differs."""
        summed = hashlib.sha256()
        at = piece.position
        for part in (head, target):
            if part is not None:
                at = self._read(piece, at, part, summed)
        self._compare(piece, summed.hexdigest())

    def copy(self, piece: StoredPiece, target: Any) -> None:  # noqa: ANN401 - any stream
        """Write a piece's bytes to a stream; PublicationError, at the end, if its sha256 differs."""
        summed = hashlib.sha256()
        for start in range(0, piece.bytes, READ_BYTES):
            data = self.part(piece, start, min(READ_BYTES, piece.bytes - start))
            summed.update(data)
            target.write(data)
        self._compare(piece, summed.hexdigest())

    def part(self, piece: StoredPiece, start: int, length: int) -> bytes:
        """Return some bytes of a piece, which are not verified."""
        data = bytearray(length)
        self._read(piece, piece.position + start, memoryview(data), hashlib.sha256())
        return bytes(data)

    def check_room(self, piece: StoredPiece) -> None:
        """Check that an object is as long as its manifest says, before memory is taken for it."""
        if piece.bytes > _PROBED_BYTES:
            self.part(piece, piece.bytes - 1, 1)

    def _read(self, piece: StoredPiece, at: int, target: memoryview, summed: Any) -> int:  # noqa: ANN401 - a hash
        place = f"{self.uri}/{piece.object}"
        for start in range(0, len(target), READ_BYTES):
            part = target[start : start + READ_BYTES]
            try:
                with _translated():
                    data = self.objects.read(piece.object, at, len(part))
            except PublicationError as error:
                if not isinstance(error.__cause__, NoObjectError):
                    raise
                raise PublicationError(
                    f"{place}: missing; it may be of a version that is removed by now, so take the newest, "
                    "or publish with --full"
                ) from error
            if len(data) != len(part):
                raise PublicationError(f"{place}: ends {len(part) - len(data)} bytes too early; {REMEDY}")
            part[:] = data
            summed.update(part)
            at += len(part)
        return at

    def _compare(self, piece: StoredPiece, found: str) -> None:
        if found != piece.sha256:
            raise PublicationError(
                f"{self.uri}/{piece.object}: damaged: the sha256 of {piece.bytes} bytes at {piece.position} "
                f"is {found}, not the manifest's {piece.sha256}; {REMEDY}"
            )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except ObjectStoreError as error:
        raise PublicationError(
            f"{error.where}: the store did not do it ({error.words}); see whether it can be reached, and "
            "whether this process may read there"
        ) from error
