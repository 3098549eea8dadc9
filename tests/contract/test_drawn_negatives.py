"""two_tower with drawn negatives, from tables to a model: resumed runs and two ranks train the same."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloudrec.data.prepare.prepare import prepare
from cloudrec_contract.features import parse
from tests.trainer.support_runs import Outcome, command, run_here
from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 1_200
SCHEMA = parse(
    {
        "label": "liked",
        "sparse": [
            {"name": "user", "min_frequency": 1},
            {"name": "movie", "min_frequency": 1},
            {"name": "genres", "kind": "multi_hot", "pooling": "mean", "min_frequency": 1},
        ],
        "item": ["movie", "genres"],
    }
)
SETTINGS: dict[str, Any] = {
    "model": "two_tower",
    "over_arch_layer_sizes": (16, 8, 1),
    "batch_size": 50,
    "num_epochs": 2,
    "lr_decay": "none",
    "deterministic": True,
    "checkpoint_interval": 0,
    "recall_at": (1, 5),
    "negatives": "mixed",
    "num_negatives": 20,
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    random = np.random.default_rng(1)
    movies = np.minimum(random.geometric(0.08, ROWS), 40)
    rows = {
        "liked": random.integers(0, 4, ROWS).clip(0, 1).tolist(),
        "user": [f"u{each}" for each in random.integers(0, 30, ROWS)],
        "movie": [f"m{each}" for each in movies],
        "genres": [[f"g{each % 5}", f"g{each % 7}"] if each % 3 else [] for each in movies],
    }
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    prepare(str(folder / "rows.parquet"), folder / "data", schema=SCHEMA)
    return folder / "data"


@pytest.fixture(scope="module")
def whole(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_here(dataset, tmp_path_factory.mktemp("whole"), **SETTINGS)


def test_an_interrupted_run_draws_the_same_items(dataset: Path, whole: Outcome, tmp_path: Path) -> None:
    for steps in (9, None):
        parts = run_here(dataset, tmp_path, **SETTINGS, num_iterations=steps)
    assert parts.summary["model_digest"] == whole.summary["model_digest"]
    assert [line["resumed_from"] for line in parts.lines("start")] == [None, 9]


def test_two_ranks_train_as_one(dataset: Path, whole: Outcome, tmp_path: Path) -> None:
    words = command(dataset, tmp_path, ranks=2, **{**SETTINGS, "batch_size": 25})
    subprocess.run(words, check=True, capture_output=True, timeout=240)
    there = Outcome(0, tmp_path)
    for name in ("logloss", "auc", "recall_at_5"):
        assert there.summary[name] == pytest.approx(whole.summary[name], abs=1e-4)
    for here, other in zip(whole.lines("train"), there.lines("train"), strict=True):
        assert other["loss"] == pytest.approx(here["loss"], abs=1e-4)


@pytest.mark.parametrize("negatives", ["in_batch", "uniform"])
def test_the_ways_train_different_models(
    dataset: Path, whole: Outcome, tmp_path: Path, negatives: str
) -> None:
    count = None if negatives == "in_batch" else 20
    other = run_here(
        dataset, tmp_path, **{**SETTINGS, "negatives": negatives, "num_negatives": count}
    ).summary
    assert other["model_digest"] != whole.summary["model_digest"]
    assert other["samples_digest"] == whole.summary["samples_digest"]
    assert other["recall_at_5"] is not None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_negatives": None}, "num_negatives is not given; say how many"),
        ({"negatives": "in_batch"}, "negatives is in_batch, which draws none"),
        ({"model": "deepfm"}, "which only two_tower and models like it have, but model is deepfm"),
        ({"model": "tests.trainer.own_tasks:build"}, "is ranking, not for retrieval; leave negatives"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    dataset: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run_here(dataset, tmp_path, **{**SETTINGS, **settings})
