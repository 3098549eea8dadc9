"""Reading a feature schema from a YAML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import DataError
from cloudrec.safe_yaml import safe_yaml
from cloudrec_contract.features import FeatureSchema, SchemaError, parse

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST = 1 << 20  # bytes
_REMEDY = "docs/features.md describes a schema"


def load_schema(path: Path) -> FeatureSchema:
    """Return the schema in a file: the whole document, or its key `features`.

    Raises:
        DataError: it cannot be read, or is not valid.
    """
    try:
        data = path.read_bytes()[: _LARGEST + 1]
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the feature schema {path}: {error}", remedy=_REMEDY) from error
    value = safe_yaml(text, where=str(path), error=DataError, remedy=_REMEDY).value
    if isinstance(value, dict) and "features" in value:
        value = value["features"]
    try:
        return parse(value)
    except SchemaError as error:
        raise DataError(f"{path}: {error}", remedy=_REMEDY) from error
