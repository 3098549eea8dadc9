"""examples/movielens as its page says: two_tower comes to the best recall, from YAML alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cloudrec_contract.safe_json import safe_object
from tests.e2e.support_examples import read_object, run_example, run_line

pytestmark = pytest.mark.timeout(1200)  # minutes of training on a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's folder after all its commands."""
    return run_example("movielens", tmp_path_factory.mktemp("movielens"))


def test_the_best_recall_is_reached(folder: Path) -> None:
    best, found = read_object(folder / "ratings" / "best.json"), read_object(folder / "run" / "summary.json")
    for name in ("recall_at_10", "recall_at_50"):
        assert found[name] >= 0.95 * best[name], (name, found[name], best[name])


def test_the_vectors_rank_as_the_evaluation_did(folder: Path) -> None:
    movies, ids = np.load(folder / "movies.npy"), np.load(folder / "movies.ids.npy")
    users = np.load(folder / "users.npy")
    shard = folder / "data" / "test"
    right = np.load(shard / "shard-00000.sparse.npy")[1]  # after the user
    assert len(users) == len(right)
    assert len(set(ids.tolist())) == len(ids) == len(movies)
    scores = users @ movies.T
    best = ids[np.argsort(-scores, axis=1)[:, :10]]
    recall = float((best == right[:, None]).any(axis=1).mean())
    assert recall == pytest.approx(read_object(folder / "run" / "summary.json")["recall_at_10"], abs=0.002)
    out = run_line("python -m trainer.predict --checkpoint run/checkpoints --dataset_path data", folder)
    assert (
        safe_object(out.encode())["recall_at_10"]
        == read_object(folder / "run" / "summary.json")["recall_at_10"]
    )


def test_without_the_user_the_same_check_fails(folder: Path) -> None:
    """The sabotage: users and histories of other rows."""
    for split in ("train", "test"):
        path = folder / "table" / split / "ratings.csv"
        head, *rows = path.read_text().splitlines()
        cells = [row.split(",") for row in rows]
        order = np.random.default_rng(3).permutation(len(cells))
        mixed = [
            ",".join([cells[at][0], row[1], row[2], cells[at][3], *row[4:]])
            for row, at in zip(cells, order, strict=True)
        ]
        target = folder / "mixed" / split / "ratings.csv"
        target.parent.mkdir(parents=True)
        target.write_text("\n".join([head, *mixed]) + "\n")
    run_line("cloudrec data prepare mixed mixed_data --features features.yaml", folder)
    run_line("python -m trainer --config train.yaml --dataset_path mixed_data --output_dir mixed_run", folder)
    best = read_object(folder / "ratings" / "best.json")["recall_at_10"]
    assert read_object(folder / "mixed_run" / "summary.json")["recall_at_10"] < 0.6 * best
