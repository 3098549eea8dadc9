"""One API server, empty before each test, and a place from which releases are fetched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloudrec.kube.client import Kube
from tests.contract.kubernetes_addons.support import Releases, Server, stand_in


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with stand_in() as server:
        yield server


@pytest.fixture
def kube(server: Server) -> Iterator[Kube]:
    server.control(reset=True)
    with server.connect() as kube:
        yield kube


@pytest.fixture(scope="session")
def releases() -> Iterator[Releases]:
    with Releases() as releases:
        yield releases
