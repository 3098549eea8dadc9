"""A folder: a copy that appears whole, read back to prove it."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.data.places import ArrivedDamagedError, crc32_of
from cloudrec.home import make_private, storage_error, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.data.manifest import ShardFile

_PIECE = 8 << 20


def open_place(uri: str) -> Folder:
    """Return the folder at a path or file:// URI."""
    return Folder(uri)


class Folder:
    """See `Place`."""

    def __init__(self, uri: str) -> None:
        self._root = Path(uri.removeprefix("file://")).expanduser().absolute()
        self.uri = str(self._root)

    def reach(self) -> None:
        """See `Place`; it is made when the first file comes."""

    def holds(self, file: ShardFile, local: Path) -> bool:
        """See `Place`."""
        del local
        path = self._root / file.path
        return path.is_file() and path.stat().st_size == file.bytes and crc32_of(path) == file.crc32

    def put(self, file: ShardFile, local: Path, sent: Callable[[int], None]) -> None:
        """See `Place`."""
        path = self._root / file.path
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with local.open("rb") as source, draft.open("xb") as target:
                while block := source.read(_PIECE):
                    target.write(block)
                    sent(len(block))
                target.flush()
                os.fsync(target.fileno())
            if crc32_of(draft) != file.crc32:
                raise ArrivedDamagedError(f"{path}: the copy is not what was read")
            draft.replace(path)
        except OSError as error:
            raise storage_error(path, error) from error
        finally:
            with suppress(OSError):  # the first error counts
                draft.unlink()

    def read(self, name: str) -> bytes | None:
        """See `Place`."""
        path = self._root / name
        return path.read_bytes() if path.is_file() else None

    def write(self, name: str, data: bytes) -> None:
        """See `Place`."""
        make_private(self._root)
        write_atomically(self._root / name, data.decode())

    def remove(self, name: str) -> None:
        """See `Place`."""
        (self._root / name).unlink(missing_ok=True)

    def status(self, error: BaseException) -> int | None:
        """See `Place`."""
        del error
        return None

    def is_unanswered(self, error: BaseException) -> bool:
        """See `Place`."""
        del error
        return False
