"""Writing what a version consists of: an export, or the rows of a delta in one file."""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.serving.document import FILE_NAME, encode_document
from trainer.serving.exported import describe
from trainer.serving.publication.format import ALIGNMENT, PublishedArray, RowChange, StoredPiece
from trainer.serving.publication.summed import SummedStream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    import numpy.typing as npt

    from trainer.checkpoint.store.base import Store
    from trainer.publishing.changes import ChangedRows
    from trainer.publishing.model import CommittedModel

    Array = npt.NDArray[Any]


class ChangesFile:
    """changes.bin while it is written."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.size = 0
        self._file = file
        self._name = name

    def add_rows(self, array: PublishedArray, changed: Iterable[ChangedRows]) -> PublishedArray:
        """Write rows; return the array with them as its change."""
        numbers: list[Array] = []
        values: list[Array] = []
        for found in changed:
            numbers.append(found.numbers.astype(array.number_type))
            values.append(found.rows)
        count = sum(map(len, numbers))
        if not count:
            return replace(array, change=RowChange(0))
        return replace(array, change=RowChange(count, self._add(numbers), self._add(values)))

    def add(self, data: bytes) -> StoredPiece:
        """Write bytes."""
        return self._add([np.frombuffer(data, np.uint8)])

    def _add(self, blocks: list[Array]) -> StoredPiece:
        padding = -self.size % ALIGNMENT
        self._file.write(b"\0" * padding)
        self.size += padding
        start, summed = self.size, sha256()
        for block in blocks:
            data = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
            summed.update(data)
            self._file.write(data)
            self.size += len(data)
        return StoredPiece(self._name, start, self.size - start, summed.hexdigest())


@contextmanager
def changes_file(store: Store, folder: str) -> Iterator[ChangesFile]:
    """Open changes.bin, which appears when the block ends without an error."""
    name = f"{folder}/changes.bin"
    with store.write(name) as file:
        yield ChangesFile(file, name)


class ExportWriter:
    """Writes an export into a store: the files that trainer.serving.exported writes into a folder."""

    def __init__(self, store: Store, folder: str, model: CommittedModel) -> None:
        self._store = store
        self._folder = folder
        self._model = model

    def array(self, name: str, array: PublishedArray) -> PublishedArray:
        """Write all rows of an array."""
        with self._file(f"{name}.npy") as (file, found):
            header = {"descr": array.dtype, "fortran_order": False, "shape": array.shape}
            np.lib.format.write_array_header_1_0(file, header)
            for _, rows in self._model.blocks(name):
                file.write(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
        return replace(array, whole=found[0])

    def file(self, path: str, data: bytes) -> StoredPiece:
        """Write a file."""
        with self._file(path) as (file, found):
            file.write(data)
        return found[0]

    def document(self, listed: Iterable[tuple[str, StoredPiece]]) -> None:
        """Write config.json, which lists these files."""
        files = {path: {"bytes": piece.bytes, "sha256": piece.sha256} for path, piece in listed}
        self.file(FILE_NAME, encode_document(describe(self._model.described), files).encode())

    @contextmanager
    def _file(self, path: str) -> Iterator[tuple[SummedStream, list[StoredPiece]]]:
        name, found = f"{self._folder}/export/{path}", list[StoredPiece]()
        with self._store.write(name) as file:
            stream = SummedStream(file)
            yield stream, found
        found.append(StoredPiece(name, 0, stream.size, stream.sha256))


def write_vocabulary(store: Store, folder: str, model: CommittedModel) -> dict[str, StoredPiece]:
    """Write the vocabulary files; return them by their paths in an export."""
    vocabulary = model.described.vocabulary
    found: dict[str, StoredPiece] = {}
    for file in () if vocabulary is None else vocabulary.encoding.files:
        name = f"{folder}/{file.path}"
        with store.write(name) as target:
            vocabulary.copy(file, target)  # type: ignore[union-attr] # it has files
        found[file.path] = StoredPiece(name, 0, file.size, file.sha256)
    return found


def npy(array: Array) -> bytes:
    """Return the bytes of an array's .npy file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()
