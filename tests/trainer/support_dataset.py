"""Small prepared datasets as `cloudrec data prepare` writes them, made with numpy alone."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Rows:
    """The true contents of a split."""

    labels: npt.NDArray[np.uint8]  # [rows]
    dense: npt.NDArray[np.float32]  # [rows, D]
    sparse: npt.NDArray[np.int32]  # [F, rows]


def write_dataset(
    directory: Path,
    *,
    train_rows: int = 1000,
    test_rows: int = 200,
    num_dense: int = 13,
    num_sparse: int = 26,
    num_embeddings: int = 50,
    shard_rows: int = 300,
    seed: int = 0,
) -> dict[str, Rows]:
    """Write a dataset of random rows; labels depend on the first feature, so that a model can learn.

    Row i of a split has i in its first dense column, which identifies the sample.
    """
    random = np.random.default_rng(seed)
    contents = {
        name: _random_rows(rows, num_dense, num_sparse, num_embeddings, random)
        for name, rows in (("train", train_rows), ("test", test_rows))
    }
    sizes = {f"C{i + 1}": num_embeddings for i in range(num_sparse)}
    write_rows(directory, contents, num_embeddings=sizes, shard_rows=shard_rows)
    return contents


def write_rows(
    directory: Path, contents: dict[str, Rows], *, num_embeddings: dict[str, int], shard_rows: int
) -> None:
    """Write given rows: splits train and test; ids of each feature in the order of `num_embeddings`."""
    directory.mkdir(parents=True, exist_ok=True)
    num_dense = contents["train"].dense.shape[1]
    document: dict[str, Any] = {
        "format": "cloudrec-dataset",
        "schema_version": 2,
        "created": "2026-01-01T00:00:00+00:00",
        "cloudrec_version": "0.0.0",
        "dense_features": [f"I{i + 1}" for i in range(num_dense)],
        "sparse_features": list(num_embeddings),
        "num_embeddings_per_feature": num_embeddings,
        "encoding": hash_encoding(num_embeddings),
        "dense_transform": "log1p",
        "rows": sum(len(rows.labels) for rows in contents.values()),
        "bad_rows": 0,
        "sources": [],
        "splits": {name: _write_split(directory, name, rows, shard_rows) for name, rows in contents.items()},
    }
    write_manifest(directory, document)


def make_version_1(directory: Path) -> None:
    """Convert a dataset to schema version 1, without an encoding."""
    document = json.loads((directory / "dataset.json").read_text())
    old = {"kind": "vocabulary", "min_frequency": 3, "missing_id": 0, "unknown_id": 1}
    write_manifest(directory, document | {"schema_version": 1, "encoding": old})


def hash_encoding(num_embeddings: dict[str, int]) -> dict[str, Any]:
    """An encoding without vocabulary files."""
    tables = [{"feature": feature, "rows": rows} for feature, rows in num_embeddings.items()]
    mapping = {"kind": "hash", "version": 1, "missing_id": 0, "tables": tables}
    return {"digest": _digest(mapping), "mapping": mapping, "files": {}}


def _digest(part: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(part, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def write_manifest(directory: Path, document: dict[str, Any]) -> None:
    """Write dataset.json with its digest."""
    document["digest"] = _digest({key: document[key] for key in ("splits", "num_embeddings_per_feature")})
    (directory / "dataset.json").write_text(json.dumps(document, indent=1))


def _random_rows(
    rows: int, num_dense: int, num_sparse: int, num_embeddings: int, random: np.random.Generator
) -> Rows:
    dense = random.random((rows, num_dense), dtype=np.float32)
    dense[:, 0] = np.arange(rows)
    sparse = random.integers(0, num_embeddings, (num_sparse, rows), dtype=np.int32)
    likely = np.where(sparse[0] < num_embeddings // 2, 0.6, 0.1)
    return Rows((random.random(rows) < likely).astype(np.uint8), dense, sparse)


def _write_split(directory: Path, name: str, rows: Rows, shard_rows: int) -> dict[str, Any]:
    (directory / name).mkdir(exist_ok=True)
    total = len(rows.labels)
    shards = [
        _write_shard(
            directory, f"{name}/shard-{index:05d}", rows, slice(start, min(start + shard_rows, total))
        )
        for index, start in enumerate(range(0, total, shard_rows))
    ]
    return {"rows": total, "positives": int(rows.labels.sum()), "shards": shards}


def _write_shard(directory: Path, name: str, rows: Rows, part: slice) -> dict[str, Any]:
    arrays: dict[str, npt.NDArray[Any]] = {
        "labels": rows.labels[part],
        "dense": rows.dense[part],
        "sparse": np.ascontiguousarray(rows.sparse[:, part]),
    }
    files = {}
    for kind, array in arrays.items():
        path = f"{name}.{kind}.npy"
        np.save(directory / path, array)
        data = (directory / path).read_bytes()
        files[kind] = {"path": path, "bytes": len(data), "crc32": f"{zlib.crc32(data):08x}"}
    return {"name": name, "rows": part.stop - part.start, "files": files}
