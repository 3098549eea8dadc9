"""Capacity over time: preempted Spot VMs, and the managed group that makes them again if it can."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud.container_v1 import NodePool

from cloudrec_sandbox.core.client import RefusedError
from tests.sandbox.gcp.support import PROJECT, ZONE, Gcp
from tests.sandbox.gcp.support_gke import L4, PATH, done, pool, ready, resize

GPU = f"{PATH}/nodePools/gpu"
GAP = 3600


def trace(*data: int, **more: Any) -> dict[str, Any]:
    place = {"zone": ZONE, "instance_type": L4, "capacity": "spot"}
    return {**place, "gap_seconds": GAP, "data": list(data), **more}


@pytest.fixture
def there(gcp: Gcp) -> Gcp:
    """A pool of two Spot VMs."""
    ready(gcp)
    done(gcp, gcp.gke.create_node_pool(parent=PATH, node_pool=pool(nodes=2, config={"spot": True})))
    assert len(vms(gcp)) == 2
    return gcp


def vms(gcp: Gcp) -> dict[str, tuple[int, str]]:
    """The ids and states of the pool's machines, by name."""
    found = gcp.compute("Instances").list(project=PROJECT, zone=ZONE)
    return {each.name: (each.id, each.status) for each in found if each.name.startswith("gke-one-gpu-")}


def manager(gcp: Gcp) -> dict[str, str]:
    url = gcp.gke.get_node_pool(name=GPU).instance_group_urls[0]
    return {"project": PROJECT, "zone": ZONE, "instance_group_manager": url.rpartition("/")[2]}


def test_spot_vms_are_preempted_and_made_again_once_there_is_capacity(there: Gcp) -> None:
    before = vms(there)
    there.control(capacity_trace=[trace(1, 0, 1)])
    there.advance(GAP + 20)
    assert {state for _, state in vms(there).values()} == {"STOPPING"}
    there.advance(15)
    assert vms(there) == {}
    there.advance(600)
    found = there.gke.get_node_pool(name=GPU)
    assert (found.status, list(found.conditions)) == (NodePool.Status.RUNNING, [])
    managers = there.compute("InstanceGroupManagers")
    group = managers.get(**manager(there))
    assert (group.target_size, group.status.is_stable, group.current_actions.creating) == (2, False, 2)
    (error,) = managers.list_errors(**manager(there))
    assert error.error.code == "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    there.advance(GAP)
    after = vms(there)
    assert after.keys() == before.keys()  # a group keeps its machines' names
    assert not set(after.values()) & set(before.values())
    assert managers.get(**manager(there)).status.is_stable
    assert list(managers.list_errors(**manager(there))) == []


def test_changes_within_one_jump_of_the_clock_happen_in_order(there: Gcp) -> None:
    there.control(real_times=False, bill=True, capacity_trace=[trace(1, 0, 1, 0, 1)])
    there.advance(5 * GAP)
    lines = there.ask("GET", "/bill")["lines"]
    there.control(real_times=True, bill=False)
    assert len(vms(there)) == 2
    (group,) = (line for line in lines if line["kind"] == "machines" and "gke-one-gpu" in line["id"])
    # There are machines in three of five hours, for 30 s of notice, and from the group's next attempt on.
    assert 3 * GAP - 2 * 300 <= group["seconds"] <= 3 * GAP + 2 * 30


def test_a_resize_cannot_have_more_than_a_count_of_the_trace(there: Gcp) -> None:
    there.control(capacity_trace=[trace(2, 3, counts=True)])
    resize(there, GPU, 3)
    there.advance(200)
    assert len(vms(there)) == 2
    assert there.gke.get_node_pool(name=GPU).status == NodePool.Status.RUNNING_WITH_ERROR
    there.advance(GAP + 301)
    assert len(vms(there)) == 3
    there.control(capacity_trace=[{**trace(0), "capacity": "on-demand"}])
    there.advance(GAP)
    assert len(vms(there)) == 3


def test_what_is_no_place_is_refused(there: Gcp) -> None:
    for wish in ({**trace(1), "zone": "moon-1a"}, {**trace(1), "capacity": "reserved"}):
        with pytest.raises(RefusedError, match="of what is offered"):
            there.control(capacity_trace=[wish])
