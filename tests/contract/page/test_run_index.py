"""The page's index of runs: which files it opens for a page of many runs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloudrec.app.context import AppContext
from cloudrec.app.live.index import RunIndex
from cloudrec.home import Home
from tests.contract.page.support_page import a_run

RUNS, LISTED = 30, 5

_watching: list[Callable[[str], None]] = []


def _opened(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _watching and isinstance(arguments[0], str | Path):
        _watching[-1](str(arguments[0]))


sys.addaudithook(_opened)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[RunIndex]:
    tmp_path.chmod(0o700)
    for number in range(RUNS):
        a_run(tmp_path / "runs", f"run-{number:02}", steps=3)
    index = RunIndex(AppContext(home=Home(root=tmp_path), environment={}))
    yield index
    index.close()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[set[tuple[str, str]]]:
    """Collect what is opened in the folders of runs, by any thread of this process: (run, file)."""
    runs, files = tmp_path / "runs", set[tuple[str, str]]()

    def note(path: str) -> None:
        if Path(path).is_relative_to(runs) and Path(path) != runs:
            run, *file = Path(path).relative_to(runs).parts
            files.add((run, "/".join(file)))

    _watching.append(note)
    yield files
    _watching.pop()


def test_a_list_opens_the_files_of_its_runs_only(index: RunIndex, opened: set[tuple[str, str]]) -> None:
    listed = index.folders()[:LISTED]
    assert len(opened) == RUNS  # the times of submission, by which all runs are ordered
    assert {file for _, file in opened} == {"events.jsonl"}
    opened.clear()
    assert {view.state for view in index.views(listed)} == {"SUCCEEDED"}
    assert {name for name, _ in opened} == {run.name for run in listed}
    assert {"spec.json", "metrics.jsonl"} <= {file for _, file in opened}


def test_a_run_is_read_again_only_after_a_change(index: RunIndex, opened: set[tuple[str, str]]) -> None:
    listed = index.folders()[:LISTED]
    index.views(listed)
    opened.clear()
    index.views(listed)
    assert not opened
    with listed[2].metrics_file.open("a") as file:
        file.write("\n")
    opened.clear()
    index.views(listed)
    assert {name for name, _ in opened} == {listed[2].name}


def test_runs_that_are_read_for_the_counts_wait_for_a_page(
    index: RunIndex, opened: set[tuple[str, str]]
) -> None:
    reader = threading.Thread(target=index.look_at_all)
    with index.making_a_page():
        reader.start()
        time.sleep(0.5)
        assert {file for _, file in opened} <= {"events.jsonl"}  # the times of submission
        assert not index.known()
    reader.join(30)
    assert len(index.known()) == RUNS
