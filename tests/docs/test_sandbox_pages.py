"""Each page whose commands go to a stand-in by `--sandbox` runs as it is written, with the wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.support_blocks import names, page
from tests.docs.support_runner import machine, main_times, run_page


@pytest.mark.parametrize("name", [each for each in names() if page(each).part == "sandbox"])
def test_the_page_runs_as_written(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    print(name, main_times(run_page(page(name), machine(tmp_path_factory), tmp_path), tmp_path))
