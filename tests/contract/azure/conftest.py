"""One stand-in a module; before each test an empty subscription, where things take seconds, not minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

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


@pytest.fixture(scope="module")
def raised(process: Azure, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a cluster that is up; the subscription as it is then is saved beside it."""
    fresh(process)
    site = Site(process, tmp_path_factory.mktemp("raised"))
    site.up()
    process.ask("POST", "/save", {"name": "raised"})
    return site.home.root


@pytest.fixture
def standing(azure: Azure, raised: Path, tmp_path: Path) -> Site:
    """A cluster that is up, and is each test's own."""
    azure.ask("POST", "/restore", {"name": "raised"})
    copytree(raised, tmp_path / "home")
    return Site(azure, tmp_path)
