"""Finding tables (Parquet, Arrow, CSV, TSV, JSON lines) and streaming their columns as Arrow batches."""

from __future__ import annotations

import glob
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet

from cloudrec.data.prepare.table_parquet import BATCH_ROWS, read_parquet
from cloudrec.errors import DataError
from cloudrec_contract.features import closest
from cloudrec_contract.objectstore.schemes import is_remote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.data.stored_files import StoredFile
    from cloudrec_contract.features import FeatureSchema

_BLOCK_BYTES = 4 << 20
_HEAD_BYTES = 1 << 20
_PACKED = ("", ".gz", ".zst", ".bz2")
_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
_JSON = (".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather")
SUFFIXES = (*_PARQUET, *_ARROW, *(kind + packed for kind in (*_DELIMITERS, *_JSON) for packed in _PACKED))
_NULLS = ["", "NULL", r"\N"]
_NUMERIC = {
    "dense": "a dense feature",
    "number": "bucketise",
    "weight": "a weight",
    "value weight": "the weight of a value",
}


class TableFile(NamedTuple):
    """One file to read."""

    path: Path | StoredFile
    bytes: int
    split: str | None  # train or test; None: the number of a row decides its split


def find_tables(texts: Sequence[str]) -> list[TableFile]:
    """Return the files that paths or patterns name, in the order of reading.

    Args:
        texts: each is a file, a folder, a folder with train/ and test/ folders, or a glob pattern; or the
            URI of one in a bucket.

    Raises:
        DataError: there is no such file, or none with a known suffix.
    """
    return [table for text in texts for table in _found(text)]


def _found(text: str) -> list[TableFile]:
    if is_remote(text):
        return _in_bucket(text)
    path = Path(text).expanduser()
    try:
        if path.is_file():
            return [_file(path, None)]
        if path.is_dir():
            if not (path / "train").is_dir():
                return _in_folder(path, None)
            test = _in_folder(path / "test", "test") if (path / "test").is_dir() else []
            return _in_folder(path / "train", "train") + test
        if glob.has_magic(text):
            names = glob.glob(str(path), recursive=True)  # noqa: PTH207 - absolute patterns too
            found = sorted(map(Path, names))
            if files := [_file(each, None) for each in found if each.is_file()]:
                return files
            raise DataError(
                f"no file matches {text}", remedy="quote the pattern so that the shell leaves it alone"
            )
    except OSError as error:
        raise DataError(f"cannot read {error.filename or path}: {error.strerror}") from error
    raise DataError(
        f"{text} does not exist", remedy="name a file, a folder or a pattern such as 'day_*.parquet'"
    )


def _in_bucket(uri: str) -> list[TableFile]:
    from cloudrec.data.stored_files import find_stored  # noqa: PLC0415 - it loads the stores

    files = [each for each in find_stored(uri) if each.name.endswith(SUFFIXES)]
    if not files:
        raise DataError(
            f"{uri} holds no table", remedy=f"its objects' names must end in {', '.join(SUFFIXES)}"
        )
    parts = {each: each.key.partition("/")[0] for each in files}
    if "train" not in parts.values():
        return [_file(each, None) for each in files]
    return [_file(each, part) for part in ("train", "test") for each in files if parts[each] == part]


def answers(schema: FeatureSchema) -> tuple[str, ...]:
    """Return the columns that say how a row ended: rows that are only scored need none of them."""
    return schema.answers


def lacking_columns(files: Sequence[TableFile], schema: FeatureSchema) -> tuple[str, ...]:
    """Return `answers` if the files have none of these columns, else nothing; reads only the heads.

    Raises:
        DataError: a file cannot be read, or only some of the files have no such column.
    """
    columns = answers(schema)
    lacking = [not set(columns) & set(_head(each.path, schema).names) for each in files]
    if any(lacking) and not all(lacking):
        first, other = files[lacking.index(True)].path, files[lacking.index(False)].path
        raise DataError(
            f"{first} has no label, and {other} has one",
            remedy="name files that are alike; score those without a label on their own",
        )
    return columns if all(lacking) else ()


def check_heads(files: Sequence[TableFile], schema: FeatureSchema, *, absent: Sequence[str] = ()) -> None:
    """Refuse files whose columns do not fit the schema; reads only the heads.

    Args:
        files: the files.
        schema: the schema.
        absent: columns that need not be there (`lacking_columns`).

    Raises:
        DataError: a file cannot be read, a column is missing, or its type does not fit.
    """
    for file in files:
        found = _head(file.path, schema)
        for column in absent:
            found = found.append(pa.field(column, pa.int8()))
        for column in schema.columns:
            if column not in found.names:
                raise DataError(
                    f"{file.path} has no column {column}{closest(column, found.names)}",
                    remedy="correct the schema: `column:` names the column of a feature",
                )
            if (count := found.names.count(column)) > 1:
                raise DataError(
                    f"{file.path} has {count} columns named {column}", remedy="rename all but one of them"
                )
        _check_types(file.path, found, schema)


def _check_types(path: Path | StoredFile, found: pa.Schema, schema: FeatureSchema) -> None:
    for label in schema.labels:
        _check_type(path, label.column, found.field(label.column).type, "label")
    if schema.weight is not None:
        _check_type(path, schema.weight, found.field(schema.weight).type, "weight")
    for dense in schema.dense:
        use = "dense" if dense.lookup is None else "category"
        _check_type(path, dense.column, found.field(dense.column).type, use)
    for sparse in schema.sparse:
        use = "number" if sparse.encoding == "bucketise" and sparse.lookup is None else "category"
        for column in sparse.columns:
            kind = found.field(column).type
            if sparse.kind != "single":
                kind = _element(path, column, kind, sparse.separator)
            _check_type(path, column, kind, use)
    if schema.split is not None:
        kind = found.field(schema.split.column).type
        _check_type(path, schema.split.column, kind, "split" if schema.split.by == "time" else "category")
    for sparse in schema.weighted:
        assert sparse.weights is not None  # noqa: S101 - for the type checker: it is weighted
        kind = found.field(sparse.weights).type
        if sparse.separator is None or _is_list(kind):  # otherwise texts, of which each is checked
            kind = _element(path, sparse.weights, kind, sparse.separator)
            _check_type(path, sparse.weights, kind, "value weight")


def read_batches(
    file: TableFile, schema: FeatureSchema, *, absent: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the schema's columns of a file, some rows at a time; DataError if it cannot be read.

    Columns that are `absent` are filled with zeros.
    """
    texts = _texts_like_times(file.path, schema)
    with _explained(file.path), _input(file.path) as source:
        reader = _open(source, _kind(file.path), schema, head=False, absent=absent, texts=texts)
        for batch in reader.batches:
            for column in absent:
                batch = batch.append_column(column, pa.array(np.zeros(batch.num_rows, np.int8)))  # noqa: PLW2901 - as is meant
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)


def _head(path: Path | StoredFile, schema: FeatureSchema) -> pa.Schema:
    texts = _texts_like_times(path, schema)
    with _explained(path), _input(path) as source:
        return _open(source, _kind(path), schema, head=True, texts=texts).schema


def _texts_like_times(path: Path | StoredFile, schema: FeatureSchema) -> dict[str, pa.DataType]:
    """Return the categories of a file of JSON lines whose texts look like times, with the types to read.

    Arrow would make times of them, "2026-05-01 00:00:00" of "2026-05-01": another value than the same text in
    a file of another kind, or in a request to a server.
    """
    if _kind(path) not in _JSON:
        return {}
    with _explained(path), _input(path) as source:
        found = _open(source, _kind(path), schema, head=True).schema
    categories = {column for each in schema.sparse for column in each.columns}
    categories |= {each.column for each in schema.dense if each.lookup is not None}
    if schema.split is not None and schema.split.by == "time":
        categories.discard(schema.split.column)
    texts: dict[str, pa.DataType] = {}
    for field in (each for each in found if each.name in categories):
        if pa.types.is_timestamp(field.type):
            texts[field.name] = pa.string()
        elif _is_list(field.type) and pa.types.is_timestamp(field.type.value_type):
            texts[field.name] = pa.list_(pa.string())
    return texts


@contextmanager
def _input(path: Path | StoredFile) -> Iterator[Path | pa.NativeFile]:
    """Yield what Arrow reads a file from; it unpacks those on this machine by their names."""
    if isinstance(path, Path):
        yield path
        return
    packed = next((end for end in _PACKED[1:] if path.name.endswith(end)), None)
    with path.open() as stream, pa.PythonFile(stream, "r") as source:
        if packed is None:
            yield source
            return
        with pa.CompressedInputStream(source, _CODECS[packed]) as unpacked:
            yield unpacked


class _Opened(NamedTuple):
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


def _open(
    source: Path | pa.NativeFile,
    kind: str,
    schema: FeatureSchema,
    *,
    head: bool,
    absent: Sequence[str] = (),
    texts: Mapping[str, pa.DataType] = MappingProxyType({}),
) -> _Opened:
    columns = [each for each in schema.columns if each not in absent]
    if kind in _PARQUET:
        found = pa.parquet.read_schema(source)
        return _Opened(found, iter(()) if head else read_parquet(source, schema, columns))
    if kind in _ARROW:
        arrow = pa.ipc.open_file(pa.memory_map(str(source)) if isinstance(source, Path) else source)
        batches = (arrow.get_batch(number).select(columns) for number in range(arrow.num_record_batches))
        return _Opened(arrow.schema, batches)
    block = _HEAD_BYTES if head else _BLOCK_BYTES
    if kind in _JSON:
        weight = () if schema.weight is None else (schema.weight,)
        numbers = dict.fromkeys([*weight, *_numbers(schema)], pa.float64())  # Arrow dies of a name twice
        numbers |= {each.weights: pa.list_(pa.float64()) for each in schema.weighted if not each.separator}
        reader = pa.json.open_json(
            source,
            read_options=pa.json.ReadOptions(block_size=block, use_threads=not head),
            parse_options=pa.json.ParseOptions(explicit_schema=pa.schema({**numbers, **texts})),
        )
        return _Opened(reader.schema, (batch.select(columns) for batch in reader))
    reader = pa.csv.open_csv(
        source,
        read_options=pa.csv.ReadOptions(block_size=block, use_threads=not head),
        parse_options=pa.csv.ParseOptions(delimiter=_DELIMITERS[kind]),
        convert_options=pa.csv.ConvertOptions(
            column_types=_csv_types(schema),
            include_columns=None if head else columns,
            null_values=_NULLS,
            strings_can_be_null=True,
        ),
    )
    return _Opened(reader.schema, iter(reader))


def _numbers(schema: FeatureSchema) -> list[str]:
    """Return the columns of numbers."""
    return [each.column for each in schema.dense if each.lookup is None]


def _csv_types(schema: FeatureSchema) -> dict[str, pa.DataType]:
    types = {each.column: pa.string() for each in schema.labels}
    types |= {each: pa.float64() for each in _numbers(schema)}
    if schema.weight is not None:
        types[schema.weight] = pa.float64()
    for each in schema.sparse:
        is_number = each.encoding == "bucketise" and each.kind == "single" and each.lookup is None
        for column in each.columns:
            if column not in types:  # a column may be dense and sparse
                types[column] = pa.float64() if is_number else pa.string()
    types |= {each.column: pa.string() for each in schema.dense if each.column not in types}
    if schema.split is not None:
        types.setdefault(schema.split.column, pa.string())
    return types | {each.weights: pa.string() for each in schema.weighted if each.weights is not None}


def _check_type(path: Path | StoredFile, column: str, kind: pa.DataType, use: str) -> None:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    is_plain = is_number or pa.types.is_boolean(kind) or pa.types.is_null(kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if use in _NUMERIC and not is_plain:
        raise DataError(
            f"{path}: the column {column} is {kind}; {_NUMERIC[use]} needs numbers",
            remedy="write numbers into the file"
            if use.endswith("weight")
            else "make it a sparse feature, or write numbers into the file",
        )
    if use in ("label", "category", "split") and not (
        is_plain or is_text or (use != "label" and pa.types.is_temporal(kind))
    ):
        hint = (
            "give it `kind: multi_hot`, or `sequence`"
            if pa.types.is_list(kind) or pa.types.is_large_list(kind)
            else "write one"
        )
        what = (
            "the label needs 0 and 1"
            if use == "label"
            else "a split by time needs a time or a number a row"
            if use == "split"
            else "a sparse feature needs a text or a whole number a row"
        )
        raise DataError(f"{path}: the column {column} is {kind}; {what}", remedy=hint)


def _element(path: Path | StoredFile, column: str, kind: pa.DataType, separator: str | None) -> pa.DataType:
    """Return the type of the values in a column of lists."""
    if _is_list(kind):
        return kind.value_type
    if separator is None and not pa.types.is_null(kind):
        raise DataError(
            f"{path}: the column {column} is {kind}, not lists",
            remedy="a list in a text column needs its separator, as in `separator: '|'`",
        )
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _in_folder(folder: Path, split: str | None) -> list[TableFile]:
    files = [
        _file(each, split)
        for each in sorted(folder.iterdir())
        if each.name.endswith(SUFFIXES) and each.is_file()
    ]
    if not files:
        raise DataError(
            f"{folder} holds no table", remedy=f"its files' names must end in {', '.join(SUFFIXES)}"
        )
    return files


def _file(path: Path | StoredFile, split: str | None) -> TableFile:
    if not path.name.endswith(SUFFIXES):
        raise DataError(f"{path} is of no known format", remedy=f"its name must end in {', '.join(SUFFIXES)}")
    size = path.stat().st_size if isinstance(path, Path) else path.bytes
    if not size:
        raise DataError(f"{path} is empty", remedy="remove it or replace it by a file with rows")
    return TableFile(path, size, split)


def _kind(path: Path | StoredFile) -> str:
    name = path.name
    for packed in _PACKED[1:]:
        name = name.removesuffix(packed)
    return Path(name).suffix


class _explained:  # noqa: N801 - used as a function
    """Turn Arrow's errors into a DataError that names the file."""

    def __init__(self, path: Path | StoredFile) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing is opened."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, pa.ArrowException | OSError) and not isinstance(error, DataError):
            words = " ".join(str(error).split())[:300]
            raise DataError(
                f"cannot read {self._path}: {words}",
                remedy="the file is damaged, or its format is not that of its name",
            ) from error
