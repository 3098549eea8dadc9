"""The vocabulary files of a dataset: written during `prepare`, and read for `--like`."""

from __future__ import annotations

import hashlib
import io
import zlib
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

import numpy as np

from cloudrec.data import stores
from cloudrec.data.format import encoding as encodings
from cloudrec.data.format import manifest
from cloudrec.data.format.encoding import AGAIN, DTYPE, FIRST, FOLDER, Encoding, Table
from cloudrec.data.format.shards import header_of
from cloudrec.errors import DataError
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from cloudrec.data.format.shards import Disk
    from cloudrec_contract.objectstore.base import ObjectStore

TEXTS = ".jsonl"  # the suffix of a vocabulary of texts
EXPORT = "config.json"  # of an export of a model
_EXPORT_FORMAT = "cloudrec-model"


def write(disk: Disk, feature: str, codes: npt.NDArray[np.uint32]) -> Table:
    """Write the vocabulary of a feature: its codes, in the order of ids."""
    values = np.ascontiguousarray(codes, DTYPE)
    header, body = memoryview(header_of(values.dtype, values.shape)), values.view(np.uint8).data
    file = disk.write(f"{FOLDER}/{feature}.npy", header, body)
    sha256 = hashlib.sha256(header)
    sha256.update(body)
    return Table(feature=feature, rows=FIRST + len(values), file=file, sha256=sha256.hexdigest())


@dataclass(frozen=True, kw_only=True)
class KnownVocabulary:
    """An existing encoding with its vocabulary in memory: 4 bytes per category."""

    encoding: Encoding
    files: Mapping[str, bytes]  # by feature

    def codes(self, number: int) -> npt.NDArray[np.uint32]:
        """Return the codes of the feature of this number, in the order of ids."""
        return _codes(self.files[self.encoding.tables[number].feature])

    def write(self, disk: Disk) -> None:
        """Write copies of the files."""
        files = {t.file.path: self.files[t.feature] for t in self.encoding.tables if t.file is not None}
        for path, data in files.items():  # features may share one
            disk.write(path, memoryview(data))


def load(like: str) -> KnownVocabulary:
    """Read the encoding of a prepared dataset or an export, and its vocabulary files.

    Args:
        like: the dataset's or the export's folder, or the URI of one in a bucket.

    Raises:
        DataError: it is neither, it has no vocabulary, or one of its files is missing or damaged.
        StorageError: the store refuses.
    """
    store = stores.open_store(like)
    with stores.explained(store):
        encoding = _encoding(store)
        files = {table.feature: _read(store, table) for table in encoding.tables if table.file is not None}
    return KnownVocabulary(encoding=encoding, files=files)


def read_files(folder: Path, encoding: Encoding) -> dict[str, bytes]:
    """Return the vocabulary files of an encoding that were written into a folder, by feature."""
    return {
        table.feature: (folder / table.file.path).read_bytes()
        for table in encoding.tables
        if table.file is not None
    }


def _encoding(store: ObjectStore) -> Encoding:
    if (found := stores.read(store, manifest.NAME)) is not None:
        where = f"{store.uri}/{manifest.NAME}"
        encoding = encodings.of_dataset(manifest.parse(found, where), where)
        return _required(encoding, store, "prepare that dataset again: it gives equal ids and keeps them")
    if (found := stores.read(store, EXPORT)) is not None:
        where = f"{store.uri}/{EXPORT}"
        document = _exported(found, where)
        encoding = None if (block := document.get("encoding")) is None else encodings.parse(block, where)
        return _required(encoding, store, "name the dataset that it was trained on, or export it again")
    raise DataError(
        f"{store.uri} is neither a prepared dataset nor an export of a model: it has no {manifest.NAME} and "
        f"no {EXPORT}",
        remedy="name the folder of one: `cloudrec data prepare` or `python -m trainer.export` makes it",
    )


def _required(encoding: Encoding | None, store: ObjectStore, remedy: str) -> Encoding:
    if encoding is None:
        raise DataError(f"{store.uri} does not say how its data is encoded", remedy=remedy)
    return encoding


def _exported(found: bytes, where: str) -> dict[str, Any]:
    try:
        document = safe_json(found)
    except ValueError as error:
        raise DataError(f"{where}: {error}", remedy="export the model again") from error
    if not isinstance(document, dict) or document.get("format") != _EXPORT_FORMAT:
        raise DataError(f"{where} does not describe an export of a model", remedy="name another folder")
    return document


def _read(store: ObjectStore, table: Table) -> bytes:
    """Return the verified contents of a vocabulary file."""
    assert table.file is not None  # noqa: S101 - for the type checker: asked of such tables alone
    where = f"{store.uri}/{table.file.path}"
    data = stores.read(store, table.file.path)
    if data is None:
        raise DataError(f"{where} is missing", remedy=AGAIN)
    check_bytes(where, table, data)
    return data


def check_bytes(where: object, table: Table, data: bytes) -> None:
    """Check a vocabulary file's crc32, sha256, type and shape; DataError if one differs from the encoding."""
    assert table.file is not None  # noqa: S101 - for the type checker: asked of such tables alone
    if (crc := f"{zlib.crc32(data):08x}") != table.file.crc32:
        raise DataError(f"{where} is damaged: its crc32 is {crc}, not {table.file.crc32}", remedy=AGAIN)
    if (sha256 := hashlib.sha256(data).hexdigest()) != table.sha256:
        raise DataError(
            f"{where} is not the vocabulary of the encoding's digest: its sha256 is {sha256[:12]}, not "
            f"{table.sha256[:12]}",
            remedy=AGAIN,
        )
    try:
        if table.file.path.endswith(TEXTS):
            _check_texts(where, table, data)
            return
        codes = _codes(data)
    except ValueError as error:
        raise DataError(f"cannot read {where}: {error}", remedy=AGAIN) from error
    if codes.dtype.str != DTYPE or codes.shape != (table.values,):
        raise DataError(
            f"{where} holds {codes.dtype} {codes.shape}, not {DTYPE} {(table.values,)}", remedy=AGAIN
        )


def _check_texts(where: object, table: Table, data: bytes) -> None:
    if (found := len(texts_in(data))) != table.values:
        raise DataError(f"{where} holds {found:,} values, not {table.values:,}", remedy=AGAIN)


def to_lines(values: Sequence[str]) -> bytes:
    """Return a vocabulary of texts as a file: a JSON text a line, in the order of ids."""
    return "".join(f"{encode_basestring(value)}\n" for value in values).encode()


def texts_in(data: bytes) -> list[str]:
    """Return the values in such a file; ValueError if it is malformed."""
    values = [safe_json(line) for line in data.split(b"\n")[:-1]]
    if not all(isinstance(value, str) for value in values) or len(set(values)) < len(values):
        raise ValueError("it holds something else than different texts")
    return values


def _codes(data: bytes) -> npt.NDArray[np.uint32]:
    codes: npt.NDArray[np.uint32] = np.load(io.BytesIO(data), allow_pickle=False)
    return codes
