"""dataset.json: what a prepared dataset says about itself, and how it is read back."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT = "cloudrec-dataset"
SCHEMA_VERSION = 1
NAME = "dataset.json"


@dataclass(frozen=True, kw_only=True)
class ShardFile:
    """One .npy file; the path is relative to the dataset, with forward slashes."""

    path: str
    bytes: int
    crc32: str  # 8 hexadecimal digits, over the whole file


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Consecutive rows of a split."""

    name: str
    rows: int
    files: Mapping[str, ShardFile]  # labels, dense, sparse

    def to_json(self) -> dict[str, Any]:
        """Return what dataset.json says of the shard."""
        return {"name": self.name, "rows": self.rows, "files": {k: asdict(f) for k, f in self.files.items()}}


def digest(splits: Mapping[str, Any], num_embeddings: Mapping[str, int]) -> str:
    """Return the sha256 that tells one prepared dataset from another, whenever and wherever it was made."""
    content = {"num_embeddings_per_feature": num_embeddings, "splits": splits}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def load(folder: Path) -> dict[str, Any]:
    """Read dataset.json; DataError when it is absent, no JSON, of another format or version, or altered."""
    path = folder / NAME
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"{folder} is no prepared dataset: it has no {NAME}", remedy="run `cloudrec data prepare` first"
        ) from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}", remedy="prepare the dataset again") from error
    _require(manifest, path)
    return manifest  # type: ignore[no-any-return]  # _require has seen that it is a dictionary


def _require(manifest: object, path: Path) -> None:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(
            f"{path} does not describe a prepared dataset", remedy="name a folder that prepare has made"
        )
    version = manifest.get("schema_version")
    if version != SCHEMA_VERSION:
        raise DataError(
            f"{path} has schema version {version!r}; this cloudrec reads version {SCHEMA_VERSION}",
            remedy="prepare the dataset again with this cloudrec",
        )
    try:
        expected = digest(manifest["splits"], manifest["num_embeddings_per_feature"])
    except KeyError as error:
        raise DataError(f"{path} lacks {error}", remedy="prepare the dataset again") from error
    if manifest.get("digest") != expected:
        raise DataError(f"{path} was altered: its digest does not fit it", remedy="prepare the dataset again")
