"""One stand-in per session, reset before each test; its clock is slow, and tests advance it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.gcp.support import Gcp, stand_in


@pytest.fixture(scope="session")
def process() -> Iterator[Gcp]:
    with stand_in() as gcp:
        yield gcp


@pytest.fixture
def gcp(process: Gcp) -> Gcp:
    process.control(reset=True, speed=0.001)
    return process
