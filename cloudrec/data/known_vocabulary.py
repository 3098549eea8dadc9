"""Loading the vocabulary of a prepared dataset or an export, for `--like`."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from cloudrec.data import stores
from cloudrec.data.format import encoding as encodings
from cloudrec.data.format import manifest
from cloudrec.data.format.encoding import AGAIN
from cloudrec.data.vocabulary import KnownVocabulary, check_bytes
from cloudrec.errors import DataError
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from cloudrec.data.format.encoding import Encoding, Growth, Table
    from cloudrec_contract.objectstore.base import ObjectStore

EXPORT = "config.json"  # of an export of a model
_EXPORT_FORMAT = "cloudrec-model"


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
        seen = {} if encoding.growth is None else _seen(store, encoding.growth)
    return KnownVocabulary(encoding=encoding, files=files, seen=seen)


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


def _seen(store: ObjectStore, growth: Growth) -> dict[str, bytes]:
    """Return the files that record when values were seen; an export has none."""
    found = {}
    for table, file in growth.files.items():
        data = stores.read(store, file.path)
        if data is None:
            continue
        if (crc := f"{zlib.crc32(data):08x}") != file.crc32:
            where = f"{store.uri}/{file.path}"
            raise DataError(f"{where} is damaged: its crc32 is {crc}, not {file.crc32}", remedy=AGAIN)
        found[table] = data
    return found


def _read(store: ObjectStore, table: Table) -> bytes:
    """Return the verified contents of a vocabulary file."""
    assert table.file is not None  # noqa: S101 - for the type checker: asked of such tables alone
    where = f"{store.uri}/{table.file.path}"
    data = stores.read(store, table.file.path)
    if data is None:
        raise DataError(f"{where} is missing", remedy=AGAIN)
    check_bytes(where, table, data)
    return data
