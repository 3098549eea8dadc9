"""No part of a gang is paid for: a pool that gets only some of its nodes ends, and the next is tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudrec.errors import NoCapacityError
from tests.contract.azure.support import Site
from tests.sandbox.azure.support import Azure

ND, ZONES = "Standard_ND96asr_v4", ("1", "2")
LEFT = {f"{ND}/eastus-1/on-demand": 2}
TOO_FEW = {f"{ND}/eastus-{zone}/on-demand": 2 for zone in ZONES}


@pytest.fixture
def billed(azure: Azure) -> Iterator[Azure]:
    azure.control(bill=True)
    yield azure
    azure.control(bill=False)


def machines(site: Site) -> list[str]:
    """The zones of the GPU nodes that run."""
    rows = site.sdk.compute.virtual_machine_scale_sets.list_all()
    sets = [row for row in rows if row.sku.name == ND]
    return sorted(zone for row in sets for zone in (row.zones or []) for _ in range(row.sku.capacity))


def bill(azure: Azure) -> float:
    """What the subscription has cost, in USD."""
    return float(azure.ask("GET", "/bill")["usd"])


def test_two_of_four_nodes_end_and_the_next_zone_has_all_four(azure: Azure, tmp_path: Path) -> None:
    azure.control(capacity=LEFT)
    site = Site(azure, tmp_path, zones=ZONES, nodes=4)
    site.up()
    assert machines(site) == [ZONES[1]] * 4


def test_two_of_four_nodes_everywhere_leave_none_and_no_cost(billed: Azure, tmp_path: Path) -> None:
    billed.control(capacity=TOO_FEW)
    site = Site(billed, tmp_path, zones=ZONES, nodes=4)
    with pytest.raises(NoCapacityError, match="none of 2 candidates") as caught:
        site.up()
    assert caught.value.exit_code == 4
    assert machines(site) == []
    paid = bill(billed)
    billed.control(advance_s=6 * 3600)
    # The rest of the cluster costs less in six hours than one GPU node in half an hour.
    assert bill(billed) - paid < 10
    assert not [key for key in site.found() if key.startswith("gpu-nodes/")]


def test_two_of_four_nodes_of_a_pool_that_was_at_zero_end_too(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path, zones=ZONES, nodes=4)
    site.up()
    site.provider.halt(site.cluster)
    azure.control(advance_s=3600)
    assert machines(site) == []
    azure.control(capacity=LEFT)
    site.up()
    assert machines(site) == [ZONES[1]] * 4


def test_more_nodes_that_are_not_there_do_not_end_those_that_run(azure: Azure, tmp_path: Path) -> None:
    Site(azure, tmp_path, zones=ZONES[:1], nodes=2).up()
    azure.control(capacity={f"{ND}/eastus-1/on-demand": 1})
    more = Site(azure, tmp_path, zones=ZONES[:1], nodes=4)
    with pytest.raises(NoCapacityError) as caught:
        more.up()
    assert caught.value.exit_code == 4
    assert machines(more) == [ZONES[0]] * 2
