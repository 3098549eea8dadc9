"""Reading a feature schema from a YAML file."""

from __future__ import annotations

import csv
import io
from functools import partial
from pathlib import Path

from cloudrec.errors import DataError
from cloudrec.safe_yaml import safe_yaml
from cloudrec.spec.load import DEFAULT_FILE
from cloudrec_contract.features import FeatureSchema, SchemaError, parse
from cloudrec_contract.safe_json import safe_json

_LARGEST = 1 << 20  # bytes
_LARGEST_MAP = 4 << 20  # bytes of a lookup's file
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_REMEDY = "docs/features.md describes a schema"


def default_schema() -> FeatureSchema | None:
    """Return the schema in ./cloudrec.yaml; None if there is no such file, or it has no `features`.

    Raises:
        DataError: the file cannot be read, or its schema is not valid.
    """
    path = Path(DEFAULT_FILE)
    if not path.is_file():
        return None
    value = _content(path)
    return _parsed(path, value["features"]) if isinstance(value, dict) and value.get("features") else None


def load_schema(path: Path) -> FeatureSchema:
    """Return the schema in a file: the whole document, or its key `features`.

    Raises:
        DataError: it cannot be read, or is not valid.
    """
    value = _content(path)
    if isinstance(value, dict) and "features" in value:
        value = value["features"]
    return _parsed(path, value)


def _content(path: Path) -> object:
    try:
        text = path.read_bytes()[: _LARGEST + 1].decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the feature schema {path}: {error}", remedy=_REMEDY) from error
    return safe_yaml(text, where=str(path), error=DataError, remedy=_REMEDY).value


def _parsed(path: Path, value: object) -> FeatureSchema:
    try:
        return parse(value, partial(_read_map, path.parent))
    except SchemaError as error:
        raise DataError(f"{path}: {error}", remedy=_REMEDY) from error


def _read_map(folder: Path, name: str) -> dict[str, object]:
    """Return the map in a file of a `lookup`, named relative to the schema's folder."""
    path = folder / name
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SchemaError(f"cannot read the lookup {path}: {error.strerror}") from error
    if len(data) > _LARGEST_MAP:
        raise SchemaError(
            f"the lookup {path} has {len(data):,} bytes; {_LARGEST_MAP:,} is the most: join such a table to "
            "the files"
        )
    try:
        if path.suffix == ".json":
            found = safe_json(data)
        elif path.suffix in _DELIMITERS:
            found = _pairs(data.decode("utf-8-sig"), _DELIMITERS[path.suffix])
        else:
            raise SchemaError(f"the lookup {path} is of no known format; it must be .csv, .tsv or .json")
    except (ValueError, csv.Error) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"the lookup {path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise SchemaError(
            f"the lookup {path} holds a {type(found).__name__}; it must be an object, as in "
            '{"Berlin": "DE", "Paris": "FR"}'
        )
    return found


def _pairs(text: str, delimiter: str) -> dict[str, object]:
    """Return the rows of a table of two columns; ValueError names a line that does not fit."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    found: dict[str, object] = {}
    for row in filter(None, reader):  # without empty lines
        if len(row) != 2:  # noqa: PLR2004 - a value, and what it becomes
            raise ValueError(f"line {reader.line_num} has {len(row)} columns, not 2")
        if reader.line_num == 1:
            continue  # the names of the columns
        key, value = row
        if found.setdefault(key, value) != value:
            raise ValueError(f"line {reader.line_num} gives {key!r} another value than a line before")
    return found
