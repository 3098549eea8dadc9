from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.trainer.support_ranks import RankPool

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    """Up to three real ranks."""
    with RankPool(3, tmp_path_factory.mktemp("ranks")) as pool:
        yield pool
