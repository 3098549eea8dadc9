from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.trainer.support_ranks import RankPool
from tests.trainer.support_worlds import Worlds

if TYPE_CHECKING:
    from collections.abc import Iterator


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
