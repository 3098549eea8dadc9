"""One stand-in per session, reset to an empty subscription before each test; operations take seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from tests.contract.azure.support import Site, fresh
from tests.contract.azure.support_deployer import Deployer
from tests.contract.azure.support_identities import Estate
from tests.sandbox.azure.support import Azure, stand_in


@pytest.fixture(scope="session")
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
    """The home of a running cluster, with a snapshot of its subscription."""
    fresh(process)
    site = Site(process, tmp_path_factory.mktemp("raised"))
    site.up()
    process.ask("POST", "/save", {"name": "raised"})
    return site.home.root


@pytest.fixture
def standing(azure: Azure, raised: Path, tmp_path: Path) -> Site:
    """A running cluster, restored for each test."""
    azure.ask("POST", "/restore", {"name": "raised"})
    copytree(raised, tmp_path / "home")
    return Site(azure, tmp_path)


@pytest.fixture(scope="module")
def estate(process: Azure, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    """A deployer's cluster beside that of another team."""
    folder = tmp_path_factory.mktemp("estate")
    fresh(process)
    deployer = Deployer(process, folder / "ours")
    yield Estate(process, deployer, Site(process, folder / "theirs", name="u", ttl="8h", access="auto"))
    process.control(enforce_iam=False)
