"""Reading a feature schema from a YAML file."""

from __future__ import annotations

from pathlib import Path

from cloudrec.errors import DataError
from cloudrec.safe_yaml import safe_yaml
from cloudrec.spec import DEFAULT_FILE
from cloudrec_contract.features import FeatureSchema, SchemaError, parse

_LARGEST = 1 << 20  # bytes
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
        return parse(value)
    except SchemaError as error:
        raise DataError(f"{path}: {error}", remedy=_REMEDY) from error
