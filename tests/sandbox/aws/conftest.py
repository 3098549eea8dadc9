"""One stand-in per session, reset before each test; its clock is slow, and tests advance it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.aws.support import Aws, stand_in


@pytest.fixture(scope="session")
def process() -> Iterator[Aws]:
    with stand_in() as aws:
        yield aws


@pytest.fixture
def aws(process: Aws) -> Aws:
    process.control(reset=True, speed=0.001)
    return process
