"""dataset.json: the description of a prepared dataset, and reading it.

Schema version 2 added the encoding's digest and the vocabulary files. Version 1 is still read; its encoding
is unknown.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import DataError
from cloudrec.safe_path import UnsafeNameError, check_name
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT = "cloudrec-dataset"
SCHEMA_VERSION = 2
_READ = (1, SCHEMA_VERSION)
NAME = "dataset.json"


@dataclass(frozen=True, kw_only=True)
class ShardFile:
    """One .npy file; the path is relative to the dataset, with forward slashes."""

    path: str
    bytes: int
    crc32: str  # 8 hexadecimal digits, over the whole file


@dataclass(frozen=True, kw_only=True)
class DatasetShard:
    """Consecutive rows of a split."""

    name: str
    rows: int
    files: Mapping[str, ShardFile]  # labels, dense, sparse

    def to_json(self) -> dict[str, Any]:
        """Return the shard's object in dataset.json."""
        return {"name": self.name, "rows": self.rows, "files": {k: asdict(f) for k, f in self.files.items()}}


def digest(splits: Mapping[str, Any], num_embeddings: Mapping[str, int]) -> str:
    """Return the sha256 that identifies a dataset by its contents, wherever it was made."""
    content = {"num_embeddings_per_feature": num_embeddings, "splits": splits}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def file_in(folder: Path, name: str) -> Path:
    """Return the path of a file that dataset.json names; DataError if the name is outside the folder.

    Symbolic links are followed, since the files of a dataset may be on another disk.
    """
    try:
        return folder / check_name(name)
    except UnsafeNameError as error:
        message = f"{folder / NAME} names a file outside the dataset: {error.message}"
        raise DataError(
            message, remedy="do not use this dataset; prepare one from data that you trust"
        ) from error


def load(folder: Path) -> dict[str, Any]:
    """Read dataset.json; DataError if it is missing, not JSON, of another format or version, or altered."""
    path = folder / NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise DataError(
            f"{folder} is no prepared dataset: it has no {NAME}", remedy="run `cloudrec data prepare` first"
        ) from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    return parse(text, path)


def parse(text: bytes, path: object) -> dict[str, Any]:
    """Parse a dataset.json; raises the errors of `load`, which name `path`."""
    try:
        manifest = safe_json(text)
    except ValueError as error:
        raise DataError(f"{path}: {error}", remedy="prepare the dataset again") from error
    _require(manifest, path)
    return manifest  # type: ignore[no-any-return]  # _require has seen that it is a dictionary


def _require(manifest: object, path: object) -> None:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(
            f"{path} does not describe a prepared dataset", remedy="name a folder that prepare has made"
        )
    version = manifest.get("schema_version")
    if version not in _READ:
        raise DataError(
            f"{path} has schema version {version!r}; this cloudrec reads versions "
            f"{' and '.join(map(str, _READ))}",
            remedy="prepare the dataset again with this cloudrec",
        )
    try:
        expected = digest(manifest["splits"], manifest["num_embeddings_per_feature"])
    except KeyError as error:
        raise DataError(f"{path} lacks {error}", remedy="prepare the dataset again") from error
    if manifest.get("digest") != expected:
        raise DataError(f"{path} was altered: its digest does not fit it", remedy="prepare the dataset again")
