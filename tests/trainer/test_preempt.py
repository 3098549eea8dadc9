from __future__ import annotations

import math
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from trainer.preempt import SIGNALS, Notice, StopFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.trainer.support_ranks import Place, RankPool
    from trainer.preempt.notice import NoticeSource


@pytest.fixture
def flag() -> Iterator[StopFlag]:
    flag = StopFlag()
    flag.install()
    yield flag
    flag.uninstall()


class _Announced:
    def notice(self) -> Notice:
        return Notice(source="test", reason="announced")


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
def test_a_signal_requests_a_stop_and_a_second_one_changes_nothing(
    flag: StopFlag, number: signal.Signals
) -> None:
    assert not flag.requested
    for _ in range(2):
        signal.raise_signal(number)
        assert flag.requested
    assert flag.agreed()


def test_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    flag = StopFlag()
    flag.install()
    assert [signal.getsignal(number) for number in SIGNALS] != before
    flag.uninstall()
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_notice_requests_a_stop_like_a_signal() -> None:
    assert StopFlag([_Announced()]).requested


def test_the_grace_period_starts_at_the_first_sigterm(flag: StopFlag) -> None:
    assert flag.seconds_left == math.inf
    signal.raise_signal(signal.SIGTERM)
    assert flag.seconds_left == math.inf  # no one said how long
    hurried = StopFlag(grace_s=15)
    hurried.install()
    try:
        signal.raise_signal(signal.SIGTERM)
        left = hurried.seconds_left
        signal.raise_signal(signal.SIGTERM)
        assert hurried.seconds_left <= left <= 15
    finally:
        hurried.uninstall()


class _Fixed:
    def notice(self) -> Notice:
        return Notice(source="test", reason="taken back", ends_at=time.monotonic() + 60, fixed=True)


class _Quiet:
    def notice(self) -> None:
        return None


def test_an_end_at_a_fixed_time_counts_as_announced_with_a_signal_too() -> None:
    flag = StopFlag([_Fixed()], grace_s=60)
    assert flag.announced
    flag.install()
    try:
        signal.raise_signal(signal.SIGTERM)
        assert flag.announced
        assert not flag.patient  # of this rank; the ranks of a machine decide together
    finally:
        flag.uninstall()


@pytest.mark.parametrize(
    ("sources", "number", "seconds", "announced"),
    [
        pytest.param([_Quiet()], signal.SIGTERM, 0.0, True, id="the notice may follow"),
        pytest.param([_Quiet()], signal.SIGTERM, 7.0, False, id="no notice has followed"),
        pytest.param([], signal.SIGTERM, 0.0, False, id="no source of notices"),
        pytest.param([_Quiet()], signal.SIGINT, 0.0, False, id="Ctrl-C"),
        pytest.param([_Announced()], signal.SIGTERM, 7.0, False, id="a notice without a fixed end"),
    ],
)
def test_a_signal_without_a_notice_is_one_of_a_user(
    monkeypatch: pytest.MonkeyPatch,
    sources: list[NoticeSource],
    number: signal.Signals,
    seconds: float,
    *,
    announced: bool,
) -> None:
    flag = StopFlag(sources, grace_s=60)
    flag.install()
    try:
        signal.raise_signal(number)
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + seconds)
        assert flag.announced is announced
    finally:
        flag.uninstall()


def test_ctrl_c_sets_no_deadline() -> None:
    flag = StopFlag(grace_s=15)
    flag.install()
    try:
        signal.raise_signal(signal.SIGINT)
        assert flag.requested
        assert flag.seconds_left == math.inf
    finally:
        flag.uninstall()


@pytest.mark.parametrize("asked", [0, 1])
def test_all_ranks_stop_when_one_is_requested_to(ranks: RankPool, asked: int) -> None:
    assert ranks.run(2, _agreed, asked) == [True, True]


def test_no_rank_stops_without_a_request(ranks: RankPool) -> None:
    assert ranks.run(2, _agreed, None) == [False, False]
