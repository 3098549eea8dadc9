"""A teacher of three tasks in conflict, with known best and best linear AUCs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import OneHotEncoder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

FEATURES, IDS = ("city", "hour", "device", "genre"), 6
TASKS = ("clicked", "bought", "shared")
TRAIN_ROWS, TEST_ROWS = 120_000, 20_000
ENOUGH = 0.95  # of the gap between the best linear model and the teacher
SCHEMA = """\
labels: [clicked, {name: bought, missing: skip}, shared]
dense: [price]
sparse: [city, hour, device, genre]
"""
Probabilities = dict[str, "npt.NDArray[np.float64]"]
Flags = dict[str, "npt.NDArray[np.bool_]"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows, and what the teacher knows of them."""

    ids: npt.NDArray[np.int64]  # [rows, features]
    price: npt.NDArray[np.float64]
    probabilities: Probabilities
    labels: Flags
    known: Flags  # the rows that have the label: only who clicked can buy

    def write(self, path: Path, labels: Flags | None = None) -> None:
        """Write the rows as Parquet, with other labels if they are given."""
        labels = labels or self.labels
        texts = {name: [f"v{each}" for each in self.ids[:, place]] for place, name in enumerate(FEATURES)}
        answers = {task: pa.array(labels[task], mask=~self.known[task]) for task in TASKS}
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({**answers, "price": self.price, **texts}), path)


@dataclass(frozen=True, slots=True)
class TaskLesson:
    """Training and test rows, and the AUCs of the best linear model and of the teacher, on the test rows."""

    train: Drawn
    test: Drawn
    linear: Mapping[str, float]
    best: Mapping[str, float]

    def gaps_closed(self, aucs: Mapping[str, float]) -> dict[str, float]:
        """How far the AUC of each task has come from the linear (0) to the best one (1)."""
        return {
            task: (auc - self.linear[task]) / (self.best[task] - self.linear[task])
            for task, auc in aucs.items()
        }


def make_lesson() -> TaskLesson:
    """Draw the rows; what makes a row be clicked keeps it from being bought and shared."""
    train, test = _draw(TRAIN_ROWS, seed=1), _draw(TEST_ROWS, seed=2)
    encoder = OneHotEncoder().fit(train.ids)
    inputs = [
        hstack([encoder.transform(each.ids), csr_matrix(each.price[:, None])]).tocsr()
        for each in (train, test)
    ]
    linear, best = {}, {}
    for task in TASKS:
        seen, held_out = train.known[task], test.known[task]
        model = LogisticRegression(C=10, max_iter=100).fit(inputs[0][seen], train.labels[task][seen])
        truth = test.labels[task][held_out]
        linear[task] = float(roc_auc_score(truth, model.decision_function(inputs[1][held_out])))
        best[task] = float(roc_auc_score(truth, test.probabilities[task][held_out]))
    return TaskLesson(train, test, linear, best)


def _draw(rows: int, *, seed: int) -> Drawn:
    teacher, random = np.random.default_rng(11), np.random.default_rng(seed)
    taste, place, habit = (teacher.normal(0, 1.3, (IDS, IDS)) for _ in range(3))
    ids = random.integers(0, IDS, (rows, len(FEATURES)))
    price = random.random(rows)
    city, hour, device, genre = ids.T
    liked, near, used = taste[city, hour], place[device, genre], habit[city, genre]
    logits = {
        "clicked": liked + 0.6 * near + price - 0.8,
        "bought": -liked + 0.6 * used - price + 0.5,
        "shared": 0.5 * near - 0.7 * liked + 0.5 * used,
    }
    probabilities = {task: 1 / (1 + np.exp(-logit)) for task, logit in logits.items()}
    labels = {task: random.random(rows) < each for task, each in probabilities.items()}
    everyone = np.ones(rows, np.bool_)
    known = {"clicked": everyone, "bought": labels["clicked"], "shared": everyone}
    return Drawn(ids, price, probabilities, labels, known)
