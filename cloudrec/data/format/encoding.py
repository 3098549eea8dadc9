"""The encoding of a dataset: the mapping from raw categories to ids, and its digest.

    DATASET/dataset.json         "encoding": {"digest", "mapping", "files"}
    DATASET/vocabulary/C1.npy    uint32 [ids - 2], little-endian: place i holds the category with id i + 2

Id 0 means a missing category. With the kind `vocabulary`, id 1 means a category that is not in the
vocabulary. With the kind `hash`, every other id is computed (`encode.hashed`), and there are no files. With
the kind `features`, a schema says how each feature is encoded, and a vocabulary is a file of JSON lines.

The digest is the sha256 of `mapping`, which contains everything that determines an id: the kind, the version
of its rules, the reserved ids, and for each feature the size of its table and the sha256 of its vocabulary
file. It does not depend on the rows: datasets with equal digests give equal ids to equal categories. An
export of a model (`python -m trainer.export`) has the same document in its config.json, and the same files.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cloudrec.data.format.manifest import SCHEMA_VERSION, ShardFile
from cloudrec.errors import DataError
from cloudrec.safe_path import UnsafeNameError, check_name

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "vocabulary"
MISSING = 0
UNKNOWN = 1
FIRST = 2  # the first category of a vocabulary
DTYPE = "<u4"
AGAIN = "prepare the dataset again, or copy it again from an intact copy"
FEATURES = "features"  # the kind of an encoding by a feature schema
_KINDS = ("vocabulary", "hash", FEATURES)
_RULE_KEYS = ("features", "statistics", "hash")  # of the mapping, with the kind `features`
_MAY_LACK = ("hash",)  # without hashed features, and in datasets of the first version
_RULES = 1  # version: how a kind computes ids


@dataclass(frozen=True, kw_only=True)
class Table:
    """The mapping of one feature.

    Attributes:
        feature: its name.
        rows: the number of ids, including the reserved ones.
        file: its vocabulary; None with the kind `hash`.
        sha256: of that file; "" if there is none.
        unknown: the ids of values that the vocabulary lacks.
    """

    feature: str
    rows: int
    file: ShardFile | None = None
    sha256: str = ""
    unknown: int = 1

    @property
    def values(self) -> int:
        """The values of its vocabulary."""
        return self.rows - FIRST + 1 - self.unknown


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The record of a vocabulary that grows from dataset to dataset. It decides no id.

    Attributes:
        generation: how many preparations it has grown by.
        files: of each table, the last preparation whose training rows had each value (cloudrec.data.growth).
    """

    generation: int
    files: Mapping[str, ShardFile]


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The mapping of a dataset's categories to ids.

    Attributes:
        kind: vocabulary or hash.
        tables: one for each feature, in the order of the features, on which a hash depends.
        min_frequency: a category with fewer training rows is not in the vocabulary; None with the kinds
            `hash` and `features`. It is not a part of the mapping, so it does not change the digest.
        features: the feature schema as JSON; None with the other kinds. The mapping has only a part of it.
        rules: that part: what decides the numbers and ids of each feature.
        growth: the record of vocabularies that grow; None if they do not.
    """

    kind: str
    tables: tuple[Table, ...]
    min_frequency: int | None = None
    features: Mapping[str, Any] | None = None
    rules: Mapping[str, Any] | None = None
    growth: Growth | None = None

    @property
    def files(self) -> list[ShardFile]:
        """The vocabulary files, each once: features may share one; and the record of their growth."""
        own = {table.file.path: table.file for table in self.tables if table.file is not None}
        return [*own.values(), *(() if self.growth is None else self.growth.files.values())]

    @property
    def digest(self) -> str:
        """The digest of the mapping; equal for datasets that give a category the same id."""
        return digest_of(self._mapping())

    def to_json(self) -> dict[str, Any]:
        """Return the encoding's object in dataset.json."""
        document: dict[str, Any] = {
            "digest": self.digest,
            "mapping": self._mapping(),
            "files": {table.feature: asdict(table.file) for table in self.tables if table.file is not None},
        }
        if self.features is not None:
            document["features"] = dict(self.features)
        if self.growth is not None:
            files = {table: asdict(file) for table, file in self.growth.files.items()}
            document["growth"] = {"generation": self.growth.generation, "files": files}
        return document if self.min_frequency is None else {**document, "min_frequency": self.min_frequency}

    def _mapping(self) -> dict[str, Any]:
        reserved: dict[str, Any] = {"missing_id": MISSING, **(self.rules or {})}
        if self.kind in ("vocabulary", FEATURES):
            reserved |= {"unknown_id": UNKNOWN, "first_id": FIRST}
        tables = [
            {
                "feature": each.feature,
                "rows": each.rows,
                **({"sha256": each.sha256} if each.sha256 else {}),
                **({"unknown": each.unknown} if each.unknown > 1 else {}),
            }
            for each in self.tables
        ]
        return {"kind": self.kind, "version": _RULES, **reserved, "tables": tables}


def digest_of(mapping: Mapping[str, Any]) -> str:
    """Return the digest of a mapping in dataset.json."""
    canonical = json.dumps(mapping, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def of_dataset(content: Mapping[str, Any], where: object) -> Encoding | None:
    """Return the encoding of a dataset; None if it is unknown, as in schema version 1.

    Args:
        content: dataset.json.
        where: the file, for messages.

    Raises:
        DataError: it is malformed, or its digest or its table sizes do not fit it.
    """
    if content["schema_version"] < SCHEMA_VERSION:
        return None
    encoding = parse(content.get("encoding"), where)
    if {table.feature: table.rows for table in encoding.tables} != content["num_embeddings_per_feature"]:
        raise DataError(f"{where}: its encoding has other table sizes than the dataset", remedy=AGAIN)
    return encoding


def parse(document: Any, where: object) -> Encoding:  # noqa: ANN401 - JSON may be anything
    """Return the encoding that a document describes.

    Raises:
        DataError: it is malformed, its digest does not fit it, or this version does not know its kind.
    """
    try:
        mapping = document["mapping"]
        kind, version = mapping["kind"], mapping["version"]
        digest = document["digest"]
        tables = tuple(_table(table, document["files"]) for table in mapping["tables"])
        has_features = kind == FEATURES
        encoding = Encoding(
            kind=str(kind),
            tables=tables,
            min_frequency=document.get("min_frequency"),
            features=dict(document["features"]) if has_features else None,
            rules=_rules(mapping) if has_features else None,
            growth=_growth(document.get("growth")),
        )
        _check_tables(encoding)
    except UnsafeNameError as error:
        raise DataError(
            f"{where} names a file outside {FOLDER}/: {error.message}",
            remedy="do not use this dataset; prepare one from data that you trust",
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{where}: its encoding is malformed: {error!r}", remedy=AGAIN) from error
    if digest != digest_of(mapping):
        raise DataError(f"{where}: the encoding was changed: its digest does not fit it", remedy=AGAIN)
    if kind not in _KINDS or encoding.digest != digest:
        raise DataError(
            f"{where}: its encoding is of the kind {kind!r}, version {version!r}; this cloudrec prepares "
            f"{' and '.join(_KINDS)}, version {_RULES}",
            remedy="use the version of cloudrec that wrote it; a model that learned from raw TSV files reads "
            "other raw files alike, so they need not be prepared",
        )
    return encoding


def _rules(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {key: mapping[key] for key in _RULE_KEYS if key in mapping or key not in _MAY_LACK}


def _check_tables(encoding: Encoding) -> None:
    rows = [table.rows for table in encoding.tables]
    if encoding.kind == "vocabulary" and len(encoding.files) < len(rows):
        raise ValueError("a table has no vocabulary file")
    if encoding.kind == "hash" and len(set(rows)) > 1:
        raise ValueError("hashes have tables of different sizes")
    if min(rows) < FIRST:
        raise ValueError(f"a table has {min(rows)} rows")


def _table(entry: Mapping[str, Any], files: Mapping[str, Any]) -> Table:
    feature, rows, sha256 = str(entry["feature"]), int(entry["rows"]), str(entry.get("sha256", ""))
    if not sha256:
        return Table(feature=feature, rows=rows)
    file = _file(files[feature])
    unknown = int(entry.get("unknown", 1))
    if not 1 <= unknown <= rows - 1:
        raise ValueError(f"a table has {rows} rows, and {unknown} ids of unknown values")
    return Table(feature=feature, rows=rows, file=file, sha256=sha256, unknown=unknown)


def _file(found: Mapping[str, Any]) -> ShardFile:
    path = check_name(found["path"])
    if PurePosixPath(path).parent != PurePosixPath(FOLDER):
        raise ValueError(f"the file {path!r} is not in {FOLDER}/")
    crc32 = f"{int(found['crc32'], 16):08x}"
    return ShardFile(path=path, bytes=int(found["bytes"]), crc32=crc32)


def _growth(found: Mapping[str, Any] | None) -> Growth | None:
    if found is None:
        return None
    generation = int(found["generation"])
    if not 1 <= generation < 1 << 31:
        raise ValueError(f"a vocabulary has grown {generation} times")
    files = {str(table): _file(file) for table, file in found["files"].items()}
    return Growth(generation=generation, files=files)
