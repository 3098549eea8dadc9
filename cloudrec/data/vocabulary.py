"""The vocabulary files of a dataset: written during `prepare`, checked and read."""

from __future__ import annotations

import hashlib
import io
import re
import zlib
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import TYPE_CHECKING

import numpy as np

from cloudrec.data.format.encoding import AGAIN, DTYPE, FIRST, FOLDER, Encoding, Table
from cloudrec.data.format.shards import header_of
from cloudrec.errors import DataError
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from cloudrec.data.format.shards import Disk

TEXTS = ".jsonl"  # the suffix of a vocabulary of texts
_ESCAPED = re.compile(r"[\x00-\x09\x0b-\x1f\\]")


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
    seen: Mapping[str, bytes] = field(default_factory=dict)  # the record of its growth, by table

    def codes(self, number: int) -> npt.NDArray[np.uint32]:
        """Return the codes of the feature of this number, in the order of ids."""
        return _codes(self.files[self.encoding.tables[number].feature])

    def write(self, disk: Disk) -> None:
        """Write copies of the files."""
        files = {t.file.path: self.files[t.feature] for t in self.encoding.tables if t.file is not None}
        for path, data in files.items():  # features may share one
            disk.write(path, memoryview(data))


def read_files(folder: Path, encoding: Encoding) -> dict[str, bytes]:
    """Return the vocabulary files of an encoding that were written into a folder, by feature."""
    return {
        table.feature: (folder / table.file.path).read_bytes()
        for table in encoding.tables
        if table.file is not None
    }


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
    lines = '"\n"'.join(values)
    others = len(values) - 1  # a quick way for values that JSON writes as they are
    if (
        values
        and (lines.count('"'), lines.count("\n")) == (2 * others, others)
        and not _ESCAPED.search(lines)
    ):
        return f'"{lines}"\n'.encode()
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
