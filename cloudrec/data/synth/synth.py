"""Criteo-format files drawn from a teacher with a known best AUC.

Rows are drawn in blocks, each from a generator that depends on the seed, the split and the block's number
only. So the files depend on (rows, seed) only, parts are written in parallel, and the memory is a few blocks
for any number of rows.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from cloudrec import home
from cloudrec.data import require_extra
from cloudrec.errors import DataError, UsageError

require_extra()  # before the imports that need it, so that the message names the extra

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
from isal import igzip  # noqa: E402

from cloudrec.data.synth.linear import FIT_ROWS, LinearStudent, fit_linear  # noqa: E402
from cloudrec.data.synth.metrics import auc, logloss, sigmoid  # noqa: E402
from cloudrec.data.synth.teacher import (  # noqa: E402
    CATEGORIES,
    INTEGERS,
    Teacher,
    TeacherRows,
    TeacherSettings,
    draw_teacher,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt

SCHEMA_VERSION = 1
BLOCK_ROWS = 1 << 16
PART_ROWS = 1 << 18
SCORED_ROWS = 1 << 22  # held-out rows used for the figures at most: their scores are kept in memory
_MOST_TEST_ROWS = 200_000
_FEWEST_TEST_ROWS = 100  # so that both labels occur and an AUC exists
_COMPRESSION = 1
_AHEAD = 4  # parts that are being written or wait
_LOCK = ".lock"
_SPLITS = ("train", "test")
_TEACHER, _STUDENT, _TRAIN, _TEST = range(4)  # streams of random numbers


@dataclass(frozen=True, kw_only=True)
class SynthReport:
    """The files written, and the metrics that a model trained on them can reach."""

    seed: int
    rows: int
    test_rows: int
    scored_rows: int
    bayes_auc: float
    bayes_logloss: float
    linear_auc: float
    linear_logloss: float
    base_rate: float
    linear_fit: dict[str, float]
    teacher: dict[str, float]

    def to_json(self) -> dict[str, object]:
        """Return the contents of synth.json."""
        return {"format": "cloudrec-synth", "schema_version": SCHEMA_VERSION, **asdict(self)}


class _Part(NamedTuple):
    """One file to write."""

    path: Path
    stream: int  # _TRAIN or _TEST
    first_block: int
    rows: int


class _Scores(NamedTuple):
    """The labels and scores of some held-out rows, each [rows]."""

    labels: npt.NDArray[np.uint8]
    bayes: npt.NDArray[np.float32]
    linear: npt.NDArray[np.float32]


def synthesize(
    out: Path,
    *,
    rows: int,
    test_rows: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    settings: TeacherSettings | None = None,
    fit_rows: int = FIT_ROWS,
    threads: int | None = None,
    progress: Callable[[int, int | None], None] = lambda _done, _total: None,
) -> SynthReport:
    """Write OUT/train/part-*.tsv.gz, OUT/test/part-*.tsv.gz and, last, OUT/synth.json.

    Args:
        out: the folder; refused if it is not empty, unless `overwrite`, which replaces only the files of an
            earlier call.
        rows: training rows.
        test_rows: held-out rows; by default a quarter of `rows`, between 1,000 and 200,000.
        seed: draws the teacher and the rows.
        overwrite: replace an earlier call's files.
        settings: the kind of teacher to draw.
        fit_rows: rows to which the best linear model is fitted.
        threads: files written in parallel; by default the number of processors, at most 4.
        progress: called with the rows written so far and the total.

    Raises:
        UsageError: rows, test_rows or seed out of range.
        DataError: OUT is not empty.
        StorageError: OUT cannot be written.
    """
    held_out = min(max(rows // 4, 1000), _MOST_TEST_ROWS) if test_rows is None else test_rows
    for name, value, least in (
        ("rows", rows, 1),
        ("test rows", held_out, _FEWEST_TEST_ROWS),
        ("seed", seed, 0),
    ):
        if value < least:
            raise UsageError(f"{name} is {value}; it must be at least {least}")
    with (
        _claimed(out, overwrite=overwrite),
        ThreadPoolExecutor(threads or min(os.cpu_count() or 1, 4)) as pool,
    ):
        teacher = draw_teacher(_generator(seed, _TEACHER, 0), settings or TeacherSettings())
        student = pool.submit(fit_linear, teacher, _generator(seed, _STUDENT, 0), rows=fit_rows)
        writer = _Writer(teacher=teacher, student=student, seed=seed)
        parts = [*_parts(out / "train", _TRAIN, rows), *_parts(out / "test", _TEST, held_out)]
        scores: list[_Scores] = []
        done = 0
        for part, scored in _in_order(pool, writer.write, parts):
            scores += scored
            done += part.rows
            progress(done, rows + held_out)
        report = _report(teacher, student.result(), scores, rows=rows, test_rows=held_out, seed=seed)
        home.write_atomically(out / "synth.json", json.dumps(report.to_json(), indent=2) + "\n")
    return report


def _generator(seed: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key)))


def _parts(folder: Path, stream: int, rows: int) -> list[_Part]:
    blocks = PART_ROWS // BLOCK_ROWS
    return [
        _Part(folder / f"part-{number:03d}.tsv.gz", stream, number * blocks, min(PART_ROWS, rows - start))
        for number, start in enumerate(range(0, rows, PART_ROWS))
    ]


def _in_order(
    pool: ThreadPoolExecutor, work: Callable[[_Part], list[_Scores]], parts: list[_Part]
) -> Iterator[tuple[_Part, list[_Scores]]]:
    """Run the work on all parts, a few in parallel; yield results in order. A failure cancels the rest."""
    remaining = iter(parts)
    running: deque[tuple[_Part, Future[list[_Scores]]]] = deque()
    try:
        while True:
            while len(running) < _AHEAD and (part := next(remaining, None)):
                running.append((part, pool.submit(work, part)))
            if not running:
                return
            part, future = running.popleft()
            yield part, future.result()
    finally:
        for _, future in running:
            future.cancel()


@dataclass(frozen=True, kw_only=True)
class _Writer:
    """Draws rows and writes them to files."""

    teacher: Teacher
    student: Future[LinearStudent]
    seed: int

    def write(self, part: _Part) -> list[_Scores]:
        """Write one file and flush it to the disk; return the scores of held-out rows."""
        scores = []
        # No name and no time in gzip's header, so that equal rows give equal bytes.
        with part.path.open("wb") as raw:
            with igzip.IGzipFile("", "wb", _COMPRESSION, raw, mtime=0) as file:
                for number, start in enumerate(range(0, part.rows, BLOCK_ROWS)):
                    block = part.first_block + number
                    rng = _generator(self.seed, part.stream, block)
                    drawn = self.teacher.draw(rng, min(BLOCK_ROWS, part.rows - start))
                    labels = (rng.random(len(drawn.logits), np.float32) < sigmoid(drawn.logits)).astype(
                        np.uint8
                    )
                    self._frame(drawn, labels).write_csv(
                        file, include_header=False, separator="\t", quote_style="never"
                    )
                    if part.stream == _TEST and block * BLOCK_ROWS < SCORED_ROWS:
                        scores.append(
                            _Scores(labels, drawn.logits, self.student.result().logits(drawn.entries))
                        )
            raw.flush()
            os.fsync(raw.fileno())
        return scores

    def _frame(self, rows: TeacherRows, labels: npt.NDArray[np.uint8]) -> pl.DataFrame:
        columns = {"label": pl.Series(labels)}
        for feature, entries in enumerate(rows.entries[:INTEGERS]):
            values = pl.Series(self.teacher.integers[feature][entries])
            present = pl.Series(self.teacher.present[feature][entries])
            columns[f"I{feature + 1}"] = values.set(~present, None)
        for feature in range(CATEGORIES):
            ids = self.teacher.ids_of(rows.entries, feature)
            columns[f"C{feature + 1}"] = self._texts[feature].gather(ids)
        return pl.DataFrame(columns)

    @cached_property
    def _texts(self) -> list[pl.Series]:
        """The text of every id of every feature; none for id 0."""
        return [
            pl.Series([None, *(f"{code:08x}" for code in codes[1:])]) for codes in self.teacher.codes.tolist()
        ]


def _report(
    teacher: Teacher, student: LinearStudent, scores: list[_Scores], *, rows: int, test_rows: int, seed: int
) -> SynthReport:
    labels, bayes, linear = (np.concatenate(column) for column in zip(*scores, strict=True))
    return SynthReport(
        seed=seed,
        rows=rows,
        test_rows=test_rows,
        scored_rows=len(labels),
        bayes_auc=auc(bayes, labels),
        bayes_logloss=logloss(bayes, labels),
        linear_auc=auc(linear, labels),
        linear_logloss=logloss(linear, labels),
        base_rate=float(labels.mean()),
        linear_fit={"rows": student.rows, "iterations": student.iterations, "gradient": student.gradient},
        teacher=asdict(teacher.settings)
        | {
            "intercept": teacher.intercept,
            "additive_scale": teacher.additive_scale,
            "interaction_scale": teacher.interaction_scale,
        },
    )


@contextlib.contextmanager
def _claimed(out: Path, *, overwrite: bool) -> Iterator[None]:
    """Lock the folder and remove an earlier call's files; on failure, remove this call's files, too."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file, not a folder", remedy="name another output folder")
    home.make_private(out)
    with home.locked(out / _LOCK, what=f"the folder {out}"):
        strangers = [p for p in _contents(out) if not _is_own(out, p)]
        if not overwrite and any(_contents(out)):
            raise DataError(f"{out} is not empty", remedy="name an empty folder, or pass --overwrite")
        mixed = [p for p in strangers if p.parent.name in _SPLITS]
        if mixed:
            raise DataError(
                f"{mixed[0]} was not written by synth and would be mixed with its files",
                remedy="move it elsewhere",
            )
        _remove_own_files(out)
        try:
            for split in _SPLITS:
                (out / split).mkdir(exist_ok=True)
            yield
        except OSError as error:
            _remove_own_files(out)
            raise home.storage_error(out, error) from error
        except BaseException:
            _remove_own_files(out)
            raise


def _contents(out: Path) -> Iterator[Path]:
    """Yield the entries of the folder and its splits, without the split folders and the lock."""
    for path in out.iterdir():
        if path.name in _SPLITS and path.is_dir():
            yield from path.iterdir()
        elif path.name != _LOCK:
            yield path


def _is_own(out: Path, path: Path) -> bool:
    if path.parent == out:
        return path.name == "synth.json"
    return path.match("part-*.tsv.gz")


def _remove_own_files(out: Path) -> None:
    for path in list(_contents(out)):
        if _is_own(out, path):
            path.unlink(missing_ok=True)
