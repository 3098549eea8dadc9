"""Generated bad inputs end in no traceback; see tests/fuzz, which also runs alone: python -m tests.fuzz."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import readers
from tests.fuzz.documents import DOCUMENTS
from tests.tallies import Tally

ROOT = Path(__file__).parents[2]
REPORT = "0 tracebacks, 0 longer than 2 s twice in a row, 0 files outside, 0 undocumented exit codes"


def _run(*flags: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *flags], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_some_bad_inputs_of_each_area_end_in_no_traceback() -> None:
    code, report = _run("--count", "300", "--minutes", "0.1")  # a batch of 100 always ends
    assert code == 0, report
    assert REPORT in report
    assert all(
        area in report
        for area in ("spec", "flags", "environment", "home", "data", "records", "notify", "env-files")
    )


def test_commands_without_a_cluster_survive_wrong_answers_of_a_cloud() -> None:
    words = [sys.executable, "-m", "tests.fuzz.answers", "aws", "--looks", "--seed", "3"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 faults" in done.stdout


@pytest.mark.soak
def test_100_000_bad_inputs_end_in_no_traceback(tally: Tally) -> None:
    seed = str(secrets.randbelow(1_000_000))  # a report names it: --seed repeats the run
    code, report = _run("--count", "100000", "--minutes", "25", "--seed", seed, "--workers", "2")
    tally(report.strip().splitlines()[-1])
    assert code == 0, report
    assert REPORT in report


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_each_reader_accepts_its_valid_document(name: str, tmp_path: Path) -> None:
    """A reader that refuses the document at its first field would be judged by nothing else."""
    data = json.dumps(DOCUMENTS[name]).encode()
    (tmp_path / "record").write_bytes(data)
    readers.read(name, data, tmp_path)
