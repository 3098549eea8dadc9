"""Machines that the cloud has taken back: `status`, `up` and `doctor` see them, whatever the pool says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec.app.reach.machines import lacks_machines
from cloudrec.engine.graph import cost_of
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import NoCapacityError
from tests.contract.gcp.support import Site, whole
from tests.contract.gcp.test_partial_groups import OPEN, TYPE, ZONES, machines
from tests.sandbox.gcp.support import Gcp as Cloud

GAP = 3600


def trace(*data: int, **more: Any) -> dict[str, Any]:
    place = {"zone": ZONES[0], "instance_type": TYPE, "capacity": "spot", "gap_seconds": GAP}
    return {**place, "data": list(data), "notice_s": 0, **more}


def spot(cloud: Cloud, folder: Path, *zones: str) -> Site:
    """A cluster with two spot nodes that run."""
    site = whole(cloud, folder, zones=zones, nodes=2, capacity="spot", settings=OPEN)
    site.up()
    assert machines(site) == [zones[0]] * 2
    return site


def lost(cloud: Cloud, *data: int, **more: Any) -> None:
    cloud.control(capacity_trace=[trace(*data, **more)])
    cloud.control(advance_s=400)


def lacks(site: Site) -> str:
    """What `status` and `doctor` say of the cluster's nodes; empty if all run."""
    found = lacks_machines(site.cluster, list(site.graph().resources.values()), site.search())
    return "; ".join(each.reason for each in found)


def pool_in(site: Site) -> str:
    """The zone of the cluster's pool of GPU nodes."""
    (pool,) = (seen for key, seen in site.found().items() if key.startswith("gpu-nodes/"))
    return str(pool.properties["zone"])


def test_an_empty_pool_is_not_ready_and_its_nodes_cost_nothing(cloud: Cloud, tmp_path: Path) -> None:
    site = spot(cloud, tmp_path, ZONES[0])
    before = cost_of(site.search())
    assert lacks(site) == ""
    lost(cloud, 0)
    assert machines(site) == []
    assert "0 of 2 nodes run" in lacks(site)
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in lacks(site)
    assert cost_of(site.search()).known_usd < before.known_usd / 5
    (action,) = site.planned().values()
    assert action.step is PlanStep.CHANGE
    assert "0 of 2 nodes run, and it tries again by itself" in action.reason


def test_a_pool_without_capacity_waits_if_nothing_else_can_be_had(cloud: Cloud, tmp_path: Path) -> None:
    site = spot(cloud, tmp_path, ZONES[0])
    lost(cloud, 0)
    with pytest.raises(NoCapacityError) as caught:
        site.up()
    assert caught.value.exit_code == 4
    assert pool_in(site) == ZONES[0]
    cloud.control(capacity_trace=[trace(1)])
    cloud.control(advance_s=GAP)
    assert machines(site) == [ZONES[0]] * 2
    assert lacks(site) == ""


def test_up_moves_a_pool_without_machines_to_a_zone_that_has_some(cloud: Cloud, tmp_path: Path) -> None:
    site = spot(cloud, tmp_path, *ZONES)
    lost(cloud, 0)
    site.up()
    assert machines(site) == [ZONES[1]] * 2
    assert pool_in(site) == ZONES[1]


def test_up_keeps_the_node_that_is_left_and_the_pool_waits_for_the_other(
    cloud: Cloud, tmp_path: Path
) -> None:
    site = spot(cloud, tmp_path, *ZONES)
    lost(cloud, 1, counts=True)
    assert machines(site) == [ZONES[0]]
    with pytest.raises(NoCapacityError, match="waits for the others") as caught:
        site.up()
    assert caught.value.exit_code == 4
    assert machines(site) == [ZONES[0]]
    cloud.control(capacity_trace=[trace(2, counts=True)])
    cloud.control(advance_s=GAP)
    assert machines(site) == [ZONES[0]] * 2
