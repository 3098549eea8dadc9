"""A budget ends at the money: nodes that are missing cost nothing, and the end in Azure moves with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app.reach.runs import refuse_ended
from cloudrec.app.records import known_clusters
from tests.conformance.support_clouds import stand_in
from tests.contract.azure.support import fresh
from tests.contract.azure.support_budget import HOUR, NODES, ROUND_S, Trace, at, begun, plan_changes
from tests.sandbox.azure.support import Azure

SMALL, LARGE = "Standard_NC16as_T4_v3", "Standard_NC64as_T4_v3"


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Trace]]:
    """Makes a cluster with a budget; its time is virtual from its creation on."""
    with stand_in("kubernetes") as server, stand_in("azure") as cloud, ExitStack() as stack:
        monkeypatch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
        for variable, value in cloud.env.items():  # for the kubeconfig's token command
            monkeypatch.setenv(variable, value)
        azure = Azure(cloud.env)
        stack.callback(azure.close)
        fresh(azure)
        server.control(speed=1)
        azure.control(kubernetes=server._announcement, speed=1, real_times=False, durations={"*": 0.2})
        azure.control(rates={"*": [1e6, 1e6]})  # time passes by order, and none while a client waits
        azure.env.pop("CLOUDREC_CLUSTER_ADDONS", None)
        yield lambda **cluster: stack.enter_context(begun(azure, server, tmp_path, **cluster))


def check_commands(trace: Trace) -> None:
    """Commands know the moved end: the one in the journal has passed."""
    application = trace.application
    (known,) = known_clusters(application, name=trace.site.cluster.title)
    assert datetime.fromisoformat(known.cluster.expires or "") < trace.now()
    (view,) = app.clusters(application)
    assert view.expires == trace.end_in_azure()
    assert view.spent_usd == pytest.approx(trace.billed(), rel=0.05)
    assert app.expired(application, "azure") == []
    refuse_ended(application, known.cluster, application.provider("azure").access(known.cluster))
    again = app.recorded(application, known.cluster).model_copy(update={"access": "auto"})
    assert plan_changes(application, again) == ["gpu-nodes/t"]  # whose nodes are missing
    app.up(application, again, decide=lambda _plan: True)
    (later,) = known_clusters(application, name=trace.site.cluster.title)
    assert later.cluster.expires == trace.end_in_azure()
    assert later.cluster.end_limit is None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_stock_out_costs_nothing_and_the_budget_lasts_longer(begin: Callable[..., Trace]) -> None:
    trace = begin(budget_usd=30.0, instance_types=[LARGE, SMALL])
    before = trace.end_in_azure()
    # $9/h for two nodes; half of them are missing for an hour, then all of them until `up`.
    events: dict[float, Callable[[], Any]] = {
        1.0: lambda: trace.scale(1),
        2.0: lambda: trace.scale(0),
        5.0: lambda: check_commands(trace),
    }
    billed = at(trace, events)
    assert billed == pytest.approx(30.0, rel=0.05)
    assert trace.passed > 6.0 * HOUR  # without the stock-out it is 3.2 hours
    assert trace.end_in_azure() > before


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_budget_follows_the_spot_price(begin: Callable[..., Trace]) -> None:
    trace = begin(budget_usd=12.0, capacity="spot", managed=False, instance_types=[LARGE])
    # $1.7/h for two nodes, then twice as much, then none, then a little more than at first.
    events: dict[float, Callable[[], Any]] = {
        1.0: lambda: trace.price(0.4),
        1.5: lambda: trace.scale(0),
        3.0: lambda: trace.scale(NODES),
        3.2: lambda: trace.price(0.25),
    }
    billed = at(trace, events)
    assert billed == pytest.approx(12.0, rel=0.05)
    assert trace.passed > 4 * HOUR


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_azure_ends_the_nodes_of_a_guard_that_died_before_the_money_is_spent(
    begin: Callable[..., Trace],
) -> None:
    trace = begin(budget_usd=30.0, instance_types=[LARGE])
    trace.scale(0)
    while trace.passed < 2 * HOUR:
        trace.advance(ROUND_S)
        trace.round()
    moved = datetime.fromisoformat(trace.end_in_azure())
    trace.scale(NODES)  # and the guard makes no more rounds
    while trace.nodes():
        assert trace.now() < moved.astimezone() or (trace.now() - moved).total_seconds() < 2 * ROUND_S
        trace.advance(ROUND_S / 2)
    billed = trace.billed()
    print(f"budget $30: bill ${billed:.2f} after {trace.passed / HOUR:.2f} h, without a guard from 2 h on")
    assert billed == pytest.approx(30.0, rel=0.05)
