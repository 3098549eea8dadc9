"""One API server a module, and a client of it in a namespace that goes with the test's module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloudrec.kube.client import Kube
from tests.contract.kubernetes.support import Server, api_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with api_server() as server, server.connect() as kube:
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": server.namespace}})
        yield server
        kube.delete("Namespace", server.namespace)


@pytest.fixture
def kube(server: Server) -> Iterator[Kube]:
    with server.connect() as kube:
        yield kube
