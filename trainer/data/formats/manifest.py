"""Reading and checking `dataset.json`, schema version 2.

Version 1, which has no encoding and no vocabulary files, is read too; its encoding is unknown.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec_contract.features import SchemaError, parse
from cloudrec_contract.safe_json import safe_object
from trainer.base.errors import DatasetError
from trainer.data import encoding as encodings

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec_contract.features import FeatureSchema
    from trainer.data.encoding import KnownEncoding

FILE_NAME = "dataset.json"
FORMAT = "cloudrec-dataset"
SCHEMA_VERSIONS = (1, 2)
SPLITS = ("train", "test")
KINDS = ("labels", "dense", "sparse")
LIST_KINDS = ("offsets", "values")  # of the features with lists, if there are any
VALUE_WEIGHT_KINDS = ("value_weights",)  # of their ids, if those of a feature have some
WEIGHT_KINDS = ("weights",)  # of the samples, if the schema names their column
_LONGEST_PART = 200  # characters between two slashes of a file's path
_MAX_ROWS_PER_TABLE = 2**31 - 1  # ids are int32


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a shard."""

    path: str  # relative to the dataset's folder
    size: int  # bytes
    crc32: int


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard: some rows of a split in three files, two more for lists and one more for weights."""

    name: str
    rows: int
    files: dict[str, FileEntry]  # by kind


@dataclass(frozen=True, slots=True)
class SplitEntry:
    """One split: its shards in row order."""

    rows: int
    positives: int | tuple[int, ...]  # of each label if there are several
    shards: tuple[ShardEntry, ...]


@dataclass(frozen=True, slots=True)
class DatasetManifest:
    """The contents of dataset.json."""

    digest: str
    dense_features: tuple[str, ...]
    sparse_features: tuple[str, ...]
    num_embeddings: dict[str, int]
    splits: dict[str, SplitEntry]
    encoding: KnownEncoding | None  # None: unknown
    schema: FeatureSchema | None  # None: one table a feature, and no lists
    has_labels: bool


def read(directory: Path) -> DatasetManifest:
    """Read and check the manifest of a dataset's folder; DatasetError if it is not valid."""
    path = directory / FILE_NAME
    try:
        document = safe_object(path.read_bytes())
    except FileNotFoundError as error:
        raise DatasetError(
            f"dataset {directory}: holds no {FILE_NAME}, so it is not a dataset or its preparation never "
            "finished; run `cloudrec data prepare` (again)"
        ) from error
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read as JSON: {error}; prepare the dataset again") from error
    _check_version(path, document)
    _check_digest(path, document)
    try:
        return _parse(document)
    except SchemaError as error:
        raise DatasetError(f"{path}: its feature schema: {error}; prepare the dataset again") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise DatasetError(f"{path}: {what}; prepare the dataset again") from error


def digest_of(document: dict[str, Any]) -> str:
    """Return the digest of a manifest's shards and table sizes (hex sha256)."""
    part = {key: document[key] for key in ("splits", "num_embeddings_per_feature")}
    canonical = json.dumps(part, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _check_version(path: Path, document: Any) -> None:  # noqa: ANN401 - JSON may be anything
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise DatasetError(
            f"{path}: its format is {found!r}, not {FORMAT!r}; give a prepared dataset's folder"
        )
    version = document.get("schema_version")
    if version not in SCHEMA_VERSIONS:
        raise DatasetError(
            f"{path}: schema_version is {version!r}, this trainer reads "
            f"{' and '.join(map(str, SCHEMA_VERSIONS))}; "
            "prepare the dataset again with the version of cloudrec that runs the trainer"
        )


def _check_digest(path: Path, document: dict[str, Any]) -> None:
    try:
        computed = digest_of(document)
    except KeyError as error:
        raise DatasetError(f"{path}: the field {error} is missing; prepare the dataset again") from error
    if document.get("digest") != computed:
        raise DatasetError(
            f"{path}: its digest is {document.get('digest')!r} but its contents give {computed!r}: "
            "it was changed after it was written; prepare the dataset again"
        )


def _parse(document: dict[str, Any]) -> DatasetManifest:
    sparse = _names(document, "sparse_features")
    sizes = document["num_embeddings_per_feature"]
    if set(sizes) != set(sparse):
        odd = sorted(set(sizes) ^ set(sparse))
        raise ValueError(f"sparse_features and num_embeddings_per_feature differ in {', '.join(odd)}")
    schema = parse(document["features"]) if "features" in document else None
    dense = _names(document, "dense_features", may_be_empty=schema is not None)
    if schema is not None and [[each.name for each in part] for part in (schema.dense, schema.sparse)] != [
        list(dense),
        list(sparse),
    ]:
        raise ValueError("the schema in `features` has other features than the dataset")
    kinds, tasks = KINDS, 0
    if schema is not None:
        lists, weights = LIST_KINDS if schema.lists else (), WEIGHT_KINDS if schema.weight else ()
        value_weights = VALUE_WEIGHT_KINDS if schema.weighted else ()
        kinds, tasks = (*KINDS, *lists, *value_weights, *weights), len(schema.tasks)
    return DatasetManifest(
        digest=document["digest"],
        dense_features=dense,
        sparse_features=sparse,
        num_embeddings={name: _integer(sizes, name, low=1, high=_MAX_ROWS_PER_TABLE) for name in sparse},
        splits={name: _split(name, document["splits"][name], kinds, tasks) for name in SPLITS},
        schema=schema,
        has_labels=document.get("labels") is not False,
        encoding=None if document["schema_version"] == 1 else _encoding(document["encoding"], sizes),
    )


def _encoding(document: Any, sizes: dict[str, Any]) -> KnownEncoding:  # noqa: ANN401 - JSON may be anything
    encoding = encodings.parse(document)
    if encoding.rows != sizes:
        raise ValueError("its encoding has other table sizes than num_embeddings_per_feature")
    return encoding


def _names(document: dict[str, Any], key: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
    names = document[key]
    if (
        not isinstance(names, list)
        or not (names or may_be_empty)
        or not all(isinstance(name, str) for name in names)
    ):
        raise ValueError(f"{key} is {names!r}, not a list of names")
    if len(set(names)) != len(names):
        raise ValueError(f"{key} names a feature twice")
    return tuple(names)


def _split(name: str, document: dict[str, Any], kinds: tuple[str, ...], tasks: int) -> SplitEntry:
    shards = tuple(_shard(shard, kinds) for shard in document["shards"])
    rows = _integer(document, "rows")
    total = sum(shard.rows for shard in shards)
    if total != rows:
        raise ValueError(f"split {name} claims {rows} rows, its shards hold {total}")
    return SplitEntry(rows=rows, positives=_positives(document, rows, tasks), shards=shards)


def _positives(document: dict[str, Any], rows: int, tasks: int) -> int | tuple[int, ...]:
    if not tasks:
        return _integer(document, "positives", high=rows)
    found = document["positives"]
    if not isinstance(found, list) or len(found) != tasks:
        raise ValueError(f"positives is {found!r}, not a list of {tasks} numbers")
    return tuple(_integer({"positives": each}, "positives", high=rows) for each in found)


def _shard(document: dict[str, Any], kinds: tuple[str, ...]) -> ShardEntry:
    files = {kind: _file(document["files"][kind]) for kind in kinds}
    return ShardEntry(name=str(document["name"]), rows=_integer(document, "rows"), files=files)


def _file(document: dict[str, Any]) -> FileEntry:
    path = document["path"]
    parts = path.split("/")
    is_plain = path.isprintable() and "\\" not in path and max(map(len, parts)) <= _LONGEST_PART
    if not is_plain or {"", ".", ".."} & set(parts):
        raise ValueError(f"the file {path!r} lies outside the dataset's folder, or has no plain name")
    return FileEntry(path=path, size=_integer(document, "bytes"), crc32=int(document["crc32"], 16))


def _integer(document: dict[str, Any], key: str, *, low: int = 0, high: int = 2**62) -> int:
    value = document[key]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{key} is {value!r}, not a whole number from {low} to {high}")
    return value
