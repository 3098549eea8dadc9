"""One stand-in a module, back to an empty account before each test, and in no hurry: tests move its clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.sandbox_aws.support import Aws, stand_in


@pytest.fixture(scope="module")
def process() -> Iterator[Aws]:
    with stand_in() as aws:
        yield aws


@pytest.fixture
def aws(process: Aws) -> Aws:
    process.control(reset=True, speed=0.001)
    return process
