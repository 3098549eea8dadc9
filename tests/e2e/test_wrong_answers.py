"""Answers of a cloud with wrong content end in no traceback, and leave nothing; see tests/fuzz/answers.py."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.support_wire import WIRES
from tests.tallies import Tally

ROOT = Path(__file__).parents[2]
_MINUTES = 10


def _run(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.answers", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.soak  # threads and ids differ from run to run, so each run finds something else
@pytest.mark.parametrize("provider", sorted(WIRES))
def test_a_cluster_survives_wrong_answers(provider: str) -> None:
    code, report = _run(provider, "--rounds", "1", "--seed", "4")
    assert code == 0, report
    assert " 0 wrong answers" not in report


@pytest.mark.soak
@pytest.mark.parametrize("provider", sorted(WIRES))
def test_clusters_survive_thousands_of_wrong_answers(provider: str, tally: Tally) -> None:
    seed = str(secrets.randbelow(1_000_000))  # a report names it: --seed repeats the run
    code, report = _run(provider, "--rounds", "1000", "--minutes", str(_MINUTES), "--seed", seed)
    tally(report.strip().splitlines()[-1])
    assert code == 0, report
