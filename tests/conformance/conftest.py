"""One stand-in per cloud and session, reset to an empty account before each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conformance.support_clouds import CLOUDS, Cloud, Site, stand_in


@pytest.fixture(scope="session")
def stand_ins() -> Iterator[Callable[[str], Cloud]]:
    """The stand-in of a name, started at first use."""
    running: dict[str, Cloud] = {}
    with ExitStack() as stack:

        def get(name: str) -> Cloud:
            if name not in running:
                running[name] = stack.enter_context(stand_in(name))
            return running[name]

        yield get


@pytest.fixture(scope="session", params=CLOUDS)
def process(request: pytest.FixtureRequest, stand_ins: Callable[[str], Cloud]) -> Cloud:
    return stand_ins(request.param)


@pytest.fixture
def cloud(process: Cloud) -> Cloud:
    process.reset()
    return process


@pytest.fixture
def site(cloud: Cloud, tmp_path: Path) -> Site:
    return Site(cloud, tmp_path)
