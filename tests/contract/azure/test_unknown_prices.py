"""Unknown prices are shown as unknown, and a budget is refused with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.errors import SpecError
from cloudrec.process.ports import free_port
from cloudrec.spec.models import ClusterSpec
from tests.contract.azure.support import Site
from tests.sandbox.azure.support import Azure

REGION, UNPRICED = "southcentralus", "Standard_ND96isr_H200_v5"


def asked(
    azure: Azure, folder: Path, *, listed: bool = False, **cluster: Any
) -> tuple[AppContext, ClusterSpec]:
    """A command's context, in which the price list can be reached only if `listed`, and its spec."""
    closed = {"AZURE_RETAIL_PRICES_URL": f"https://127.0.0.1:{free_port()}/api/retail/prices"}
    site = Site(azure, folder, **cluster)
    environment = {**azure.env, **({} if listed else closed)}
    return replace(site.application, environment=environment), site.cluster


def test_a_budget_is_refused_for_a_size_without_a_price(azure: Azure, tmp_path: Path) -> None:
    azure.control(quotas={"standardNDISRH200V5Family": 1000})
    before = azure.state()
    given: dict[str, Any] = {"region": REGION, "instance_types": (UNPRICED,)}
    context, cluster = asked(azure, tmp_path, budget_usd=500.0, **given)
    with pytest.raises(SpecError, match=rf"gpu-nodes \({UNPRICED}\)"):
        app.up(context, cluster, decide=lambda _plan: True)
    assert azure.state() == before
    context, cluster = asked(azure, tmp_path, **given)
    plan = app.up(context, cluster, decide=lambda _plan: False)
    assert UNPRICED in {item.node_type for item in plan.cost.unknown}


def test_prices_of_another_region_are_not_used_and_the_price_list_has_those_of_this_one(
    azure: Azure, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"region": "westeurope", "instance_types": ("Standard_NC4as_T4_v3",)}
    context, cluster = asked(azure, tmp_path, **given)
    plan = app.up(context, cluster, decide=lambda _plan: True)
    unknown = {str(item) for item in plan.cost.unknown}
    assert {"nat-gateway/t", "public-ip/t"} <= unknown
    (shown,) = app.clusters(context)
    assert len(shown.cost.unknown) == len(unknown)
    context, cluster = asked(azure, tmp_path, listed=True, **given)
    plan = app.up(context, cluster, decide=lambda _plan: False)
    assert plan.cost.unknown == ()
    usd = {action.key: action.hourly_usd for action in plan.actions}
    assert usd["nat-gateway/t"] == pytest.approx(0.045 * 1.08)
