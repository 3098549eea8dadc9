"""Copies of the vocabulary that stay with the model: beside the checkpoints, and in an export.

    CHECKPOINT_DIR/vocabulary/<digest of the encoding>/C1.npy    written once, before the first checkpoint
    EXPORT/vocabulary/C1.npy

So `cloudrec data prepare --like EXPORT` works after the dataset was deleted. The names beside checkpoints
contain the digest of the encoding, so runs that write there at the same time write the same bytes.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec_contract.objectstore.local.store import LocalStore
from trainer.base.errors import CheckpointError
from trainer.checkpoint.store.base import Store
from trainer.data.encoding import FOLDER

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from trainer.data.encoding import KnownEncoding, VocabularyFile

_THREADS = 4
_PIECE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """An encoding, and the place of its vocabulary files."""

    encoding: KnownEncoding
    store: Store
    prefix: str  # of the files' names in the store

    def keep_in(self, store: Store) -> None:
        """Copy the files beside checkpoints, except those that exist there with the right size."""
        prefix = kept_in(store, self.encoding).prefix
        there = store.sizes(f"{prefix}/")

        def keep(file: VocabularyFile) -> None:
            if there.get(name := f"{prefix}/{file.name}") != file.size:
                with store.write(name) as target:
                    self.copy(file, target)

        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(keep, self.encoding.files))  # the first error is raised here

    def export_to(self, folder: Path) -> None:
        """Copy the files into an export's folder."""
        for file in self.encoding.files:
            path = folder / file.path
            path.parent.mkdir(exist_ok=True)
            with path.open("wb") as target:
                self.copy(file, target)

    def copy(self, file: VocabularyFile, target: BinaryIO) -> None:
        """Copy a file; CheckpointError if its sha256 is not the one in the encoding."""
        name, found = f"{self.prefix}/{file.name}", hashlib.sha256()
        for start in range(0, file.size, _PIECE_BYTES):
            piece = self.store.read(name, start, min(_PIECE_BYTES, file.size - start))
            found.update(piece)
            target.write(piece)
        if found.hexdigest() != file.sha256:
            raise CheckpointError(
                f"{self.store.uri}/{name}: its sha256 is {found.hexdigest()}, not the encoding's "
                f"{file.sha256}; restore the file from a copy of the dataset or of the checkpoints"
            )


def in_folder(folder: Path, encoding: KnownEncoding) -> Vocabulary:
    """Return the vocabulary in the folder of a dataset or an export."""
    return Vocabulary(encoding, Store(LocalStore(folder)), FOLDER)


def kept_in(store: Store, encoding: KnownEncoding) -> Vocabulary:
    """Return the vocabulary beside the checkpoints in a store."""
    return Vocabulary(encoding, store, f"{FOLDER}/{encoding.digest}")
