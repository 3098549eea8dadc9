"""The guides in docs/ work as they are written: their files and changes are applied to a copy, and run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.support_guides import follow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FAKE_TRAINER = ROOT / "tests" / "e2e" / "fake_trainer.py"
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the packages, which a guide may change."""
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("cloudrec", "cloudrec_contract", "templates", "trainer"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    return tmp_path


def _run(copy: Path, *words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_launcher_added_by_the_guide_is_found_runs_and_stops(copy: Path) -> None:
    follow("add-a-launcher.md", copy)
    names, short, stopped = _run(copy, "try_echo.py", str(copy / "runs"), str(FAKE_TRAINER))
    assert "echo" in names.split()
    assert short == "short SUCCEEDED rank 0 has finished"
    assert stopped.startswith("stopped INTERRUPTED")


def test_a_model_added_by_the_guide_learns(copy: Path) -> None:
    follow("add-a-model.md", copy)
    before, after = (float(line.split()[-1]) for line in _run(copy, "try_sum.py"))
    assert after < 0.5 * before


def test_a_script_runs_by_the_guide(tmp_path: Path) -> None:
    guide = "run-your-own-script.md"
    follow(guide, tmp_path)
    commands = re.findall(
        r"^```console\n(.*?)^```$", (DOCS / guide).read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    environment = {**os.environ, "CLOUDREC_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    printed = {}
    for line in "".join(commands).splitlines():
        words = shlex.split(line)
        assert words[0] == "cloudrec"
        done = subprocess.run(
            [sys.executable, "-P", "-m", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        printed[words[1]] = done.stdout
    (run,) = json.loads(printed["status"])["runs"]
    assert (run["state"], run["step"], run["loss"] < 1) == ("SUCCEEDED", 20, True)
    assert "from 0 to 20: 3.000" in printed["logs"]


def test_the_guides_lead_to_files_that_exist() -> None:
    pages = sorted(DOCS.glob("*.md"))
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert {page.name for page in pages} - {"README.md"} <= set(_LINK.findall(index))
    for page in (*pages, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
