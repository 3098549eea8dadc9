"""One API server, emptied before each test, and a server of releases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloudrec.kubernetes.client.client import Kube
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
