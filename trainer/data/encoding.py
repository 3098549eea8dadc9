"""The encoding of a dataset: how raw categories got their ids. dataset.json, checkpoints and exports have it.

Encodings with equal digests give equal ids to equal values, so a model can score data whose digest equals
that of its training data. Data without a description of its encoding (schema version 1, .npy days, Parquet,
a user's loader) has an unknown encoding: None. Unknown encodings are never treated as equal.

    {"digest": sha256 of "mapping",
     "mapping": {"kind", "version", ..., "tables": [{"feature", "rows", "sha256"}]},
     "files": {"C1": {"path": "vocabulary/C1.npy", "bytes", "crc32"}}}

A table has a file and a sha256 only if a vocabulary decides its ids.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from trainer.base.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "vocabulary"
REMEDY = (
    "encode it as the model's: `cloudrec data prepare --like MODEL SOURCE OUT`, where MODEL is the dataset "
    "that the model learned from, or its export by `python -m trainer.export`"
)
_PATH = re.compile(rf"{FOLDER}/\w[\w.-]{{0,150}}\.(npy|jsonl)", re.ASCII)
_SHOWN = 12  # digits of a digest, in messages


@dataclass(frozen=True, slots=True)
class VocabularyFile:
    """The vocabulary file of one feature: its values, in the order of ids."""

    path: str  # relative to the folder of the dataset or the export
    size: int  # bytes
    crc32: int
    sha256: str

    @property
    def name(self) -> str:
        """The name in its folder."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True, slots=True)
class KnownEncoding:
    """An encoding that is known."""

    kind: str
    digest: str
    rows: Mapping[str, int]  # of each feature's table
    files: tuple[VocabularyFile, ...]
    document: Mapping[str, Any]  # the whole JSON object

    def __str__(self) -> str:
        """Return the beginning of the digest, and the kind."""
        return f"{self.digest[:_SHOWN]} ({self.kind})"


def parse(document: Any) -> KnownEncoding:  # noqa: ANN401 - JSON may be anything
    """Read an encoding.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is malformed, or its digest does not fit it.
    """
    mapping = document["mapping"]
    if document["digest"] != (computed := digest_of(mapping)):
        raise ValueError(
            f"the encoding's digest is {document['digest']!r} but its mapping gives {computed!r}: it was "
            "changed after it was written"
        )
    files = document["files"]
    return KnownEncoding(
        kind=str(mapping["kind"]),
        digest=computed,
        rows={str(table["feature"]): int(table["rows"]) for table in mapping["tables"]},
        files=tuple(  # each once: features may share a vocabulary
            dict.fromkeys(
                _file(files[table["feature"]], str(table["sha256"]))
                for table in mapping["tables"]
                if "sha256" in table
            )
        ),
        document=document,
    )


def of_model(document: Mapping[str, Any], where: object) -> KnownEncoding | None:
    """Return the encoding of a model's training data, from its commit or export; None if it is unknown.

    Raises:
        CheckpointError: it is malformed.
    """
    if (found := document.get("encoding")) is None:  # or written before encodings were kept
        return None
    try:
        return parse(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{where}: its encoding cannot be read: {error!r}; put back a copy") from error


def digest_of(mapping: Mapping[str, Any]) -> str:
    """Return the digest of a mapping (hex sha256)."""
    canonical = json.dumps(mapping, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def computed(kind: str, version: int, rows: Mapping[str, int]) -> KnownEncoding:
    """Return the encoding of ids that are computed from values and the tables' rows; id 0 is "missing"."""
    tables = [{"feature": feature, "rows": size} for feature, size in rows.items()]
    mapping = {"kind": kind, "version": version, "missing_id": 0, "tables": tables}
    return parse({"digest": digest_of(mapping), "mapping": mapping, "files": {}})


def _file(entry: Mapping[str, Any], sha256: str) -> VocabularyFile:
    path = entry["path"]
    if not _PATH.fullmatch(path):
        raise ValueError(f"the vocabulary file {path!r} is not in {FOLDER}/, or has no plain name")
    return VocabularyFile(path, int(entry["bytes"]), int(entry["crc32"], 16), sha256)
