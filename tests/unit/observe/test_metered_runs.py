"""The cost of a run, as the meter of its cluster has it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudrec.app import AppContext
from cloudrec.app.money.kept import ClusterCost, metered_runs
from cloudrec.home import Home
from cloudrec.keeper.meter import CostLedger, CostRow
from cloudrec.launchers.base.ledger import RunState
from cloudrec.observe.runs import RunView

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
AT = NOW.timestamp()


@pytest.fixture
def application(tmp_path: Path) -> AppContext:
    return AppContext(home=Home(root=tmp_path), environment={}, now=lambda: NOW)


def row(run: str, usd: float | None, day: str = "2026-11-24") -> CostRow:
    return CostRow(day=day, pool="gpu", instance_type="p4d", capacity="spot", run=run, node_s=3600.0, usd=usd)


def keep(application: AppContext, *rows: CostRow, at: float = AT, cluster: str = "c") -> None:
    """Write what was read of a cluster's meter."""
    ledger = CostLedger(since=0.0, at=at, seen={}, rows=rows)
    cost = ClusterCost(cluster=cluster, provider="aws", owner="me", created=1.0, ledger=None)
    folder = application.home.root / "costs"
    folder.mkdir(parents=True, exist_ok=True)
    document = {**asdict(cost), "ledger": json.loads(ledger.to_json())}
    (folder / f"{cluster}-1.json").write_text(json.dumps(document))


def view(name: str = "a", *, ended: float | None = None, cluster: str = "c") -> RunView:
    state = RunState.RUNNING if ended is None else RunState.SUCCEEDED
    return RunView(name=name, state=state, cluster=cluster, cost_usd=99.0, ended=ended)


def cost_of(application: AppContext, run: RunView) -> float | None:
    return metered_runs(application, [run])[0].cost_usd


def test_a_run_costs_what_its_nodes_were_metered_at(application: AppContext) -> None:
    keep(application, row("a", 3.0), row("a", 4.0, "2026-11-23"), row("b", 50.0), row("", 7.0))
    assert cost_of(application, view()) == 7.0
    assert cost_of(application, view("b")) == 50.0


def test_a_cost_with_an_unknown_price_is_unknown(application: AppContext) -> None:
    keep(application, row("a", 3.0), row("a", None, "2026-11-23"))
    assert cost_of(application, view()) is None


def test_a_reading_from_before_the_end_of_a_run_is_not_its_cost(application: AppContext) -> None:
    keep(application, row("a", 3.0), at=AT - 3600.0)
    assert cost_of(application, view()) == 99.0  # it runs: the meter was read an hour ago
    assert cost_of(application, view(ended=AT - 60.0)) == 99.0
    assert cost_of(application, view(ended=AT - 3500.0)) == 3.0


def test_a_run_that_was_not_metered_keeps_its_cost(application: AppContext) -> None:
    assert cost_of(application, view()) == 99.0
    keep(application, row("a", 3.0))
    assert cost_of(application, view("other")) == 99.0
    assert cost_of(application, view(cluster="other")) == 99.0


def test_a_run_that_has_moved_costs_what_its_nodes_did_in_each_cluster(application: AppContext) -> None:
    keep(application, row("a", 3.0))
    keep(application, row("a", 4.0), row("b", 50.0), at=AT - 3600.0, cluster="east")
    keep(application, row("a", 9.0), cluster="other")
    assert cost_of(application, replace(view(), elsewhere=("east",))) == 7.0
