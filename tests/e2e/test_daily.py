"""A model of one day and the next: the vocabulary grows, and the run begins with the earlier model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

REPO = Path(__file__).parents[2]
ROWS = 40_000
VALUES = 400  # of each feature on a day, of which a tenth is new the next day
FEATURES = 6
BATCH = 256
PATIENCE_S = 300.0
SCHEMA = {
    "label": "clicked",
    "dense": ["age"],
    "sparse": [{"name": f"f{each}", "min_frequency": 2} for each in range(FEATURES)],
}
MODEL = ("--embedding_dim", "16", "--dense_arch_layer_sizes", "32,16", "--over_arch_layer_sizes", "64,1")
COMMON = (*MODEL, "--batch_size", f"{BATCH}", "--threads", "1", "--eval_interval", "0")


def _run(words: list[str], folder: Path) -> str:
    environment = {
        **os.environ,
        "CLOUDREC_HOME": str(folder / "home"),
        "PYTHONPATH": str(REPO),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _write_day(folder: Path, day: int) -> None:
    """Write the clicks of a day: values of effects that stay, of which some are new each day."""
    random = np.random.default_rng(day)
    first = day * VALUES // 10
    ids = first + random.zipf(1.3, (FEATURES, ROWS)) % VALUES
    taste = np.random.default_rng(99).normal(size=(FEATURES, 4 * VALUES))
    age = random.normal(size=ROWS)
    liked = taste[np.arange(FEATURES)[:, None], ids]
    score = 0.5 * liked.sum(axis=0) + liked[0] * liked[1] + 0.3 * age - 1
    columns: dict[str, Any] = {"clicked": random.random(ROWS) < 1 / (1 + np.exp(-score)), "age": age}
    columns |= {f"f{each}": [f"value {value}" for value in ids[each]] for each in range(FEATURES)}
    parquet.write_table(pa.table(columns), folder / f"day-{day}.parquet")


def _train(folder: Path, run: str, data: str, *more: str) -> dict[str, Any]:
    _run(["trainer", "--dataset_path", data, "--output_dir", run, *COMMON, *more], folder)
    summary: dict[str, Any] = json.loads((folder / run / "summary.json").read_text())
    return summary


def _ids(folder: Path, data: str, table: str) -> dict[str, int]:
    lines = (folder / data / "vocabulary" / f"{table}.jsonl").read_text().splitlines()
    return {line: place for place, line in enumerate(lines)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two prepared days, and a model of the first one."""
    folder = tmp_path_factory.mktemp("days")
    (folder / "features.yaml").write_text(json.dumps(SCHEMA))
    for day in (1, 2):
        _write_day(folder, day)
    _run(["cloudrec", "data", "prepare", "day-1.parquet", "monday", "--features", "features.yaml"], folder)
    grow = ["--like", "monday", "--grow", "--forget-after", "30"]
    _run(["cloudrec", "data", "prepare", "day-2.parquet", "tuesday", *grow], folder)
    _train(folder, "run-1", "monday")
    return folder


def test_the_ids_of_the_first_day_stay(folder: Path) -> None:
    for feature in range(FEATURES):
        before, after = (_ids(folder, day, f"f{feature}") for day in ("monday", "tuesday"))
        assert before.items() <= after.items()
        assert len(after) > len(before) * 1.02


def test_a_warm_start_reaches_the_final_auc_of_a_cold_one_in_a_fifth_of_its_steps(folder: Path) -> None:
    cold = _train(folder, "cold", "tuesday")
    fifth = str(cold["step"] // 5)
    init = ("--init_from", "run-1/checkpoints", "--init_optimizer", "true")
    warm = _train(folder, "warm", "tuesday", "--num_iterations", fifth, *init)
    fresh = _train(folder, "fresh", "tuesday", "--num_iterations", fifth)
    assert warm["auc"] >= cold["auc"]
    assert fresh["auc"] < cold["auc"] - 0.01, "a fifth of the steps is enough for a cold start, too"


def test_the_model_leaves_and_returns_in_torchs_format(folder: Path) -> None:
    _run(["trainer.dcp", "to", "--checkpoint", "run-1/checkpoints", "--out", "dcp"], folder)
    _run(["trainer.dcp", "from", "--dcp", "dcp", "--out", "back", "--trusted"], folder)
    scored = [
        _run(
            ["trainer.predict", "--checkpoint", place, "--dataset_path", "monday", "--out", f"{name}.npy"],
            folder,
        )
        for name, place in (("own", "run-1/checkpoints"), ("returned", "back"))
    ]
    assert scored[0] == scored[1]
    assert np.array_equal(np.load(folder / "own.npy"), np.load(folder / "returned.npy"))
