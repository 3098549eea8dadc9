"""Capacity over time: evicted spot machines, which nothing brings back but a new count."""

from __future__ import annotations

from typing import Any

import pytest

from cloudrec_sandbox.core.client import RefusedError
from tests.sandbox.azure.support import GROUP, LOCATION, Azure, refused
from tests.sandbox.azure.support_aks import (
    NAME,
    QUOTAS,
    T4,
    begin_pool,
    get_pool,
    make_cluster,
    make_pool,
)

SPOT: dict[str, Any] = {"scaleSetPriority": "Spot", "scaleSetEvictionPolicy": "Delete", "spotMaxPrice": -1}
GAP = 3600


def trace(*data: int, **more: Any) -> dict[str, Any]:
    place = {"zone": "eastus-1", "instance_type": T4, "capacity": "spot"}
    return {**place, "gap_seconds": GAP, "data": list(data), **more}


@pytest.fixture
def spot(azure: Azure) -> Azure:
    """A pool of two spot nodes in zone 1."""
    azure.control(quotas=QUOTAS, rates={"*": [10000, 1000]})
    azure.group()
    make_cluster(azure)
    make_pool(azure, count=2, availabilityZones=["1"], **SPOT)
    assert len(nodes(azure)) == 2
    return azure


def nodes(azure: Azure) -> list[str]:
    return [each.name for each in azure.client("containerservice").machines.list(GROUP, NAME, "gpu")]


def size(azure: Azure) -> tuple[int, int]:
    """The machines of the pool's scale set, and the count that the pool shows."""
    sets = azure.client("compute").virtual_machine_scale_sets.list_all()
    (capacity,) = [each.sku.capacity for each in sets if "-gpu-" in each.name]
    return capacity, get_pool(azure).properties.count


def test_evicted_machines_stay_away_and_the_pool_shrinks(spot: Azure) -> None:
    before = nodes(spot)
    spot.control(capacity_trace=[trace(1, 0, 1)])
    spot.advance(GAP + 20)
    assert nodes(spot) == before  # their notice
    spot.advance(15)
    assert (nodes(spot), size(spot)) == ([], (0, 2))  # the pool does not know yet
    spot.advance(120)
    assert size(spot) == (0, 0)
    assert get_pool(spot).properties.provisioning_state == "Succeeded"
    poller = begin_pool(spot, count=2, availabilityZones=["1"], **SPOT)
    spot.advance(900)
    with refused("ZonalAllocationFailed"):
        poller.result(30)
    assert size(spot) == (0, 0)
    spot.advance(5 * GAP)
    assert size(spot) == (0, 0)  # there is capacity, and nothing asks for it
    make_pool(spot, count=2, availabilityZones=["1"], **SPOT)
    assert size(spot) == (2, 2)
    assert len(nodes(spot)) == 2
    assert not set(nodes(spot)) & set(before)


def test_changes_within_one_jump_of_the_clock_happen_in_order(spot: Azure) -> None:
    spot.control(capacity_trace=[trace(2, 1, 0, 5, counts=True)])
    spot.advance(10 * GAP)
    assert (nodes(spot), size(spot)) == ([], (0, 0))
    spot.control(capacity_trace=[trace(1, counts=True)])
    poller = begin_pool(spot, count=2, availabilityZones=["1"], **SPOT)
    spot.advance(900)
    with refused("ZonalAllocationFailed"):
        poller.result(30)
    assert (len(nodes(spot)), size(spot)) == (1, (1, 1))


def test_on_demand_machines_stay_and_no_new_one_can_be_had(azure: Azure) -> None:
    azure.control(quotas=QUOTAS, rates={"*": [10000, 1000]})
    azure.group()
    make_cluster(azure)
    make_pool(azure, count=1, availabilityZones=["1"])
    azure.control(capacity_trace=[{**trace(0), "capacity": "on-demand"}])
    azure.advance(GAP)
    assert len(nodes(azure)) == 1
    sets = azure.client("compute").virtual_machine_scale_sets
    wish = {"location": LOCATION, "zones": ["1"], "sku": {"name": T4, "capacity": 1}}
    profile: dict[str, Any] = {"properties": {"virtualMachineProfile": {}}}
    with refused("ZonalAllocationFailed"):
        sets.begin_create_or_update(GROUP, "own", {**wish, **profile})
    azure.control(capacity_trace=[])
    sets.begin_create_or_update(GROUP, "own", {**wish, **profile})


def test_what_is_no_place_is_refused(azure: Azure) -> None:
    for wish in (
        {**trace(1), "zone": "moon-1"},
        {**trace(1), "zone": "eastus-9"},
        {**trace(1), "capacity": "x"},
    ):
        with pytest.raises(RefusedError, match="of what is offered"):
            azure.control(capacity_trace=[wish])
