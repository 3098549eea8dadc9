"""One stand-in a cloud for the whole session, back to an empty account before each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.support_clouds import CLOUDS, Cloud, Site, stand_in


@pytest.fixture(scope="session", params=CLOUDS)
def process(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    with stand_in(request.param) as cloud:
        yield cloud


@pytest.fixture
def cloud(process: Cloud) -> Cloud:
    process.reset()
    return process


@pytest.fixture
def site(cloud: Cloud, tmp_path: Path) -> Site:
    return Site(cloud, tmp_path)
