"""One stand-in per session, reset to an empty cluster before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.kubernetes.support import Kubernetes, stand_in


@pytest.fixture(scope="session")
def process() -> Iterator[Kubernetes]:
    with stand_in() as kubernetes:
        yield kubernetes


@pytest.fixture
def kube(process: Kubernetes) -> Kubernetes:
    process.control(reset=True)
    return process
