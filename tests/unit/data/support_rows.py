"""Lines of Criteo TSV, good and bad, for tests."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np


def good_line(source: random.Random, *, codes: int = 12) -> bytes:
    integers = [source.choice(["", "0", "-2", "7", str(source.randrange(10**9))]) for _ in range(13)]
    categories = [source.choice(["", f"{source.randrange(codes) * 0x01020304:08x}"]) for _ in range(26)]
    return "\t".join([source.choice("01"), *integers, *categories]).encode()


def good_text(rows: int, *, seed: int = 0, codes: int = 12) -> bytes:
    source = random.Random(seed)  # noqa: S311 - rows, not secrets
    return b"".join(good_line(source, codes=codes) + b"\n" for _ in range(rows))


def load(dataset: Path, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a split's labels [rows], dense [rows, 13] and sparse [26, rows]."""
    parts = {
        kind: [np.load(p) for p in sorted((dataset / split).glob(f"shard-*.{kind}.npy"))]
        for kind in ("labels", "dense", "sparse")
    }
    if not parts["labels"]:
        return np.empty(0, np.uint8), np.empty((0, 13), np.float32), np.empty((26, 0), np.int32)
    return (
        np.concatenate(parts["labels"]),
        np.concatenate(parts["dense"]),
        np.concatenate(parts["sparse"], axis=1),
    )
