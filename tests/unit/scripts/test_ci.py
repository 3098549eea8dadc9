"""The hosted workflow runs `.ci/run` on each Python version that the package declares."""

from __future__ import annotations

import re
import tomllib
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests import conftest

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


@pytest.mark.parametrize(("limit", "is_skipped"), [("0", True), ("1e9", False), ("", False)])
def test_a_test_that_would_begin_after_the_limit_of_time_is_skipped(
    limit: str, *, is_skipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDREC_TESTS_SECONDS", limit)
    try:
        conftest.pytest_runtest_setup()
    except pytest.skip.Exception as skipped:
        assert is_skipped
        assert "`make slow` runs all of them" in str(skipped)  # noqa: PT017 - which tests are skipped is the test
    else:
        assert not is_skipped


def test_each_commit_has_another_order_of_files_and_none_divides_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"tests/test_{file}.py::test_{number}" for file in "abcdef" for number in range(3)]
    orders = set()
    for commit in ("", "4c1f", "9e07", "b2d3"):
        monkeypatch.setenv("CLOUDREC_TESTS_ORDER", commit)
        items: Any = [SimpleNamespace(nodeid=name) for name in names]
        conftest.pytest_collection_modifyitems(SimpleNamespace(), items)  # type: ignore[arg-type]
        order = [item.nodeid for item in items]
        assert sorted(order) == names
        files = [file for file, _ in groupby(order, key=lambda name: name.partition("::")[0])]
        assert len(files) == 6
        orders.add(tuple(files))
    assert len(orders) == 4
