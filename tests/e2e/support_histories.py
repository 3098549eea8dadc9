"""Made-up clicks that depend on whether the candidate is among the newest events of a history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.metrics import roc_auc_score

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

ITEMS, KEPT, LONGEST = 20, 5, 10
FEATURES = f"""
label: clicked
dense: [age]
sparse:
  - {{name: item, table: items}}
  - {{name: history, kind: sequence, max_length: {KEPT}, table: items}}
"""


@dataclass(frozen=True, slots=True)
class Lesson:
    """The best AUCs of the test rows."""

    best: float  # of the true probabilities
    without_history: float  # of the best model of the other columns

    def gap_closed(self, auc: float) -> float:
        """How far an AUC has come from that without the history (0) to the best one (1)."""
        return (auc - self.without_history) / (self.best - self.without_history)


def make_clicks(folder: Path, *, rows: int, depth: int, is_mixed: bool = False) -> Lesson:
    """Write train and test rows; clicks depend on the newest `depth` events.

    With `is_mixed`, each row has another row's history.
    """
    lessons = {}
    for split, count, seed in (("train", rows, 1), ("test", rows // 8, 2)):
        random = np.random.default_rng(seed)
        lengths = random.integers(0, LONGEST + 1, count)
        events = random.integers(0, ITEMS, (count, LONGEST))
        item = random.integers(0, ITEMS, count)
        again = (random.random(count) < 0.6) & (lengths > 0)
        ago = (random.random(count) * lengths).astype(int)  # how long ago: 0 is the newest
        item = np.where(again, events[np.arange(count), np.maximum(lengths - 1 - ago, 0)], item)
        newest = [set(row[max(n - depth, 0) : n].tolist()) for row, n in zip(events, lengths, strict=True)]
        matches = np.array([each in seen for each, seen in zip(item.tolist(), newest, strict=True)])
        age = random.normal(size=count)
        alone = np.sin(item * 1.7) * 0.5 + 0.3 * age
        probability = 1 / (1 + np.exp(1.4 - 2.8 * matches - alone))
        clicked = random.random(count) < probability
        order = random.permutation(count) if is_mixed else np.arange(count)
        _write(folder / split, clicked, age, item, [events[at, : lengths[at]].tolist() for at in order])
        lessons[split] = Lesson(
            best=float(roc_auc_score(clicked, probability)),
            without_history=float(roc_auc_score(clicked, alone)),
        )
    return lessons["test"]


def _write(
    folder: Path,
    clicked: npt.NDArray[np.bool_],
    age: npt.NDArray[np.float64],
    item: npt.NDArray[np.int64],
    histories: list[list[int]],
) -> None:
    folder.mkdir(parents=True)
    table = pa.table(
        {
            "clicked": clicked,
            "age": age,
            "item": [f"item {each}" for each in item],
            "history": [[f"item {each}" for each in row] for row in histories],
        }
    )
    pq.write_table(table, folder / "rows.parquet")
