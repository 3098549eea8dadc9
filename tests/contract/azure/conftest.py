"""One stand-in a module; before each test an empty subscription, where things take seconds, not minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.azure.support import Site, fresh
from tests.contract.sandbox_azure.support import Azure, stand_in


@pytest.fixture(scope="module")
def process() -> Iterator[Azure]:
    with stand_in() as azure:
        yield azure


@pytest.fixture
def azure(process: Azure) -> Azure:
    fresh(process)
    return process


@pytest.fixture
def site(azure: Azure, tmp_path: Path) -> Site:
    return Site(azure, tmp_path)
