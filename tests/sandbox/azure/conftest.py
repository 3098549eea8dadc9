"""One stand-in per session, reset before each test; its clock is slow, and tests advance it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.azure.support import Azure, stand_in


@pytest.fixture(scope="session")
def process() -> Iterator[Azure]:
    with stand_in() as azure:
        yield azure


@pytest.fixture
def azure(process: Azure) -> Azure:
    process.control(reset=True, speed=0.001)
    process.control(registered=["*"])
    return process
