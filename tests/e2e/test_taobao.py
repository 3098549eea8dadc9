"""examples/taobao as its page says: din comes to the best AUC of both labels, from YAML alone."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.support_examples import read_object, run_example, run_line

pytestmark = pytest.mark.timeout(1200)  # minutes of training on a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's folder after all its commands."""
    return run_example("taobao", tmp_path_factory.mktemp("taobao"))


def _gaps(folder: Path, run: str) -> dict[str, float]:
    """How far each AUC has come from that without the history (0) to the best one (1)."""
    best, tasks = (
        read_object(folder / "events" / "best.json"),
        read_object(folder / run / "summary.json")["tasks"],
    )
    return {
        task: (tasks[task]["auc"] - known["without_history"]) / (known["best"] - known["without_history"])
        for task, known in best.items()
    }


def test_both_labels_are_learned(folder: Path) -> None:
    gaps = _gaps(folder, "run")
    assert min(gaps["carted"], gaps["bought"]) >= 0.95, gaps


def test_scores_have_a_column_for_each_label(folder: Path) -> None:
    with (folder / "table" / "test" / "rows.csv").open(newline="") as file:
        rows = len(list(csv.DictReader(file)))
    scores = np.load(folder / "scores.npy")
    assert scores.shape == (rows, 2)
    assert ((scores > 0) & (scores < 1)).all()


def test_with_the_histories_of_other_rows_the_same_check_fails(folder: Path) -> None:
    """The sabotage."""
    for split in ("train", "test"):
        with (folder / "table" / split / "rows.csv").open(newline="") as file:
            names, *rows = csv.reader(file)
        order = np.random.default_rng(3).permutation(len(rows))
        mixed = [[*row[:-2], *rows[at][-2:]] for row, at in zip(rows, order, strict=True)]
        target = folder / "mixed" / split / "rows.csv"
        target.parent.mkdir(parents=True)
        with target.open("w", newline="") as file:
            csv.writer(file).writerows([names, *mixed])
    run_line("cloudrec data prepare mixed mixed_data --features features.yaml", folder)
    run_line("python -m trainer --config train.yaml --dataset_path mixed_data --output_dir mixed_run", folder)
    gaps = _gaps(folder, "mixed_run")
    assert max(gaps.values()) < 0.5, gaps
