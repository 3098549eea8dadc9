"""One stand-in a module; before each test an empty account, where things take seconds instead of minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.aws.support import Site, fresh
from tests.contract.sandbox_aws.support import Aws, stand_in


@pytest.fixture(scope="module")
def process() -> Iterator[Aws]:
    with stand_in() as aws:
        yield aws


@pytest.fixture
def aws(process: Aws) -> Aws:
    fresh(process)
    return process


@pytest.fixture
def site(aws: Aws, tmp_path: Path) -> Site:
    return Site(aws, tmp_path)
