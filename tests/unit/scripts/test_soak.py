"""The runner of the endurance tests keeps results, continues, and reports what the tests counted."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = """
import pytest

@pytest.mark.soak
@pytest.mark.parametrize("number", [1, 2])
def test_kills(number, tally):
    tally(f"{number} kills")

@pytest.mark.soak
def test_breaks():
    assert (__import__("pathlib").Path(__file__).parent / "repaired").exists()

@pytest.mark.soak
def test_without_a_tool():
    pytest.skip("no tool")

def test_of_every_day():
    raise AssertionError
"""

ENDS_THE_RUNNER = """
import os, signal
import pytest

@pytest.mark.soak
def test_ends_the_runner():
    os.kill(os.getppid(), signal.SIGTERM)

@pytest.mark.soak
def test_waits():
    raise AssertionError
"""

IS_INTERRUPTED = """
import os, signal
import pytest

@pytest.mark.soak
@pytest.mark.parametrize("number", [1, 2])
def test_is_interrupted(number):
    if number == 2:
        os.kill(os.getpid(), signal.SIGINT)
"""


def _soak(folder: Path, *flags: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "scripts.soak", str(folder / "test_made.py")]
    command += ["--results", str(folder / "results.json"), "--report", str(folder / "report.md"), *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    report = folder / "report.md"
    return done.returncode, done.stdout + done.stderr, report.read_text("utf-8") if report.exists() else ""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in the project: pytest takes its settings from there."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        made = Path(name)
        (made / "test_made.py").write_text(TESTS, encoding="utf-8")
        (made / "conftest.py").write_text("from tests.conftest import tally\n", encoding="utf-8")
        yield made


def test_results_are_kept_and_only_what_failed_runs_again(folder: Path) -> None:
    code, output, report = _soak(folder)
    assert code == 1
    assert "3 test functions, 3 to run" in output
    assert "2 passed, 1 failed, 1 skipped" in report
    assert "kills: **2 passed**" in report
    assert "    - 1 kills\n    - 2 kills\n" in report
    assert "breaks: **0 passed, 1 FAILED**" in report
    assert "skipped: no tool" in report
    (folder / "repaired").touch()
    code, output, report = _soak(folder)
    assert code == 0
    assert "3 test functions, 1 to run" in output
    assert "3 passed, 0 failed, 1 skipped" in report


def test_after_sigterm_no_test_starts_and_the_running_one_keeps_its_result(folder: Path) -> None:
    (folder / "test_made.py").write_text(ENDS_THE_RUNNER, encoding="utf-8")
    code, output, report = _soak(folder, "--workers", "1")
    assert code == 1
    assert "1 of 2 functions ran" in output
    assert "ends the runner: **1 passed**" in report


def test_a_function_that_is_interrupted_has_failed_and_runs_again(folder: Path) -> None:
    (folder / "test_made.py").write_text(IS_INTERRUPTED, encoding="utf-8")
    code, output, report = _soak(folder)
    assert code == 1
    assert "1 FAILED" in report
    assert "pytest ended with exit code 2" in report
    _, output, _ = _soak(folder)
    assert "1 test functions, 1 to run" in output


def test_what_did_not_run_is_named_and_is_no_success(folder: Path) -> None:
    code, output, report = _soak(folder, "--minutes", "0")
    assert code == 1
    assert "0 of 3 functions ran" in output
    assert "3 functions did not run" in report
    assert "test_made.py::test_kills" in report
    assert not (folder / "results.json").exists() or not json.loads(
        (folder / "results.json").read_text("utf-8")
    )


def test_a_function_that_takes_hours_runs_once_for_each_parameter(folder: Path) -> None:
    name = "test_a_command_killed_at_any_call_is_recovered"
    (folder / "test_made.py").write_text(TESTS.replace("test_kills", name))
    _, printed, report = _soak(folder)
    for number in (1, 2):
        assert f"{name}[{number}] in " in printed
    assert "recovered[1]: **1 passed**" in report
    assert "recovered[2]: **1 passed**" in report
