"""Made-up ratings in MovieLens' files (ratings.csv, movies.csv), whose best possible recall is known.

    python make_ratings.py FOLDER [USERS]

A user likes the movies of one hidden taste more than others; the last rating of each is a liked movie. The
best recall@k of those last ratings, by the true probabilities, is written to best.json. Unlike real users,
these may rate a movie again.
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np

TASTES, MOVIES, LIKED, OTHERS = 6, 240, 20, 6
GENRES = ("Action", "Comedy", "Drama", "Horror", "Romance", "Sci-Fi")
LIMITS = (10, 50, 100)


def main(folder: Path, users: int) -> None:
    """Write the files."""
    random = np.random.default_rng(7)
    genre = np.arange(MOVIES) % len(GENRES)
    likes = np.empty((TASTES, MOVIES))
    for taste in range(TASTES):
        rank = random.permutation(MOVIES)
        weight = np.where(genre == taste, 1.0, 0.02) / (1 + rank % 40)
        likes[taste] = weight / weight.sum()
    best = np.argsort(-likes, axis=1)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "movies.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["movieId", "title", "genres"])
        for movie in range(MOVIES):
            second = "|Thriller" if movie % 5 == 0 else ""
            writer.writerow([movie + 1, f"Movie {movie + 1} (1999)", GENRES[genre[movie]] + second])
    hits = dict.fromkeys(LIMITS, 0)
    with (folder / "ratings.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["userId", "movieId", "rating", "timestamp"])
        for user in range(users):
            taste = int(random.integers(TASTES))
            liked = random.choice(MOVIES, LIKED, p=likes[taste])
            rows = [(movie, random.choice([4.0, 4.5, 5.0])) for movie in liked[:-1]]
            rows += [(movie, random.choice([1.0, 2.0, 3.5])) for movie in random.integers(0, MOVIES, OTHERS)]
            random.shuffle(rows)
            for when, (movie, rating) in enumerate([*rows, (liked[-1], 4.0)]):
                writer.writerow([user + 1, int(movie) + 1, rating, 1_000_000_000 + 3600 * when])
            for limit in LIMITS:
                hits[limit] += int(liked[-1] in best[taste, :limit])
    known = {f"recall_at_{limit}": count / users for limit, count in hits.items()}
    (folder / "best.json").write_text(json.dumps(known) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3_000)
