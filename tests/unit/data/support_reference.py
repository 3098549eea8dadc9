"""A slow reference reader of Criteo TSV, written from the format's description."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import NamedTuple

LONGEST = 4096


class Row(NamedTuple):
    label: int
    integers: list[int | None]
    categories: list[int | None]


def read_line(line: bytes) -> Row | None:
    """Return a line's row; None for a bad line."""
    line = line.removesuffix(b"\r")
    if len(line) > LONGEST or not line.isascii():
        return None
    fields = line.decode().split("\t")
    if len(fields) != 40 or fields[0] not in ("0", "1"):
        return None
    if not all(re.fullmatch(r"(-?[0-9]+)?", f) for f in fields[1:14]):
        return None
    integers = [int(f) if f else None for f in fields[1:14]]
    if any(i is not None and not -(2**63) <= i < 2**63 for i in integers):
        return None
    if not all(re.fullmatch(r"[0-9a-fA-F]{0,8}", f) for f in fields[14:]):
        return None
    return Row(int(fields[0]), integers, [int(f, 16) if f else None for f in fields[14:]])


def read(text: bytes) -> tuple[list[Row], list[int]]:
    """Return the good rows, and the numbers of bad lines, from 1."""
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    rows = [read_line(line) for line in lines]
    return [r for r in rows if r is not None], [n for n, r in enumerate(rows, 1) if r is None]


def dense(row: Row) -> list[float]:
    return [math.log1p(max(i or 0, 0)) for i in row.integers]


def vocabularies(rows: list[Row], min_frequency: int) -> list[dict[int, int]]:
    """Return each feature's ids by code."""
    result = []
    for feature in range(26):
        counts = Counter(r.categories[feature] for r in rows if r.categories[feature] is not None)
        kept = [(code, n) for code, n in counts.items() if code is not None and n >= min_frequency]
        ranked = sorted(kept, key=lambda pair: (-pair[1], pair[0]))
        result.append({code: number + 2 for number, (code, _) in enumerate(ranked)})
    return result


def ids(row: Row, by_feature: list[dict[int, int]]) -> list[int]:
    return [
        0 if code is None else ids.get(code, 1) for code, ids in zip(row.categories, by_feature, strict=True)
    ]
