"""A budget ends at the money: nodes that are missing cost nothing, and the end in AWS moves with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from cloudrec import app
from cloudrec.app.reach.runs import refuse_ended
from cloudrec.app.records import known_clusters
from tests.contract.aws.support_trace import HOUR, NODES, ROUND_S, Trace, traced

LONGEST = 60 * HOUR


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Trace]]:
    """Makes a cluster with a budget."""
    with traced(tmp_path, monkeypatch) as begin:
        yield begin


def check_commands(trace: Trace) -> None:
    """Commands know the moved end: the one in the journal has passed."""
    application = trace.application
    (known,) = known_clusters(application, name=trace.site.cluster.title)
    assert datetime.fromisoformat(known.cluster.expires or "") < trace.now()
    (view,) = app.clusters(application)
    assert {f"at({(view.expires or '').rstrip('Z')})"} == trace.end_in_aws()
    assert view.spent_usd == pytest.approx(trace.billed(), rel=0.05)
    assert app.expired(application, "aws") == []
    refuse_ended(application, known.cluster, application.provider("aws").access(known.cluster))
    app.up(
        application,
        app.recorded(application, known.cluster).model_copy(update={"access": "auto"}),
        decide=lambda _plan: True,
    )
    (later,) = known_clusters(application, name=trace.site.cluster.title)
    assert later.cluster.expires == view.expires
    assert later.cluster.end_limit is None


def at(trace: Trace, events: dict[float, Callable[[], None]]) -> float:
    """Make the guard's rounds and what happens at certain hours until AWS has no GPU nodes and no events."""
    waiting = sorted(events.items())
    while trace.passed < LONGEST:
        trace.advance(ROUND_S)
        while waiting and trace.passed >= waiting[0][0] * HOUR:
            waiting.pop(0)[1]()
        said = trace.round()
        assert "the cloud still ends" not in said
        if not waiting and "its nodes go" in said:
            trace.advance(60)
        if not waiting and not trace.machines():
            billed = trace.billed()
            budget = trace.site.cluster.budget_usd
            print(f"budget ${budget:g}: bill ${billed:.2f} after {trace.passed / HOUR:.2f} h")
            return billed
    raise AssertionError(f"{trace.passed / HOUR:.1f} h, ${trace.billed():.2f}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stock_out_costs_nothing_and_the_budget_lasts_longer(begun: Callable[..., Trace]) -> None:
    trace = begun(budget_usd=150.0, instance_types=["p4d.24xlarge", "p5.48xlarge"])
    before = trace.end_in_aws()
    # $44/h for two nodes; half of them are missing for an hour, then all of them until `up`.
    events = {
        1.0: lambda: trace.scale(1),
        2.0: lambda: trace.scale(0),
        5.0: lambda: check_commands(trace),
    }
    billed = at(trace, events)
    assert billed == pytest.approx(150.0, rel=0.05)
    assert trace.passed > 6.5 * HOUR  # without the stock-out it is 3.4 hours
    assert trace.end_in_aws().isdisjoint(before)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_budget_follows_the_spot_price(begun: Callable[..., Trace]) -> None:
    trace = begun(budget_usd=60.0, capacity="spot", managed=False, instance_types=["p4d.24xlarge"])
    refusal = {"kind": "error", "status": 403, "code": "UnauthorizedOperation", "message": "not yours"}
    trace.aws.control(faults=[{**refusal, "action": "DescribeSpotPriceHistory", "times": 1000}])
    said = trace.round()
    assert "the spot prices are those of before" in said
    assert "has cost" in said  # the rest of the round is made
    trace.advance(ROUND_S)
    trace.aws.control(faults=[{**refusal, "action": "DescribeSpotPriceHistory", "times": 1}])
    assert "the spot prices" not in trace.round()  # it is not asked again in each round
    trace.aws.control(faults=[])
    # $17.6/h for two nodes, then twice as much, then a third of that.
    events = {
        1.0: lambda: trace.price(0.8),
        1.5: lambda: trace.scale(0),
        3.0: lambda: trace.scale(NODES),
        3.2: lambda: trace.price(0.25),
    }
    billed = at(trace, events)
    assert billed == pytest.approx(60.0, rel=0.05)
    assert trace.passed > 4 * HOUR


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_guard_that_stopped_is_an_alarm_in_status(begun: Callable[..., Trace]) -> None:
    trace = begun(budget_usd=150.0, instance_types=["p4d.24xlarge"])
    trace.advance(ROUND_S)
    trace.round()
    (view,) = app.clusters(trace.application)
    assert view.alarm == ""
    trace.advance(900)  # without a round
    (view,) = app.clusters(trace.application)
    assert "its guard has not reported for 15 minutes" in view.alarm
    trace.round()
    (view,) = app.clusters(trace.application)
    assert view.alarm == ""
