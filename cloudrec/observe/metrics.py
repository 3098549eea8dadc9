"""Reads the trainer's metrics.jsonl: the newest figures fast, and whole series in bounded memory."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.errors import DataError
from cloudrec.home import open_file
from cloudrec.launchers.base import outputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_FIRST_TAIL = 64 * 1024
_LARGEST_STEP = 2**63  # a larger number is damage
_LAST_TAIL = 8 * 1024 * 1024  # bytes that are searched for an evaluation, which are rare
_LARGEST = 1e100  # of a metric
_KIND = re.compile(r'\{"kind": "(\w+)"')


@dataclass(frozen=True, kw_only=True)
class LatestMetrics:
    """The newest figures of a run; None for a figure that it does not have yet."""

    step: int | None = None
    epoch: int | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    auc: float | None = None
    checkpoint: int | None = None
    save_problem: str | None = None  # why the newest save failed, if no later one was committed
    damage: str | None = None  # to a file of the newest checkpoint, if no later one was committed
    total_steps: int | None = None
    train: Mapping[str, Any] = field(default_factory=dict)  # the newest record of the kind "train"


def latest_metrics(path: Path) -> LatestMetrics:
    """Return the newest figures, from as small a part of the file's end as has them.

    Raises:
        DataError: the file cannot be read.
    """
    # The file of a long run is large, and `status` reads that of every run.
    limit, size = _FIRST_TAIL, _size(path)
    while True:
        newest = _newest_by_kind(path, limit)
        if {"train", "eval", "checkpoint"} <= newest.keys() or limit >= min(size, _LAST_TAIL):
            break
        limit *= 8
    train, evaluation = newest.get("train", {}), newest.get("eval", {})
    last = next(reversed(newest.values()), {})  # of any kind: a run may end between two train records
    return LatestMetrics(
        # The start of another attempt is a record without a step.
        step=_integer(last.get("step", train.get("step"))),
        epoch=_integer(train.get("epoch")),
        loss=finite(train.get("loss")),
        samples_per_s=finite(train.get("samples_per_s")),
        auc=finite(evaluation.get("auc")),
        checkpoint=_integer(newest.get("checkpoint", {}).get("step")),
        save_problem=_problem(newest, "save_failure"),
        damage=_problem(newest, "checkpoint_damage"),
        total_steps=_integer(_first_start(path).get("total_steps")),
        train=train,
    )


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of the file, without damaged lines.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with open_file(path) as file:
            for line in file:
                yield from outputs.json_lines(line.decode("utf-8", errors="replace"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable(path, error) from error


def finite(value: object) -> float | None:
    """Return a finite number as a float; None for any other value, such as NaN.

    Numbers beyond 1e100 count as NaN: no metric has them, and their sums and differences are infinite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if abs(value) <= _LARGEST else None  # False for NaN
    except OverflowError:  # an integer of hundreds of digits
        return None


def _size(path: Path) -> int:
    try:
        with open_file(path) as file:
            return file.seek(0, os.SEEK_END)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"cannot read {path}: {error.strerror or error}", remedy="move it away")


def _first_start(path: Path) -> dict[str, Any]:
    """Return the trainer's first record of the kind "start"; {} if there is none yet."""
    return next((record for record in read_records(path) if record.get("kind") == "start"), {})


def _newest_by_kind(path: Path, limit: int) -> dict[str, dict[str, Any]]:
    """Return the newest record of each kind in the last `limit` bytes, in the order of the file."""
    found: dict[str, dict[str, Any]] = {}
    for line in reversed(outputs.read_tail(path, limit=limit).splitlines()):
        # As the trainer writes it. To read a whole line takes 20 times as long, and nearly all are steps.
        begin = _KIND.match(line)
        if begin is not None and begin[1] in found:
            continue
        for record in outputs.json_lines(line):
            found.setdefault(str(record.get("kind")), record)
    return dict(reversed(found.items()))


def _problem(newest: Mapping[str, Mapping[str, Any]], kind: str) -> str | None:
    """Return a kind's newest problem if no checkpoint follows it; `newest` is in the order of the file."""
    order = [*newest]
    if kind not in order or "checkpoint" in order[order.index(kind) :]:
        return None
    return str(newest[kind].get("problem"))


def _integer(value: object) -> int | None:
    number = finite(value)
    return None if number is None or abs(number) > _LARGEST_STEP else int(number)


@dataclass
class Series:
    """One curve over the steps, with at most `limit` points.

    A point is the mean of `stride` measurements; the stride doubles when the curve is full. A step that is
    not larger than the last one (after a resume) begins a new line.
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
        """Return the lines, each a list of (step, value), with the pending measurements."""
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
