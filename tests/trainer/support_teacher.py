"""A teacher with known best and best linear AUC, so that learning can be measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from tests.trainer.support_dataset import Rows, write_rows

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

FEATURES, IDS, DENSE = 6, 40, 2
PAIRS = ((0, 1), (2, 3), (4, 5), (1, 4), (0, 3))  # features whose ids matter together
NUM_EMBEDDINGS = {f"C{index + 1}": IDS for index in range(FEATURES)}
SHARD_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Lesson:
    """A teacher's model and its best AUCs."""

    train: Rows
    test: Rows
    bayes_auc: float  # of the true probabilities
    linear_auc: float  # of the best sum over single features
    num_embeddings: dict[str, int]
    digest: str  # of the dataset that `write` makes

    def gap_closed(self, auc: float) -> float:
        """How far an AUC has come from the linear (0) to the Bayes one (1)."""
        return (auc - self.linear_auc) / (self.bayes_auc - self.linear_auc)


def write_lesson(directory: Path, train: Rows, test: Rows) -> str:
    """A prepared dataset; its digest."""
    contents = {"train": train, "test": test}
    write_rows(directory, contents, num_embeddings=NUM_EMBEDDINGS, shard_rows=SHARD_ROWS)
    digest: str = json.loads((directory / "dataset.json").read_text())["digest"]
    return digest


def make_lesson(directory: Path, *, train_rows: int, test_rows: int) -> Lesson:
    """Draw samples and write them to a folder."""
    train, _ = _draw(train_rows, seed=0)
    test, probability = _draw(test_rows, seed=1)
    linear = LogisticRegression(C=10, max_iter=100).fit(_one_hot(train), train.labels)
    return Lesson(
        train=train,
        test=test,
        bayes_auc=float(roc_auc_score(test.labels, probability)),
        linear_auc=float(roc_auc_score(test.labels, linear.decision_function(_one_hot(test)))),
        num_embeddings=NUM_EMBEDDINGS,
        digest=write_lesson(directory, train, test),
    )


def _draw(rows: int, *, seed: int) -> tuple[Rows, npt.NDArray[np.float64]]:
    teacher, random = np.random.default_rng(5), np.random.default_rng(seed)
    weights = teacher.normal(0, 0.35, (FEATURES, IDS))
    vectors = teacher.normal(0, 1, (FEATURES, IDS, 2))
    frequency = 1 / np.arange(2, IDS + 2)  # Zipf's
    ids = random.choice(IDS, (FEATURES, rows), p=frequency / frequency.sum()).astype(np.int32)
    dense = random.random((rows, DENSE), dtype=np.float32)
    logit = dense[:, 0] - 0.8 + sum(weights[feature][ids[feature]] for feature in range(FEATURES))
    for one, other in PAIRS:
        logit += 0.5 * (vectors[one][ids[one]] * vectors[other][ids[other]]).sum(axis=1)
    probability = 1 / (1 + np.exp(-logit))
    return Rows((random.random(rows) < probability).astype(np.uint8), dense, ids), probability


def _one_hot(rows: Rows) -> csr_matrix:
    count = len(rows.labels)
    columns = (rows.sparse + np.arange(FEATURES)[:, None] * IDS).T.reshape(-1)
    starts = np.arange(0, count * FEATURES + 1, FEATURES)
    ones = np.ones(count * FEATURES, dtype=np.float32)
    return hstack(
        [csr_matrix((ones, columns, starts), shape=(count, FEATURES * IDS)), csr_matrix(rows.dense)]
    )
