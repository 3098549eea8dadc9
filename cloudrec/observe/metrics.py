"""The trainer's metrics.jsonl: the newest figures quickly, and whole series in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.launch import outputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_FIRST_TAIL = 64 * 1024
_LAST_TAIL = 8 * 1024 * 1024  # evaluations are rare: how far back one is looked for


@dataclass(frozen=True, kw_only=True)
class LatestMetrics:
    """The newest figures of a run; None where there is none yet."""

    step: int | None = None
    epoch: int | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    auc: float | None = None
    checkpoint: int | None = None
    total_steps: int | None = None
    train: Mapping[str, Any] = field(default_factory=dict)  # the newest record of steps, as it stands


def latest_metrics(path: Path) -> LatestMetrics:
    """Read the newest figures from the end of the file, going back only as far as it takes."""
    limit = _FIRST_TAIL
    while True:
        newest = _newest_by_kind(path, limit)
        size = path.stat().st_size if path.exists() else 0
        if {"train", "eval", "checkpoint"} <= newest.keys() or limit >= min(size, _LAST_TAIL):
            break
        limit *= 8
    train, evaluation = newest.get("train", {}), newest.get("eval", {})
    last = next(reversed(newest.values()), {})  # of whatever kind: a run may end between two train records
    return LatestMetrics(
        step=_integer(last.get("step")),
        epoch=_integer(train.get("epoch")),
        loss=finite(train.get("loss")),
        samples_per_s=finite(train.get("samples_per_s")),
        auc=finite(evaluation.get("auc")),
        checkpoint=_integer(newest.get("checkpoint", {}).get("step")),
        total_steps=_integer(_first_start(path).get("total_steps")),
        train=train,
    )


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield every whole record of the file, line by line; damaged lines are skipped."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                yield from outputs.json_lines(line)
    except FileNotFoundError:
        return


def finite(value: object) -> float | None:
    """Return a number as a float, None for anything else, NaN and infinities included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _first_start(path: Path) -> dict[str, Any]:
    """Return the record with which the trainer began, {} before it has."""
    return next((record for record in read_records(path) if record.get("kind") == "start"), {})


def _newest_by_kind(path: Path, limit: int) -> dict[str, dict[str, Any]]:
    """Return the newest record of each kind in the last `limit` bytes, the newest of all as the last."""
    newest: dict[str, dict[str, Any]] = {}
    for record in outputs.json_lines(outputs.read_tail(path, limit=limit)):
        kind = str(record.get("kind"))
        newest.pop(kind, None)
        newest[kind] = record
    return newest


def _integer(value: object) -> int | None:
    number = finite(value)
    return None if number is None else int(number)


@dataclass
class Series:
    """One curve over the steps, thinned out as it grows so that it never holds more than `limit` points.

    Neighbours are averaged: a point stands for `stride` measurements, and the stride doubles when the curve
    is full. A point where the steps go back (a resume) begins a new line.
    """

    limit: int = 600

    def __post_init__(self) -> None:
        self.stride = 1
        self.lines: list[list[tuple[float, float]]] = [[]]
        self._pending: list[tuple[float, float]] = []
        self._last_step = -math.inf

    def add(self, step: float, value: float) -> None:
        """Add one measurement."""
        if step <= self._last_step:
            self._flush()
            self.lines.append([])
        self._last_step = step
        self._pending.append((step, value))
        if len(self._pending) >= self.stride:
            self._flush()
        if sum(map(len, self.lines)) > self.limit:
            self._thin()

    def finished(self) -> list[list[tuple[float, float]]]:
        """Return the lines, each a list of (step, value), what is pending included."""
        self._flush()
        return [line for line in self.lines if line]

    def _flush(self) -> None:
        if self._pending:
            self.lines[-1].append(_mean(self._pending))
            self._pending = []

    def _thin(self) -> None:
        self.stride *= 2
        self.lines = [
            [_mean(line[start : start + 2]) for start in range(0, len(line), 2)] for line in self.lines
        ]


def _mean(points: list[tuple[float, float]]) -> tuple[float, float]:
    count = len(points)
    return sum(step for step, _ in points) / count, sum(value for _, value in points) / count
