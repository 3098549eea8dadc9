"""Each tutorial runs as it is written: from an empty environment, with the wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.support_blocks import names, page
from tests.docs.support_runner import machine, main_times, run_page

MOST_S = 600.0


@pytest.mark.parametrize("name", [each for each in names() if "/tutorials/" in each])
def test_the_tutorial_runs_as_written(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = page(name)
    if not found.run_here:
        pytest.skip(f"{name} has nothing to run")
    times = run_page(found, machine(tmp_path_factory), tmp_path)
    print(name, main_times(times))
    assert sum(times.values()) < MOST_S
