"""Datasets for `data push`: files of arbitrary bytes, and a dataset.json that describes them."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path
from typing import Any

from cloudrec.data.format import manifest
from cloudrec.data.format.encoding import Encoding, Table

SMALL, LARGE = 3_000, 17 * 2**20 + 11  # bytes; large files go in parts


def make_dataset(folder: Path, *, seed: int = 1, sizes: tuple[int, ...] = (SMALL, SMALL, LARGE)) -> Path:
    """A dataset of one shard."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    files: dict[str, Any] = {}
    (folder / "train").mkdir(parents=True)
    for kind, size in zip(("labels", "dense", "sparse"), sizes, strict=True):
        data = draw.randbytes(size)
        path = f"train/shard-00000.{kind}.npy"
        (folder / path).write_bytes(data)
        files[kind] = {"path": path, "bytes": size, "crc32": f"{zlib.crc32(data):08x}"}
    splits = {"train": {"rows": 1, "shards": [{"name": "shard-00000", "rows": 1, "files": files}]}}
    write_manifest(folder, splits)
    return folder


def write_manifest(folder: Path, splits: dict[str, Any]) -> None:
    """dataset.json, signed."""
    tables = {"C1": 5}
    encoding = Encoding(kind="hash", tables=(Table(feature="C1", rows=5),))
    content = {
        "format": manifest.FORMAT,
        "schema_version": manifest.SCHEMA_VERSION,
        "rows": 1,
        "num_embeddings_per_feature": tables,
        "encoding": encoding.to_json(),
        "splits": splits,
        "digest": manifest.digest(splits, tables),
    }
    (folder / manifest.NAME).write_text(json.dumps(content))


def names(folder: Path) -> set[str]:
    """The files of a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
