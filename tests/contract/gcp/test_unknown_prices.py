"""Unknown prices are shown as unknown, and a budget is refused with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.engine.plan import Plan
from cloudrec.errors import SpecError
from cloudrec.home import Home
from cloudrec.spec.models import ClusterSpec
from tests.sandbox.gcp.support import Gcp as Cloud

UNPRICED = "a3-ultragpu-8g"  # neither the table nor the stand-in's catalogue has its price


def planned(cloud: Cloud, folder: Path, **given: Any) -> Plan:
    cluster = ClusterSpec(name="t", provider="gcp", owner="tester", nodes=1, **given)
    context = AppContext(home=Home(root=folder / "home"), environment=cloud.env)
    return app.up(context, cluster, decide=lambda _plan: False)


def test_a_budget_is_refused_for_a_type_without_a_price(cloud: Cloud, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=rf"gpu-nodes \({UNPRICED}\)"):
        planned(cloud, tmp_path, instance_types=(UNPRICED,), capacity="spot", budget_usd=500.0)
    plan = planned(cloud, tmp_path, instance_types=(UNPRICED,), capacity="spot")
    assert {item.node_type for item in plan.cost.unknown} == {UNPRICED}


def test_prices_of_another_region_are_not_used_and_the_catalogue_has_those_of_this_one(
    cloud: Cloud, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"region": "europe-west4", "instance_types": ("a2-ultragpu-1g",)}
    plan = planned(cloud, tmp_path, **given)
    assert plan.cost.unknown == ()
    usd = {action.key: action.hourly_usd for action in plan.actions}
    parts = 12 * 0.031611 + 170 * 0.004237 + 3.92786 + 375 * 0.08 / 730
    disk = 200 * 0.10 / 730
    assert usd["gpu-nodes/t"] == pytest.approx(1.1 * (parts + disk), abs=0.001)
    assert usd["router/t"] == 0.044 + 0.005


@pytest.mark.parametrize(("capacity", "share"), [("on-demand", 1.0), ("spot", 0.4)])
def test_local_ssds_of_spot_machines_cost_what_the_catalogue_sells_them_for(
    cloud: Cloud, tmp_path: Path, capacity: str, share: float
) -> None:
    given: dict[str, Any] = {"region": "europe-west4", "instance_types": ("a2-highgpu-8g",)}
    plan = planned(cloud, tmp_path, capacity=capacity, **given)
    usd = {action.key: action.hourly_usd for action in plan.actions}
    parts = 96 * 0.031611 + 680 * 0.004237 + 8 * 2.933908 + 8 * 375 * 0.08 / 730
    disk = 200 * 0.10 / 730
    assert usd["gpu-nodes/t"] == pytest.approx(1.1 * (share * parts + disk), abs=0.001)
