"""Each tutorial runs as it is written: from an empty environment, with the wheel, in ten minutes at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.support_blocks import names, page
from tests.docs.support_runner import machine, main_times, run_page

MOST_S = 600.0


@pytest.mark.parametrize("name", [each for each in names() if page(each).part == "tutorials"])
def test_the_tutorial_runs_as_written(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    times = run_page(page(name), machine(tmp_path_factory), tmp_path)
    print(name, main_times(times, tmp_path))
    assert sum(times.values()) < MOST_S
