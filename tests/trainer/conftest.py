from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.standins.servers import why_no_azurite
from tests.trainer.support_clouds import CLOUDS, CloudPlace, Clouds
from tests.trainer.support_ranks import RankPool
from tests.trainer.support_worlds import Worlds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    """Up to three real ranks."""
    with RankPool(3, tmp_path_factory.mktemp("ranks")) as pool:
        yield pool


@pytest.fixture(scope="session")
def worlds(ranks: RankPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """Whole worlds of one to four ranks."""
    with (
        RankPool(1, tmp_path_factory.mktemp("one")) as one,
        RankPool(2, tmp_path_factory.mktemp("two")) as two,
        RankPool(4, tmp_path_factory.mktemp("four")) as four,
    ):
        yield Worlds({1: one, 2: two, 3: ranks, 4: four})


@pytest.fixture(scope="session")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clouds]:
    """The clouds' object stores on loopback, each started when it is first asked for."""
    with ExitStack() as stack:
        yield Clouds(stack, tmp_path_factory.mktemp("clouds"))


@pytest.fixture
def enter_cloud(clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], CloudPlace]:
    """Lead the standard variables to a cloud's object store, which has no fault yet."""

    def enter(name: str) -> CloudPlace:
        if name == "azure" and (reason := why_no_azurite()):
            pytest.skip(reason)
        place = clouds.start(name)
        for variable, value in place.variables.items():
            monkeypatch.setenv(variable, value)
        place.proxy.clear()
        return place

    return enter


@pytest.fixture(params=CLOUDS)
def cloud(request: pytest.FixtureRequest, enter_cloud: Callable[[str], CloudPlace]) -> CloudPlace:
    """Every cloud's object store in turn."""
    return enter_cloud(request.param)
