"""Reads the curves of a run from its metrics, in bounded memory; a later call reads only what was added."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudrec.errors import DataError
from cloudrec.home import open_file
from cloudrec.launchers.base import outputs
from cloudrec.observe.metrics import finite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

_POINTS = 300  # of a curve: more cannot be seen
_CHECKPOINTS = 500  # the newest that are kept
_BLOCK = 4 * 1024 * 1024
_LONGEST = 1024 * 1024  # bytes of a line; a longer one is damage
STEP_PARTS = ("forward", "backward", "update", "other work", "waiting for data", "checkpoint")


class Point(NamedTuple):
    """One point of a curve.

    Attributes:
        step: the step.
        time: seconds since the run's first record.
        samples: the samples up to here; 0 if the record does not say.
        value: the value.
    """

    step: float
    time: float
    samples: float
    value: float


@dataclass
class Curve:
    """One curve, with at most `limit` points and the newest value exactly.

    A point is the mean of `stride` measurements; the stride doubles when the curve is full. A step that is
    not larger than the last one, as after a resume, begins a new line.
    """

    limit: int = _POINTS
    stride: int = 1
    full: list[list[Point]] = field(default_factory=lambda: [[]])
    pending: list[Point] = field(default_factory=list)
    last: Point | None = None
    least: float = math.inf
    most: float = -math.inf

    def add(self, point: Point) -> None:
        """Add one measurement."""
        if self.last is not None and point.step <= self.last.step:
            self._flush()
            self.full.append([])
        self.last = point
        self.least, self.most = min(self.least, point.value), max(self.most, point.value)
        self.pending.append(point)
        if len(self.pending) >= self.stride:
            self._flush()
        if sum(map(len, self.full)) > self.limit:
            self._thin()

    @property
    def lines(self) -> list[list[Point]]:
        """The lines without a gap, each with ascending steps."""
        *before, newest = self.full
        newest = [*newest, _mean(self.pending)] if self.pending else newest
        return [line for line in (*before, newest) if line]

    def _flush(self) -> None:
        if self.pending:
            self.full[-1].append(_mean(self.pending))
            self.pending = []

    def _thin(self) -> None:
        self.stride *= 2
        self.full = [
            [_mean(line[start : start + 2]) for start in range(0, len(line), 2)]
            for line in self.full
            if line or line is self.full[-1]
        ][-self.limit // 2 :]


def _mean(points: list[Point]) -> Point:
    return Point(*(sum(column) / len(points) for column in zip(*points, strict=True)))


@dataclass
class RunCurves:
    """What the metrics of a run show up to now.

    Attributes:
        curves: by name: loss, auc, logloss, ne, samples_per_s, lr, memory_bytes, goodput, `auc of TASK`, and
            the parts of a step's time, in ms.
        restarts: steps at which the trainer resumed.
        checkpoints: the newest records of the kind "checkpoint", oldest first.
        start: the newest record of the kind "start".
        train: the newest record of the kind "train".
        evaluation: the newest record of the kind "eval".
        began: the time of the first record, in seconds since the epoch; None without one.
    """

    curves: dict[str, Curve] = field(default_factory=dict)
    restarts: list[float] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    start: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    evaluation: dict[str, Any] = field(default_factory=dict)
    began: float | None = None

    def lines(self, name: str) -> list[list[Point]]:
        """Return the lines of a curve; none if there is no such curve."""
        curve = self.curves.get(name)
        return curve.lines if curve else []

    def newest(self, name: str) -> float | None:
        """Return the newest value of a curve."""
        curve = self.curves.get(name)
        return curve.last.value if curve and curve.last else None

    def take(self, record: dict[str, Any]) -> None:
        """Add one record; what it lacks, or has wrong, is left out."""
        kind, step, when = record.get("kind"), finite(record.get("step")), finite(record.get("time"))
        if self.began is None and when is not None:
            self.began = when
        if kind == "start":
            self.start = record
            if (resumed := finite(record.get("resumed_from"))) is not None:
                self.restarts = [*self.restarts, resumed][-_CHECKPOINTS:]
        if step is None:
            return
        passed = when - self.began if when is not None and self.began is not None else 0.0
        if kind == "train":
            self.train = record
            samples = finite(record.get("samples")) or 0.0
            self._add_train(record, Point(step, passed, samples, 0.0))
        elif kind == "eval":
            self.evaluation = record
            self._add_evaluation(record, Point(step, passed, self._samples_at(step), 0.0))
        elif kind == "checkpoint":
            self.checkpoints = [*self.checkpoints, record][-_CHECKPOINTS:]

    def _samples_at(self, step: float) -> float:
        """Return the samples up to a step, from the newest record of the training."""
        samples, at = finite(self.train.get("samples")), finite(self.train.get("step"))
        return samples * step / at if samples and at else 0.0

    def _add_train(self, record: dict[str, Any], at: Point) -> None:
        for name in ("loss", "samples_per_s", "lr", "memory_bytes", "goodput"):
            self._add(name, at, finite(record.get(name)))
        total = finite(record.get("step_s"))
        if total is None:
            return
        # `step_s` includes the wait for data, but not the stall of a checkpoint.
        waits = finite(record.get("data_wait_s")) or 0.0
        known = [finite(record.get(f"{name}_s")) or 0.0 for name in STEP_PARTS[:3]]
        parts = [
            *known,
            max(total - waits - sum(known), 0.0),
            waits,
            finite(record.get("ckpt_stall_s")) or 0.0,
        ]
        for name, seconds in zip(STEP_PARTS, parts, strict=True):
            self._add(name, at, seconds * 1000)

    def _add_evaluation(self, record: dict[str, Any], at: Point) -> None:
        for name in ("auc", "logloss", "ne"):
            self._add(name, at, finite(record.get(name)))
        tasks = record.get("tasks")
        for task, metrics in tasks.items() if isinstance(tasks, dict) else ():
            if isinstance(metrics, dict):
                self._add(f"auc of {task}", at, finite(metrics.get("auc")))

    def _add(self, name: str, at: Point, value: float | None) -> None:
        if value is not None:
            self.curves.setdefault(name, Curve()).add(at._replace(value=value))


@dataclass
class CurvesFile:
    """A metrics file that is read as it grows.

    Attributes:
        path: the file; it need not exist yet.
    """

    path: Path
    _curves: RunCurves = field(default_factory=RunCurves)
    _inode: int = 0
    _position: int = 0

    def read(self) -> RunCurves:
        """Return the curves up to now; a file that was replaced is read again from its beginning.

        Raises:
            DataError: the file cannot be read.
        """
        try:
            with open_file(self.path) as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._position:
                    self._curves, self._inode, self._position = RunCurves(), found.st_ino, 0
                file.seek(self._position)
                self._read_lines(file)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DataError(
                f"cannot read {self.path}: {error.strerror or error}", remedy="move it away"
            ) from error
        return self._curves

    def _read_lines(self, file: BinaryIO) -> None:
        """Take the whole lines that follow; a part of a line at the end is read again later."""
        rest = b""
        while block := file.read(_BLOCK):
            lines, newline, tail = (rest + block).rpartition(b"\n")
            if newline:
                self._position += len(lines) + 1
                for record in outputs.json_lines(lines.decode("utf-8", errors="replace")):
                    self._curves.take(record)
            rest = tail
            if len(rest) > _LONGEST:
                self._position += len(rest)
                rest = b""


def step_parts(curves: RunCurves) -> Iterator[tuple[str, list[list[Point]]]]:
    """Yield the parts of a step's time that are ever above 0, with their lines, of the same steps."""
    for name in STEP_PARTS:
        curve = curves.curves.get(name)
        if curve is not None and (curve.most > 0 or name in ("waiting for data", "checkpoint")):
            yield name, curve.lines
