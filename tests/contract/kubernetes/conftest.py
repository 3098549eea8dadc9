"""One API server per module, and a client in a namespace that is deleted with the module.

Every test runs on the stand-in, and in `make slow` on a real control plane, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from cloudrec.kubernetes.client.client import Kube
from tests.contract.kubernetes.support import CONTROL_PLANE, STAND_IN, Server, api_server, joined_server
from tests.standins.control_plane import control_plane, why_no_control_plane

_BOTH = [STAND_IN, pytest.param(CONTROL_PLANE, marks=pytest.mark.slow)]


@pytest.fixture(scope="session")
def real_server() -> Iterator[Path]:
    """The kubeconfig of a real control plane, which all tests of the session share."""
    if why := why_no_control_plane():
        pytest.skip(why)
    with control_plane() as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="module", params=_BOTH)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    is_real = request.param == CONTROL_PLANE
    opened: AbstractContextManager[Server] = (
        joined_server(request.getfixturevalue("real_server")) if is_real else api_server()
    )
    with opened as server, server.connect() as kube:
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": server.namespace}})
        account = {"name": server.target().service_account, "namespace": server.namespace}
        kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        yield server
        kube.delete("Namespace", server.namespace)


@pytest.fixture
def kube(server: Server) -> Iterator[Kube]:
    with server.connect() as kube:
        yield kube
