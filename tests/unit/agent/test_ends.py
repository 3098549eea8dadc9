"""When a budget is spent, and where the end in the cloud is moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloudrec.keeper.ends import Metered, MovedEnd, is_movable, money_end, moved
from cloudrec.keeper.note import Note
from cloudrec.spec.models import ClusterSpec

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def written(hours: float) -> str:
    return f"{NOW + hours * HOUR:%Y-%m-%dT%H:%M:%SZ}"


def spec(**given: Any) -> ClusterSpec:
    return ClusterSpec.model_validate(
        {"name": "t", "provider": "aws", "owner": "me", "nodes": 2, "budget_usd": 100.0, **given}
    )


def metered(spent_usd: float, hourly_usd: float = 10.0, most_usd: float = 10.0) -> Metered:
    return Metered(at=NOW, spent_usd=spent_usd, hourly_usd=hourly_usd, most_usd=most_usd)


def kept(hours: float) -> MovedEnd:
    return MovedEnd(ordered=written(hours), expires=written(hours))


def test_the_budget_ends_when_the_rest_is_spent() -> None:
    assert money_end(spec(), metered(40.0), 10.0) == NOW + 6 * HOUR
    assert money_end(spec(), metered(100.0), 10.0) == NOW
    assert money_end(spec(), metered(120.0), 0.0) == NOW
    assert money_end(spec(), metered(40.0), 0.0) is None
    assert money_end(spec(end_limit=written(2)), metered(40.0), 10.0) == NOW + 2 * HOUR
    assert money_end(spec(end_limit=written(2)), metered(40.0), 0.0) == NOW + 2 * HOUR


def test_the_end_in_the_cloud_holds_if_all_nodes_run_again() -> None:
    # Without nodes it costs $0.3/h, and with all of them $10/h.
    assert moved(spec(), metered(40.0, hourly_usd=0.3), kept(4)) == written(6)
    assert moved(spec(), metered(40.0, hourly_usd=20.0), kept(4)) == written(3)  # dearer than expected


def test_an_end_that_has_passed_in_the_cloud_holds_until_up_renews_it() -> None:
    note = Note(cluster=spec(end_limit=written(1000), expires=written(-2)))
    left = metered(40.0)
    assert note.end(left, kept=written(-2), moves=True) == NOW - 2 * HOUR
    assert note.end(left, kept=written(3), moves=True) == NOW + 6 * HOUR  # the guard moves the cloud's


@pytest.mark.parametrize(
    ("spent_usd", "hours"),
    [
        (40.0, 6.1),  # less than 2 % of the rest
        (99.9, 0.5),  # the money is spent within a minute: the guard ends the nodes
        (40.0, 0.01),  # the cloud may have begun to end them
    ],
)
def test_an_end_stays_for_a_small_difference_and_shortly_before_it(spent_usd: float, hours: float) -> None:
    assert moved(spec(), metered(spent_usd), kept(hours)) == ""


def test_an_end_moves_no_further_than_its_limit() -> None:
    assert moved(spec(end_limit=written(5)), metered(40.0), kept(4)) == written(5)


def test_only_a_budget_whose_limit_is_known_moves_the_end() -> None:
    assert is_movable(spec())
    assert is_movable(spec(ttl="8h", end_limit=written(8)))
    assert not is_movable(spec(ttl="8h"))  # the request of an earlier version
    assert not is_movable(spec(ttl="8h", budget_usd=None))


def test_the_record_of_an_earlier_order_is_void() -> None:
    record = MovedEnd(ordered=written(4), expires=written(6))
    assert MovedEnd.of(record.to_json(), written(4)) == record
    assert MovedEnd.of(record.to_json(), written(9)) == kept(9)
    for text in ("", "{", "[]", '{"ordered": 1}', '{"expires": "soon"}', '{"other": ""}'):
        assert MovedEnd.of(text, written(9)) == kept(9)
