from __future__ import annotations

import pytest
import torch

from tests.trainer.support_ranks import Place
from tests.trainer.support_worlds import Worlds
from trainer.tables.ordered_sums import average_in_order


def _values(rank: int, size: int) -> torch.Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(rank)) * 1000.0**rank


def _averages(place: Place, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the ranks' values, and of the same values the other way round."""
    forwards = _values(place.rank, size)
    backwards = forwards.flip(0)
    for buffer in (forwards, backwards):
        average_in_order(buffer, place.group)
    return forwards, backwards


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_average_is_rounded_equally_at_every_position(worlds: Worlds, size: int) -> None:
    answers = worlds.run(4, _averages, size)
    expected = _values(0, size)
    for rank in range(1, 4):
        expected += _values(rank, size)
    for forwards, backwards in answers:
        assert torch.equal(forwards, expected / 4)
        assert torch.equal(backwards, forwards.flip(0))
