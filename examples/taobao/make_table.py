"""Turn Taobao's UserBehavior.csv into rows of an event and the events of its user before it.

    python make_table.py FOLDER/UserBehavior.csv OUT

OUT/train/rows.csv and OUT/test/rows.csv; the test rows are the last events of each user.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

KEPT, TEST_EVENTS = 10, 6
COLUMNS = ("carted", "bought", "seen", "user", "item", "category", "items", "categories")


def main(source: Path, out: Path) -> None:
    """Write both tables."""
    events: dict[str, list[tuple[int, str, str, str]]] = defaultdict(list)
    with source.open(newline="") as file:
        for user, item, category, behaviour, time in csv.reader(file):
            events[user].append((int(time), item, category, behaviour))
    rows: dict[str, list[list[str]]] = {"train": [], "test": []}
    for user, its in events.items():
        its.sort()
        for place, (_, item, category, behaviour) in enumerate(its):
            before = its[max(place - KEPT, 0) : place]
            carted = behaviour != "pv"
            bought = str(int(behaviour == "buy")) if carted else ""
            items, kinds = ("|".join(event[column] for event in before) for column in (1, 2))
            split = "test" if place >= len(its) - TEST_EVENTS else "train"
            rows[split].append([str(int(carted)), bought, str(place), user, item, category, items, kinds])
    for split, found in rows.items():
        (out / split).mkdir(parents=True)
        with (out / split / "rows.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
