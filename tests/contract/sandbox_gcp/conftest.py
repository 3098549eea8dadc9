"""One stand-in a module, back to an empty project before each test, and in no hurry: tests move its clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.sandbox_gcp.support import Gcp, stand_in


@pytest.fixture(scope="module")
def process() -> Iterator[Gcp]:
    with stand_in() as gcp:
        yield gcp


@pytest.fixture
def gcp(process: Gcp) -> Gcp:
    process.control(reset=True, speed=0.001)
    return process
