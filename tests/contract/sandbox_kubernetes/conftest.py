"""One stand-in a module, back to an empty cluster before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.sandbox_kubernetes.support import Kubernetes, stand_in


@pytest.fixture(scope="module")
def process() -> Iterator[Kubernetes]:
    with stand_in() as kubernetes:
        yield kubernetes


@pytest.fixture
def kube(process: Kubernetes) -> Kubernetes:
    process.control(reset=True)
    return process
