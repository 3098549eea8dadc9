"""Spot machines that Azure has evicted: `status`, `up` and `doctor` see them, and `up` brings them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import NoCapacityError
from tests.contract.azure.support import Site
from tests.contract.azure.test_partial_groups import ND, ZONES, machines
from tests.sandbox.azure.support import Azure

GAP = 3600


def trace(*data: int, **more: Any) -> dict[str, Any]:
    place = {"zone": "eastus-1", "instance_type": ND, "capacity": "spot", "gap_seconds": GAP}
    return {**place, "data": list(data), "notice_s": 0, **more}


def spot(azure: Azure, folder: Path, *zones: str) -> Site:
    """A cluster with two spot nodes that run."""
    site = Site(azure, folder, zones=zones, nodes=2, capacity="spot", instance_types=(ND,))
    site.up()
    assert machines(site) == [zones[0]] * 2
    return site


@pytest.mark.parametrize("shown_s", [0, 10 * GAP])
def test_up_brings_evicted_nodes_back_whatever_count_aks_shows(
    azure: Azure, tmp_path: Path, shown_s: float
) -> None:
    site = spot(azure, tmp_path, "1")
    (before,) = app.clusters(site.application)
    assert before.state == "READY"
    azure.control(durations={"aks-pool-count": shown_s}, capacity_trace=[trace(0)])
    azure.control(advance_s=600)
    azure.control(capacity_trace=[trace(1)])
    azure.control(advance_s=GAP)
    assert machines(site) == []
    (view,) = app.clusters(site.application)
    (lack,) = view.missing
    assert view.state == "NOT READY"
    assert "0 of 2 nodes run" in lack.reason
    assert "no evicted spot node back" in lack.reason
    assert view.cost.known_usd < before.cost.known_usd / 2
    (action,) = (each for key, each in site.planned().items() if key.startswith("gpu-nodes/"))
    assert action.step is PlanStep.CHANGE
    assert "no evicted spot node back" in action.reason
    site.up()
    assert machines(site) == ["1"] * 2
    assert site.planned() == {}
    (view,) = app.clusters(site.application)
    assert view.state == "READY"


def test_up_moves_a_pool_without_machines_to_a_zone_that_has_some(azure: Azure, tmp_path: Path) -> None:
    site = spot(azure, tmp_path, *ZONES)
    azure.control(capacity_trace=[trace(0)])
    azure.control(advance_s=600)
    site.up()
    assert machines(site) == [ZONES[1]] * 2
    site.down()
    assert azure.state() == []


@pytest.mark.parametrize("shown_s", [0, 10 * GAP])
def test_up_keeps_the_node_that_is_left(azure: Azure, tmp_path: Path, shown_s: float) -> None:
    site = spot(azure, tmp_path, *ZONES)
    azure.control(durations={"aks-pool-count": shown_s}, capacity_trace=[trace(1, counts=True)])
    azure.control(advance_s=600)
    assert machines(site) == [ZONES[0]]
    for _ in range(2):
        with pytest.raises(NoCapacityError, match="keeps the nodes that it has") as caught:
            site.up()
        assert caught.value.exit_code == 4
        assert machines(site) == [ZONES[0]]
    azure.control(capacity_trace=[trace(2, counts=True)])
    site.up()
    assert machines(site) == [ZONES[0]] * 2
