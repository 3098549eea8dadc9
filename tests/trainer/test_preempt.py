from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from trainer.preempt import SIGNALS, StopFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.trainer.support_ranks import Place, RankPool


@pytest.fixture
def flag() -> Iterator[StopFlag]:
    flag = StopFlag()
    flag.install()
    yield flag
    flag.uninstall()


class _Announced:
    def noticed(self) -> bool:
        return True


def _agreed(place: Place, asked: int | None) -> bool:
    flag = StopFlag()
    flag.install()
    try:
        if place.rank == asked:
            os.kill(os.getpid(), signal.SIGTERM)
        return flag.agreed(place.group)
    finally:
        flag.uninstall()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_asks_for_a_stop_and_a_second_one_changes_nothing(
    flag: StopFlag, number: signal.Signals
) -> None:
    assert not flag.requested
    for _ in range(2):
        signal.raise_signal(number)
        assert flag.requested
    assert flag.agreed()


def test_the_signals_are_given_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    flag = StopFlag()
    flag.install()
    assert [signal.getsignal(number) for number in SIGNALS] != before
    flag.uninstall()
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_notice_counts_like_a_signal() -> None:
    assert StopFlag([_Announced()]).requested


@pytest.mark.parametrize("asked", [0, 1])
def test_all_ranks_stop_when_one_is_asked(ranks: RankPool, asked: int) -> None:
    assert ranks.run(2, _agreed, asked) == [True, True]


def test_no_rank_stops_when_none_is_asked(ranks: RankPool) -> None:
    assert ranks.run(2, _agreed, None) == [False, False]
