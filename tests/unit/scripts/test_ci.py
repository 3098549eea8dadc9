"""The hosted workflow runs `.ci/run` on each Python version that the package declares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILES = ("pyproject.toml", "cloudrec_sandbox/pyproject.toml")


def _job() -> dict[str, Any]:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    job: dict[str, Any] = yaml.safe_load(text)["jobs"]["check"]
    return job


def _project(file: str) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / file).read_text(encoding="utf-8"))["project"]
    return project


@pytest.mark.parametrize("file", FILES)
def test_the_package_declares_the_tested_python_versions(file: str) -> None:
    project = _project(file)
    prefix = "Programming Language :: Python :: "
    claimed = [each.removeprefix(prefix) for each in project["classifiers"] if each.startswith(f"{prefix}3.")]
    assert claimed == _job()["strategy"]["matrix"]["python"]
    assert project["requires-python"] == f">={claimed[0]}"


def test_the_workflow_runs_the_checks_of_the_repository() -> None:
    steps = _job()["steps"]
    assert steps[-1]["run"] == ".ci/run"
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("make ")] == ["make test", "make slow"]


def test_each_action_is_pinned_to_a_commit_and_each_cached_file_exists() -> None:
    steps = _job()["steps"]
    actions = [step["uses"] for step in steps if "uses" in step]
    assert actions
    assert [action for action in actions if not re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action)] == []
    (cached,) = (step["with"]["cache-dependency-path"] for step in steps if "cache" in step.get("with", {}))
    assert all((ROOT / name).is_file() for name in cached.split())
