"""Made-up events in the columns of Taobao's UserBehavior.csv, and the best AUCs that a model can reach.

    python make_behaviour.py FOLDER

FOLDER/UserBehavior.csv has no line of names: user, item, category, behaviour (pv, cart, buy), time. An item
is carted more often if its category is among the last events of the user, and bought more often if the item
itself is. FOLDER/best.json has the AUC of the true probabilities on the last events of each user, and the AUC
of the best model that does not know the history.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

USERS, EVENTS, ITEMS, CATEGORIES = 4_000, 60, 200, 20
RECENT, TEST_EVENTS = 10, 6


def main(folder: Path) -> None:
    """Write both files."""
    random = np.random.default_rng(1)
    of_item = random.integers(0, CATEGORIES, ITEMS)
    popular = random.normal(0, 0.5, (2, ITEMS))
    folder.mkdir(parents=True)
    judged: list[tuple[float, float, float, float, bool, bool]] = []
    with (folder / "UserBehavior.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        for user in range(USERS):
            seen: list[int] = []
            for event in range(EVENTS):
                again = seen and random.random() < 0.3
                item = int(random.choice(seen[-RECENT:])) if again else int(random.integers(ITEMS))
                recent = seen[-RECENT:]
                known = of_item[item] in of_item[recent]
                cart = _sigmoid(-2.2 + 2.6 * known + popular[0, item])
                buy = _sigmoid(-1.6 + 2.8 * (item in recent) + popular[1, item])
                carted = random.random() < cart
                bought = carted and random.random() < buy
                behaviour = "buy" if bought else "cart" if carted else "pv"
                writer.writerow([user, item, of_item[item], behaviour, 1_511_544_070 + 97 * event + user])
                if event >= EVENTS - TEST_EVENTS:
                    judged.append((cart, popular[0, item], buy, popular[1, item], carted, bought))
                seen.append(item)
    best = {
        "carted": _best([(row[0], row[1], row[4]) for row in judged]),
        "bought": _best([(row[2], row[3], row[5]) for row in judged if row[4]]),
    }
    (folder / "best.json").write_text(json.dumps(best, indent=1) + "\n")


def _best(rows: list[tuple[float, float, bool]]) -> dict[str, float]:
    truth, alone, happened = (np.array(column) for column in zip(*rows, strict=True))
    return {
        "best": float(roc_auc_score(happened, truth)),
        "without_history": float(roc_auc_score(happened, alone)),
    }


def _sigmoid(value: float) -> float:
    return float(1 / (1 + np.exp(-value)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
