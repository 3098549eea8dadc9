"""One stand-in a module, back to an empty subscription before each test, and in no hurry: tests move its "
"clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.sandbox_azure.support import Azure, stand_in


@pytest.fixture(scope="module")
def process() -> Iterator[Azure]:
    with stand_in() as azure:
        yield azure


@pytest.fixture
def azure(process: Azure) -> Azure:
    process.control(reset=True, speed=0.001)
    process.control(registered=["*"])
    return process
