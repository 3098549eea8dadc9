"""One stand-in a module; before each test an empty project, where things take seconds instead of minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.gcp.support import Site, fresh
from tests.contract.sandbox_gcp.support import Gcp as Cloud
from tests.contract.sandbox_gcp.support import stand_in


@pytest.fixture(scope="module")
def process() -> Iterator[Cloud]:
    with stand_in() as cloud:
        yield cloud


@pytest.fixture
def cloud(process: Cloud) -> Cloud:
    fresh(process)
    return process


@pytest.fixture
def site(cloud: Cloud, tmp_path: Path) -> Site:
    return Site(cloud, tmp_path)
