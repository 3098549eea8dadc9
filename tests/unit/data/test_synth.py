from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.data.synth import synth
from cloudrec.data.synth.linear import FIT_ROWS, fit_linear
from cloudrec.data.synth.metrics import auc, logloss, sigmoid
from cloudrec.data.synth.teacher import Teacher, TeacherSettings, draw_teacher
from cloudrec.errors import DataError, UsageError
from tests.unit.data import support_reference as reference

FEW = 2048  # rows for the linear fit where its figures do not matter


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("synth") / "out"
    synth.synthesize(out, rows=70_000, test_rows=20_000, seed=3, fit_rows=1 << 14)
    return out


@pytest.fixture(scope="module")
def teacher() -> Teacher:
    return draw_teacher(np.random.default_rng(0), TeacherSettings())


def _digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("part-*"))}


def _lines(folder: Path) -> list[bytes]:
    return b"".join(gzip.decompress(p.read_bytes()) for p in sorted(folder.iterdir())).splitlines()


def test_the_files_are_valid_criteo_tsv(made: Path) -> None:
    lines = _lines(made / "train")
    rows, bad = reference.read(b"\n".join(lines[:20_000]) + b"\n")

    assert (len(lines), len(rows), bad) == (70_000, 20_000, [])
    integers = np.array([[np.nan if i is None else i for i in r.integers] for r in rows])
    assert np.isnan(integers).any()
    assert np.nanmin(integers) < 0
    assert np.nanmax(integers) > 1000
    assert all(
        re.fullmatch(rb"[0-9a-f]{8}|", f)
        for line in _lines(made / "test")[:1000]
        for f in line.split(b"\t")[14:]
    )
    for feature in range(26):
        codes = [r.categories[feature] for r in rows]
        counts = np.sort(np.unique([c for c in codes if c is not None], return_counts=True)[1])[::-1]
        assert 150 < len(counts) <= 500
        assert 1.2 < np.log(counts[0] / counts[9]) / np.log(10) < 1.8


def test_the_files_depend_only_on_rows_and_seed(made: Path, tmp_path: Path) -> None:
    for name, seed, threads in (("same", 3, 1), ("other", 4, 3)):
        synth.synthesize(
            tmp_path / name, rows=70_000, test_rows=20_000, seed=seed, threads=threads, fit_rows=1 << 14
        )

    assert _digests(tmp_path / "same") == _digests(made)
    assert (tmp_path / "same" / "synth.json").read_text() == (made / "synth.json").read_text()
    assert not set(_digests(tmp_path / "other").values()) & set(_digests(made).values())


def test_synth_json_records_the_achievable_metrics(made: Path) -> None:
    told = json.loads((made / "synth.json").read_text())

    assert (told["format"], told["schema_version"]) == ("cloudrec-synth", 1)
    assert (told["seed"], told["rows"], told["test_rows"]) == (3, 70_000, 20_000)
    assert told["bayes_auc"] == pytest.approx(0.8246, abs=0.01)
    assert told["linear_auc"] == pytest.approx(0.7764, abs=0.01)
    assert told["bayes_logloss"] < told["linear_logloss"]
    labels = [line[:1] == b"1" for line in _lines(made / "test")]
    assert told["base_rate"] == pytest.approx(np.mean(labels))


def test_held_out_rows_are_as_many_as_requested_or_a_quarter(tmp_path: Path) -> None:
    assert synth.synthesize(tmp_path / "few", rows=10, fit_rows=FEW).test_rows == 1000
    assert synth.synthesize(tmp_path / "asked", rows=10, test_rows=500, fit_rows=FEW).test_rows == 500


def test_the_interactions_are_uncorrelated_with_every_single_feature(teacher: Teacher) -> None:
    rows = teacher.draw(np.random.default_rng(1), 1 << 18)
    hidden = teacher.interaction(rows.entries)
    noise = hidden.std() / np.sqrt(len(hidden))

    assert abs(hidden.mean()) < 5 * noise
    for feature in teacher.pairs.ravel().tolist():
        ids = teacher.ids_of(rows.entries, feature)
        frequent = ids == 1
        assert abs(hidden[frequent].mean()) < 5 * hidden[frequent].std() / np.sqrt(frequent.sum())


def test_the_linear_student_is_the_optimal_linear_model(teacher: Teacher) -> None:
    rows = teacher.draw(np.random.default_rng(1), 1 << 18)
    truth = sigmoid(rows.logits)
    student = fit_linear(teacher, np.random.default_rng(2))
    larger = fit_linear(teacher, np.random.default_rng(3), rows=4 * FIT_ROWS)
    own = teacher.additive(rows.entries) * np.float32(teacher.additive_scale) + np.float32(teacher.intercept)

    fitted, more = (auc(s.logits(rows.entries), truth) for s in (student, larger))
    assert student.gradient <= 1e-4
    assert more == pytest.approx(fitted, abs=1e-3)
    assert fitted >= auc(own, truth) - 2e-4
    assert logloss(student.logits(rows.entries), truth) < logloss(own, truth)


def test_auc_is_the_share_of_correctly_ordered_pairs() -> None:
    source = np.random.default_rng(0)
    scores, labels = source.integers(0, 20, 300), source.integers(0, 2, 300)
    difference = scores[labels == 1][:, None] - scores[labels == 0][None, :]

    assert auc(scores, labels) == pytest.approx(np.mean((difference > 0) + 0.5 * (difference == 0)))


@pytest.mark.parametrize(
    "options", [{"rows": 0}, {"rows": -5}, {"rows": 5, "test_rows": 99}, {"rows": 5, "seed": -1}]
)
def test_invalid_numbers_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="must be at least"):
        synth.synthesize(tmp_path / "out", **options)

    assert not (tmp_path / "out").exists()


def test_a_non_empty_folder_is_refused_and_other_files_are_never_deleted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="is not empty"):
        synth.synthesize(out, rows=10)

    synth.synthesize(out, rows=10, overwrite=True, fit_rows=FEW)
    synth.synthesize(out, rows=20, overwrite=True, fit_rows=FEW)
    assert len(_lines(out / "train")) == 20
    assert (out / "notes.txt").read_text() == "mine"

    (out / "train" / "mine.tsv").write_text("mine")
    with pytest.raises(DataError, match=r"mine\.tsv was not written by synth"):
        synth.synthesize(out, rows=10, overwrite=True)
    assert sorted(p.name for p in (out / "train").iterdir()) == ["mine.tsv", "part-000.tsv.gz"]


def test_an_interrupt_leaves_no_synthetic_data(tmp_path: Path) -> None:
    def interrupt(_done: int, _total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synth.synthesize(tmp_path / "out", rows=1000, fit_rows=FEW, progress=interrupt)

    assert not list((tmp_path / "out").rglob("*.gz"))
    assert not (tmp_path / "out" / "synth.json").exists()


_SMALL_DISK = """
import resource, sys
from pathlib import Path
from typing import Any
from cloudrec.data.synth.synth import synthesize
resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))
synthesize(Path(sys.argv[1]), rows=1000, fit_rows=2048)
"""


def test_a_write_error_is_reported_and_leaves_no_files(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SMALL_DISK, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "StorageError: cannot write" in done.stderr
    assert not list((tmp_path / "out").rglob("*.gz"))


def test_synthetic_files_have_no_bad_row(made: Path, tmp_path: Path) -> None:
    report = prepare(str(made), tmp_path / "out", options=PrepareOptions())

    assert (report.train_rows, report.test_rows, report.bad_rows) == (70_000, 20_000, 0)
