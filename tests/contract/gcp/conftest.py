"""One stand-in per session, reset to an empty project before each test; operations take seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.gcp.support import Site, fresh
from tests.contract.gcp.support_identities import Estate
from tests.sandbox.gcp.support import Gcp as Cloud
from tests.sandbox.gcp.support import stand_in


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="module")
def estate(process: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    """A deployer's cluster in a project that has much of others."""
    fresh(process)
    yield Estate(process, tmp_path_factory.mktemp("estate"))
    process.control(enforce_iam=False)
