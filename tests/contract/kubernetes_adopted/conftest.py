"""One API server for the module's tests, back to nothing before each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.support_clouds import Cloud, Site, stand_in


@pytest.fixture(scope="module")
def server() -> Iterator[Cloud]:
    with stand_in("kubernetes") as server:
        yield server


@pytest.fixture
def site(server: Cloud, tmp_path: Path) -> Site:
    server.reset()
    return Site(server, tmp_path)
