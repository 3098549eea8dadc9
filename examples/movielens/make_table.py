"""One table of MovieLens' files: each rating with its movie's genres and what its user liked before.

    python make_table.py FOLDER OUT

FOLDER has ratings.csv and movies.csv, as https://grouplens.org/datasets/movielens/25m/ describes them. The
last liked rating of each user goes to OUT/test, every other one to OUT/train. A rating of 4 or more is a
like.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

WATCHED, LIKE = 20, 4.0
COLUMNS = ("userId", "movieId", "genres", "watched", "timestamp", "liked")


def main(folder: Path, out: Path) -> None:
    """Write both splits."""
    with (folder / "movies.csv").open(newline="", encoding="utf-8") as file:
        genres = {row["movieId"]: row["genres"] for row in csv.DictReader(file)}
    ratings = defaultdict(list)
    with (folder / "ratings.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            ratings[row["userId"]].append((int(row["timestamp"]), row["movieId"], float(row["rating"])))
    files = {}
    for split in ("train", "test"):
        (out / split).mkdir(parents=True, exist_ok=True)
        files[split] = (out / split / "ratings.csv").open("w", newline="", encoding="utf-8")
    writers = {split: csv.writer(file) for split, file in files.items()}
    for writer in writers.values():
        writer.writerow(COLUMNS)
    for user, rows in ratings.items():
        rows.sort()
        last = max((place for place, row in enumerate(rows) if row[2] >= LIKE), default=-1)
        liked = []
        for place, (when, movie, rating) in enumerate(rows):
            split = "test" if place == last else "train"
            watched = "|".join(liked[-WATCHED:])
            writers[split].writerow([user, movie, genres[movie], watched, when, int(rating >= LIKE)])
            if rating >= LIKE:
                liked.append(movie)
    for file in files.values():
        file.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
