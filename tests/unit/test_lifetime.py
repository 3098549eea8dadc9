"""When a cluster ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloudrec.app.lifetime import Past, is_over, price_of, tagged_end, with_end
from cloudrec.engine.graph import TAG_EXPIRES, Condition, Observed, Resource
from cloudrec.spec.models import ClusterSpec

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def spec(**given: Any) -> ClusterSpec:
    return ClusterSpec(name="c", **given)


def end(cluster: ClusterSpec, *, past: Past | None = None, tagged: str = "", hourly_usd: float = 10.0) -> str:
    found = with_end(cluster, hourly_usd=hourly_usd, past=past, tagged=tagged, now=NOW).expires
    return found or ""


def moment(hours: float) -> str:
    return f"{NOW + hours * HOUR:%Y-%m-%dT%H:%M:%SZ}"


def test_the_sooner_of_ttl_and_budget_ends_a_cluster_and_without_either_nothing_does() -> None:
    assert end(spec()) == ""
    assert end(spec(ttl="8h")) == moment(8)
    assert end(spec(budget_usd=30.0)) == moment(3)
    assert end(spec(ttl="90m", budget_usd=30.0)) == moment(1.5)
    assert end(spec(ttl="1d", budget_usd=30.0)) == moment(3)
    assert end(spec(budget_usd=30.0), hourly_usd=0.0) == ""  # what costs nothing spends nothing


def test_an_end_stays_however_often_up_is_run_until_another_is_asked_for() -> None:
    past = Past(cluster=spec(ttl="8h", expires=moment(2)), hourly_usd=10.0)
    assert end(spec(ttl="8h"), past=past) == moment(2)
    assert end(spec(), past=past) == moment(2)  # a cap does not vanish because nobody said it again
    assert end(spec(ttl="5h"), past=past) == moment(5)
    assert end(spec(), tagged=moment(2)) == moment(2)  # the journal is lost


def test_what_is_left_of_a_budget_is_spent_faster_by_a_dearer_cluster() -> None:
    past = Past(cluster=spec(budget_usd=100.0, expires=moment(4)), hourly_usd=10.0)
    assert end(spec(), past=past, hourly_usd=20.0) == moment(2)
    assert end(spec(), past=past, hourly_usd=5.0) == moment(4)


def test_a_later_ttl_does_not_lift_a_budget() -> None:
    past = Past(cluster=spec(budget_usd=20.0, expires=moment(1)), hourly_usd=10.0)
    asked = with_end(spec(ttl="2d"), hourly_usd=10.0, past=past, tagged="", now=NOW)
    assert asked.budget_usd == 20.0
    assert asked.expires == moment(2)


def test_the_control_planes_tag_tells_the_end_and_without_it_the_latest() -> None:
    def thing(kind: str, hours: float) -> Observed:
        tags = {TAG_EXPIRES: moment(hours)}
        return Observed(kind=kind, name=kind, identity=kind, condition=Condition.READY, tags=tags)

    things = [thing("vpc", 9), thing("role", 1)]
    assert tagged_end([*things, thing("cluster", 3)], "cluster") == moment(3)
    assert tagged_end(things, "cluster") == moment(9)
    assert tagged_end([], "cluster") == ""


@pytest.mark.parametrize(
    ("when", "over"), [("", False), (None, False), ("soon", False), ("2026-11-21", False), (moment(1), False)]
)
def test_an_end_that_cannot_be_read_or_has_not_come_ends_nothing(when: str | None, *, over: bool) -> None:
    assert is_over(when, NOW) is over
    assert is_over(moment(-1), NOW)


def test_a_choice_costs_at_most_its_dearest_candidate() -> None:
    cheap, dear = (Resource(kind="gpu", name=str(usd), hourly_usd=usd) for usd in (3.0, 7.0))
    choice = Resource(kind="gpu", name="any", candidates=(cheap, dear))
    assert price_of([choice, Resource(kind="nat", name="n", hourly_usd=0.5)]) == 7.5
