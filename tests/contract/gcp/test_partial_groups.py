"""No part of a gang is paid for: a pool that gets only some of its nodes ends, and the next is tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudrec.errors import NoCapacityError
from cloudrec.providers.gcp.nodes import scale_to_zero
from tests.contract.gcp.support import Site, whole
from tests.sandbox.gcp.support import Gcp as Cloud

TYPE, ZONES = "a2-highgpu-8g", ("us-central1-a", "us-central1-b")
LEFT = {f"{TYPE}/{ZONES[0]}/on-demand": 2}
TOO_FEW = {f"{TYPE}/{zone}/on-demand": 2 for zone in ZONES}
OPEN = {"compact": False}


@pytest.fixture
def billed(cloud: Cloud) -> Iterator[Cloud]:
    cloud.control(bill=True)
    yield cloud
    cloud.control(bill=False)


def machines(site: Site) -> list[str]:
    """The zones of the GPU nodes that run."""
    found = []
    for zone in ZONES:
        path = f"projects/{site.gcp.project}/zones/{zone}/instances"
        _, listed = site.cloud.rest("GET", f"/compute/v1/{path}")
        found += [zone for row in listed.get("items", []) if row["machineType"].endswith(TYPE)]
    return sorted(found)


def gpu_bill(site: Site) -> float:
    """What the account has cost, in USD."""
    return float(site.cloud.ask("GET", "/bill")["usd"])


def test_two_of_four_nodes_end_and_the_next_zone_has_all_four(cloud: Cloud, tmp_path: Path) -> None:
    cloud.control(capacity=LEFT)
    site = whole(cloud, tmp_path, zones=ZONES, nodes=4, settings=OPEN)
    site.up()
    assert machines(site) == [ZONES[1]] * 4


def test_two_of_four_nodes_everywhere_leave_none_and_no_cost(billed: Cloud, tmp_path: Path) -> None:
    billed.control(capacity=TOO_FEW)
    site = whole(billed, tmp_path, zones=ZONES, nodes=4, settings=OPEN)
    with pytest.raises(NoCapacityError, match="none of 2 candidates") as caught:
        site.up()
    assert caught.value.exit_code == 4
    assert machines(site) == []
    paid = gpu_bill(site)
    billed.control(advance_s=6 * 3600)
    # The rest of the cluster costs less in six hours than one GPU node in half an hour.
    assert gpu_bill(site) - paid < 10
    assert not [key for key in site.found() if key.startswith("gpu-nodes/")]


def test_two_of_four_nodes_of_a_pool_that_was_at_zero_end_too(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, zones=ZONES, nodes=4, settings=OPEN)
    site.up()
    scale_to_zero.halt(site.gcp, site.title)
    cloud.control(advance_s=3600)
    assert machines(site) == []
    cloud.control(capacity=LEFT)
    later = whole(cloud, tmp_path, zones=ZONES, nodes=4, settings=OPEN)
    later.up()
    assert machines(later) == [ZONES[1]] * 4


def test_more_nodes_that_are_not_there_do_not_end_those_that_run(cloud: Cloud, tmp_path: Path) -> None:
    whole(cloud, tmp_path, zones=ZONES[:1], nodes=2, settings=OPEN).up()
    cloud.control(capacity={f"{TYPE}/{ZONES[0]}/on-demand": 1})
    more = whole(cloud, tmp_path, zones=ZONES[:1], nodes=4, settings=OPEN)
    with pytest.raises(NoCapacityError) as caught:
        more.up()
    assert caught.value.exit_code == 4
    assert machines(more) == [ZONES[0]] * 2
