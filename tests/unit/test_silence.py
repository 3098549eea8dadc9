"""A guard that has not reported for two rounds is an alarm in `status`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudrec.app.money.kept import ClusterCost
from cloudrec.app.money.silence import SILENT_S, SKEW_S, silence
from cloudrec.keeper.meter import CostLedger

NOW = 1_800_000_000.0
COST = ClusterCost(
    cluster="c",
    provider="aws",
    owner="me",
    created=NOW - 7200,
    ledger=CostLedger(since=NOW - 7200, at=NOW, seen={}),
    is_read=True,
    round_at=NOW - 60,
)


def test_a_guard_that_reports_is_no_alarm() -> None:
    assert silence(COST, NOW) == ""
    assert silence(replace(COST, round_at=NOW - SILENT_S), NOW) == ""


def test_a_guard_that_missed_two_rounds_is_one() -> None:
    assert "its guard has not reported for 14 minutes" in silence(replace(COST, round_at=NOW - 840), NOW)


def test_a_guard_that_never_reported_is_one_once_the_cluster_is_old_enough() -> None:
    never = replace(COST, ledger=None, round_at=None)
    assert "its guard has not reported once in 120 minutes" in silence(never, NOW)
    assert silence(replace(never, created=NOW - 200), NOW) == ""


@pytest.mark.parametrize(
    "cost", [replace(COST, round_at=NOW - 840), replace(COST, ledger=None, round_at=None)]
)
def test_nothing_is_known_of_a_cluster_that_was_not_read(cost: ClusterCost) -> None:
    assert silence(replace(cost, is_read=False), NOW) == ""


def test_a_guard_whose_last_round_is_in_the_future_has_another_clock() -> None:
    said = silence(replace(COST, round_at=NOW + 3 * 3600), NOW)
    assert "clock is 180 minutes ahead of this machine's" in said
    assert silence(replace(COST, round_at=NOW + SKEW_S), NOW) == ""
    assert silence(replace(COST, is_read=False, round_at=NOW + 3 * 3600), NOW) == ""
