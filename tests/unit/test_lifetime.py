"""The expiry of a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloudrec.app.money.lifetime import (
    Past,
    check_end,
    check_rate,
    is_over,
    price_of,
    settled_end,
    tagged_end,
    with_end,
)
from cloudrec.engine.cost import Cost, Item
from cloudrec.engine.graph import TAG_EXPIRES, Condition, Observed, Resource
from cloudrec.errors import SpecError, UsageError
from cloudrec.spec.models import ClusterSpec

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TEN = Cost(known_usd=10.0)  # an hour
UNKNOWN = Cost(known_usd=0.5, unknown=(Item(name="gpu-nodes", node_type="g5.12xlarge"),))


def spec(**given: Any) -> ClusterSpec:
    return ClusterSpec(name="c", **given)


def end(cluster: ClusterSpec, *, past: Past | None = None, tagged: str = "", cost: Cost = TEN) -> str:
    found = with_end(cluster, cost=cost, past=past, tagged=tagged, now=NOW).expires
    return found or ""


def moment(hours: float) -> str:
    return f"{NOW + hours * HOUR:%Y-%m-%dT%H:%M:%SZ}"


def test_a_cluster_expires_at_the_earlier_of_ttl_and_budget_if_either_is_set() -> None:
    assert end(spec()) == ""
    assert end(spec(ttl="8h")) == moment(8)
    assert end(spec(budget_usd=30.0)) == moment(3)
    assert end(spec(ttl="90m", budget_usd=30.0)) == moment(1.5)
    assert end(spec(ttl="1d", budget_usd=30.0)) == moment(3)
    assert end(spec(budget_usd=30.0), cost=Cost()) == ""  # free resources spend nothing


def test_an_expiry_is_kept_by_up_until_another_is_requested() -> None:
    past = Past(cluster=spec(ttl="8h", expires=moment(2)), cost=TEN)
    assert end(spec(ttl="8h"), past=past) == moment(2)
    assert end(spec(), past=past) == moment(2)  # a budget is kept if it is not given again
    assert end(spec(ttl="5h"), past=past) == moment(5)
    assert end(spec(), tagged=moment(2)) == moment(2)  # the journal is lost


@pytest.mark.parametrize("asked", [{"ttl": "8h"}, {"ttl": "5h"}, {"budget_usd": 80.0}])
def test_a_past_expiry_is_renewed_by_a_ttl_or_a_budget_even_if_unchanged(
    asked: dict[str, Any],
) -> None:
    hours = 5 if asked == {"ttl": "5h"} else 8
    assert end(spec(**asked), past=Past(cluster=spec(ttl="8h", expires=moment(-1)), cost=TEN)) == moment(
        hours
    )
    assert end(spec(**asked), tagged=moment(-1)) == moment(hours)  # the journal is lost


def test_a_past_expiry_is_never_kept() -> None:
    past = Past(cluster=spec(ttl="8h", expires=moment(-1)), cost=TEN)
    for given in ({"past": past}, {"tagged": moment(-1)}):
        with pytest.raises(UsageError, match=f"ended at {moment(-1)}") as caught:
            end(spec(), **given)
        assert "--ttl" in (caught.value.remedy or "")
    explicit = spec(expires=moment(3))
    assert end(explicit, past=past) == moment(3)


def test_a_costlier_cluster_spends_the_remaining_budget_faster() -> None:
    past = Past(cluster=spec(budget_usd=100.0, expires=moment(4)), cost=TEN)
    assert end(spec(), past=past, cost=Cost(known_usd=20.0)) == moment(2)
    assert end(spec(), past=past, cost=Cost(known_usd=5.0)) == moment(4)


def test_a_budget_with_an_unknown_price_is_refused_with_a_remedy() -> None:
    with pytest.raises(
        SpecError, match=r"budget_usd is 30; .* not known: gpu-nodes \(g5.12xlarge\)"
    ) as caught:
        end(spec(provider="aws", region="us-east-1", budget_usd=30.0), cost=UNKNOWN)
    assert caught.value.remedy == "use --ttl instead of --budget, or leave g5.12xlarge out"
    nat = Cost(unknown=(*UNKNOWN.unknown, Item(name="nat-gateway/c")))
    with pytest.raises(SpecError, match="nat-gateway/c") as caught:
        end(spec(budget_usd=30.0), cost=nat)
    assert caught.value.remedy == "use --ttl instead of --budget"


def test_a_budget_with_an_unknown_price_is_refused_even_with_a_ttl() -> None:
    with pytest.raises(SpecError, match="budget needs all prices"):
        end(spec(budget_usd=30.0, expires=moment(8)), cost=UNKNOWN)


def test_a_kept_budget_is_refused_if_prices_become_unknown() -> None:
    past = Past(cluster=spec(budget_usd=20.0, expires=moment(2)), cost=TEN)
    with pytest.raises(SpecError, match="budget_usd is 20"):
        end(spec(), past=past, cost=UNKNOWN)
    with pytest.raises(SpecError, match="budget_usd is 20"):
        end(spec(ttl="8h"), past=past, cost=UNKNOWN)


def test_a_cluster_of_an_older_version_with_an_unpriced_budget_keeps_its_expiry() -> None:
    past = Past(cluster=spec(budget_usd=20.0, expires=moment(2)), cost=UNKNOWN)
    assert end(spec(), past=past, cost=UNKNOWN) == moment(2)


def test_a_ttl_needs_no_prices() -> None:
    assert end(spec(ttl="8h"), cost=UNKNOWN) == moment(8)


def test_a_later_ttl_does_not_lift_a_budget() -> None:
    past = Past(cluster=spec(budget_usd=20.0, expires=moment(1)), cost=TEN)
    asked = with_end(spec(ttl="2d"), cost=TEN, past=past, tagged="", now=NOW)
    assert asked.budget_usd == 20.0
    assert asked.expires == moment(2)


def test_the_expiry_is_the_tag_of_the_end_schedule_or_the_control_plane_or_else_the_latest_tag() -> None:
    def thing(kind: str, hours: float) -> Observed:
        tags = {TAG_EXPIRES: moment(hours)}
        return Observed(
            kind=kind, name=kind, identity=kind, condition=Condition.READY, tags=tags, hourly_usd=0.0
        )

    things = [thing("vpc", 9), thing("role", 1)]
    assert tagged_end([*things, thing("cluster", 3)], "cluster") == moment(3)
    assert tagged_end([*things, thing("cluster", 3), thing("end-schedule", 5)], "cluster") == moment(5)
    assert tagged_end(things, "cluster") == moment(9)
    assert tagged_end([], "cluster") == ""


@pytest.mark.parametrize(
    ("when", "over"), [("", False), (None, False), ("soon", False), ("2026-11-21", False), (moment(1), False)]
)
def test_an_unreadable_or_future_expiry_ends_nothing(when: str | None, *, over: bool) -> None:
    assert is_over(when, NOW) is over
    assert is_over(moment(-1), NOW)


def test_the_maximum_cost_of_a_choice_is_its_costliest_candidate() -> None:
    cheap, dear = (Resource(kind="gpu", name=str(usd), hourly_usd=usd) for usd in (3.0, 7.0))
    choice = Resource(kind="gpu", name="any", candidates=(cheap, dear), hourly_usd=0.0)
    assert price_of([choice, Resource(kind="nat", name="n", hourly_usd=0.5)]).usd == 7.5


def test_a_choice_with_an_unpriced_candidate_has_an_unknown_maximum_cost() -> None:
    known = Resource(kind="gpu", name="a", hourly_usd=3.0, node_type="g5.xlarge")
    unknown = Resource(kind="gpu", name="b", hourly_usd=None, node_type="g5.12xlarge")
    choice = Resource(kind="gpu", name="any", candidates=(known, unknown), hourly_usd=3.0)
    most = price_of([choice])
    assert (most.usd, most.known_usd) == (None, 3.0)
    assert most.text == "$3.00/h + unknown: gpu (g5.12xlarge)"


@pytest.mark.parametrize("hours", [-1.0, 0.0, 4.9 / 60, 366 * 24])
def test_a_past_too_near_or_too_distant_expiry_is_refused(hours: float) -> None:
    with pytest.raises(
        SpecError, match=r"cluster.expires is .*; it must be between 2026-11-21T12:05:00Z .* and 2027-"
    ):
        check_end(spec(expires=moment(hours)), NOW)


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_the_minimum_and_maximum_datetime_are_refused_without_overflow(when: str) -> None:
    with pytest.raises(SpecError, match="it must be between"):
        check_end(spec(expires=when), NOW)


def test_an_expiry_within_the_bounds_is_accepted() -> None:
    for hours in (5.1 / 60, 364 * 24):
        check_end(spec(expires=moment(hours)), NOW)
    check_end(spec(), NOW)


def test_a_large_budget_for_a_cheap_cluster_has_a_representable_expiry() -> None:
    assert end(spec(budget_usd=1e7), cost=Cost(known_usd=0.001)).startswith("2126-")


def settled(cluster: ClusterSpec, rate: Cost, *, spent_usd: float = 0.0, ttl: float | None = None) -> str:
    limit = {"end_limit": moment(ttl)} if ttl is not None else {}
    found = settled_end(cluster.model_copy(update=limit), rate=rate, spent_usd=spent_usd, now=NOW)
    return found.expires or ""


def test_the_end_of_a_budget_settles_at_the_price_of_the_nodes_that_were_made() -> None:
    cluster = spec(budget_usd=30.0, expires=moment(3))  # at $10/h, the most expensive candidate
    assert settled(cluster, Cost(known_usd=4.0)) == moment(7.5)
    assert settled(cluster, Cost(known_usd=4.0), spent_usd=10.0) == moment(5)
    assert settled(cluster, Cost(known_usd=4.0), ttl=6) == moment(6)
    assert settled(cluster, Cost(known_usd=15.0)) == moment(2)


def test_an_end_stays_where_nothing_better_is_known() -> None:
    cluster = spec(budget_usd=30.0, expires=moment(3))
    assert settled(cluster, Cost(known_usd=10.1)) == moment(3)  # the meter is no more exact
    assert settled(cluster, UNKNOWN) == moment(3)
    assert settled(cluster, Cost()) == moment(3)
    assert settled(cluster, TEN, spent_usd=30.0) == moment(3)  # the guard ends it
    assert settled(spec(ttl="3h", expires=moment(3)), Cost(known_usd=1.0)) == moment(3)
    assert settled(spec(budget_usd=30.0), Cost(known_usd=1.0)) == ""


def test_a_limit_of_the_hourly_cost_refuses_more_and_unknown_prices() -> None:
    check_rate(spec(), UNKNOWN)
    check_rate(spec(max_hourly_usd=10.0), TEN)
    with pytest.raises(SpecError, match=r"can cost \$10.00/h.*max_hourly_usd is 9.5"):
        check_rate(spec(max_hourly_usd=9.5), TEN)
    with pytest.raises(SpecError, match="not known: gpu-nodes"):
        check_rate(spec(max_hourly_usd=10.0), UNKNOWN)
