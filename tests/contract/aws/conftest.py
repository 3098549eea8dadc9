"""One stand-in per session, reset to an empty account before each test; operations take seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.aws.support import Site, fresh
from tests.contract.aws.support_identities import AwsEstate
from tests.sandbox.aws.support import Aws, stand_in


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="module")
def estate(process: Aws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsEstate]:
    """A cluster beside another one, in an account with the permissions boundary."""
    fresh(process)
    yield AwsEstate(process, tmp_path_factory.mktemp("estate"))
    process.control(enforce_iam=False)
