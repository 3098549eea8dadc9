"""Raw rows with every kind of feature, and models that learned from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cloudrec.data.prepare.prepare import prepare
from cloudrec_contract.features import parse
from tests.trainer.support_runs import run_here
from trainer.commands import export, predict

ROWS = 1_200
PLAIN: dict[str, Any] = {
    "label": "clicked",
    "dense": [
        {"name": "price", "transform": "normalise"},
        {"name": "age", "missing": "error"},
    ],
    "sparse": ["city", "device", {"name": "shop", "encoding": "hash", "buckets": 40}],
}
RICH: dict[str, Any] = {
    "label": "clicked",
    "dense": [
        {"name": "price", "clip": [-1, 1], "transform": "min_max"},
        {"name": "wealth", "column": "city", "lookup": {"city 1": 2, "city 2": 0.5}},
    ],
    "sparse": [
        {"name": "city", "min_frequency": 40, "unknown_buckets": 3},
        {"name": "city_device", "cross": ["city", "device"], "buckets": 50},
        {"name": "region", "column": "city", "lookup": {f"city {each}": each // 5 for each in range(15)}},
        {"name": "years", "column": "age", "boundaries": [20, 30, 50]},
        {"name": "tags", "kind": "multi_hot", "weights": "tag_scores", "min_frequency": 1},
        {"name": "words", "kind": "multi_hot", "separator": "|", "pooling": "mean", "min_frequency": 1},
        {"name": "path", "kind": "sequence", "max_length": 3, "pooling": "position", "min_frequency": 1},
    ],
}
SEVERAL: dict[str, Any] = {
    "labels": ["clicked", {"name": "bought", "missing": "skip"}],
    "weight": "importance",
    "dense": PLAIN["dense"],
    "sparse": [*PLAIN["sparse"], {"name": "path", "kind": "multi_hot", "min_frequency": 1}],
}
HISTORY: dict[str, Any] = {
    "label": "clicked",
    "item": ["item"],
    "dense": ["price"],
    "sparse": [
        {"name": "city", "min_frequency": 1},
        {"name": "item", "min_frequency": 1, "table": "items"},
        {"name": "path", "kind": "sequence", "max_length": 4, "min_frequency": 1, "table": "items"},
    ],
}
SMALL: dict[str, Any] = {"embedding_dim": 8, "dense_arch_layer_sizes": (8,), "over_arch_layer_sizes": (8, 1)}
SMALL |= {"batch_size": 100, "num_epochs": 1, "threads": 1, "learning_rate": 0.1, "dense_learning_rate": 0.01}


def make_rows(seed: int, count: int = ROWS) -> list[dict[str, Any]]:
    """Rows with all columns of the schemas above, some of them null, some with values that are rare."""
    random = np.random.default_rng(seed)
    city = random.integers(0, 20, count)
    tags = [random.integers(0, 9, random.integers(0, 5)) for _ in range(count)]
    return [
        {
            "clicked": int(random.random() < 0.2 + 0.04 * (city[row] % 10)),
            "bought": [None, 0, 1][random.integers(0, 3)],
            "importance": float(random.integers(1, 4) / 2),
            "price": None if random.random() < 0.1 else float(random.normal()),
            "age": int(random.integers(10, 80)),
            "city": f"city {city[row]}" if city[row] else None,
            "device": ["ios", "android", "web", f"rare {seed} {row}"][random.integers(0, 4)],
            "shop": int(random.integers(0, 500)),
            "item": int(random.integers(0, 30)),
            "tags": [f"t{each}" for each in tags[row]],
            "tag_scores": random.normal(size=len(tags[row])).tolist(),
            "words": "|".join(f"w{each}" for each in tags[row]) or None,
            "path": random.integers(0, 30, random.integers(0, 7)).tolist() if row % 11 else None,
        }
        for row in range(count)
    ]


def learn(folder: Path, schema: dict[str, Any], seed: int = 1, **settings: Any) -> Path:
    """Prepare rows, train on them and return the checkpoints' folder."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(make_rows(seed)), folder / "rows.parquet")
    prepare(str(folder / "rows.parquet"), folder / "data", schema=parse(schema))
    return run_here(folder / "data", folder / "run", **{**SMALL, **settings}).directory / "checkpoints"


def export_to(checkpoints: Path, out: Path, *words: str) -> Path:
    assert export.main(["--checkpoint", str(checkpoints), "--out", str(out), *words]) == 0
    return out


def predicted(model: Path, rows: list[dict[str, Any]], scratch: Path) -> Any:
    """The scores of `predict --raw` for the rows, as JSON lines."""
    scratch.mkdir(parents=True, exist_ok=True)
    path = scratch / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = ["--checkpoint", str(model), "--raw", str(path), "--out", str(scratch / "scores.npy")]
    assert predict.main(words) == 0
    return np.load(scratch / "scores.npy")
