"""Machines that Compute takes back, or whose node the Kubernetes stand-in has lost.

A managed instance group creates a preempted Spot VM again, with its name, and continues to try until there is
capacity ("Spot VMs in a MIG" of "About MIGs", Compute's documentation). GKE's pool stays RUNNING: its status
is that of GKE's own operations.

Durations: spot-notice, from the preemption notice to the end ("Preemption process" of "Spot VMs", Compute's
documentation: 30 seconds); gke-node-replace, from a machine's end until its group creates it again; then
gke-group-retry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.cloud.container_v1.types import NodePool

from cloudrec_sandbox.core.capacity import traces
from cloudrec_sandbox.gcp.api.registry import book, durations
from cloudrec_sandbox.gcp.resources import store
from cloudrec_sandbox.gcp.services.compute.capacity import machines
from cloudrec_sandbox.gcp.services.gke import nodes
from cloudrec_sandbox.gcp.services.gke.machine import Zone
from cloudrec_sandbox.gcp.services.gke.state import Gke

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

durations({"gke-node-replace": 90})

_MOST_SHOWN = 200
_RUNS = "RUNNING"


@dataclass
class Losses:
    """How machines were lost, by id: "spot" from their notice on, "vanish" if they had none."""

    hows: dict[str, str] = field(default_factory=dict)


def changed(world: World, place: str, most: int | None, notice_s: float) -> None:
    """Give the newest spot machines of a place their notice, so that `most` stay."""
    kind, zone, market = place.split("/")
    if most is None or market != "spot":
        return
    hows = world.state(Losses).hows
    staying = sorted(_running(world, kind, zone), key=_age)
    for each in staying[most:]:
        hows[each.document["id"]] = "spot" if notice_s else "vanish"
        each.document["status"] = "STOPPING"
        world.after(notice_s, _take_back, each.path, each.document["id"])


traces.declare(book, notice_s=30, place=machines.place, changed=changed)


def _running(world: World, kind: str, zone: str) -> Iterator[Resource]:
    """Yield the spot machines of a type in a zone that have no notice."""
    for each in store.within(world, "compute", "projects/", "instances"):
        document = each.document
        if (
            each.path.split("/")[3] == zone
            and document["machineType"].rpartition("/")[2] == kind
            and document["scheduling"]["provisioningModel"] == "SPOT"
            and document["status"] == _RUNS
        ):
            yield each


def _age(machine: Resource) -> tuple[str, str]:
    return machine.document["creationTimestamp"], machine.path


def _take_back(world: World, path: str, machine: str) -> None:
    """End a machine; its group, if it has one, makes it again."""
    found = store.find(world, "compute", path)
    if found is None or found.document["id"] != machine:
        return
    place = _group_of(world, path)
    if place is None:
        machines.release(world, path)
        found.document["status"] = "TERMINATED"  # a machine of no group is stopped, not deleted
        return
    nodes.lose(world, place, found)
    if not place.pool.is_refilling:
        place.pool.is_refilling = True
        world.after(world.duration("gke-node-replace"), _refill, place.cluster.path, place.pool.name)


def _group_of(world: World, path: str) -> Zone | None:
    """Return the place of a pool's machine; None for a machine of no pool."""
    for cluster in world.state(Gke).clusters.values():
        for pool in cluster.pools.values():
            for zone, group in pool.groups.items():
                place = Zone(cluster, pool, zone, group)
                if path.startswith(
                    f"{group.partition('/instanceGroupManagers/')[0]}/instances/{place.base}-"
                ):
                    return place
    return None


def _refill(world: World, path: str, name: str) -> None:
    """Make the missing machines of a pool, and try again later while some are missing."""
    cluster = world.state(Gke).clusters.get(path)
    pool = cluster.pools.get(name) if cluster else None
    if cluster is None or pool is None or pool.message.status == NodePool.Status.STOPPING:
        return
    pool.is_refilling = nodes.fill(world, cluster, pool) is not None
    if pool.is_refilling:
        world.after(world.duration("gke-group-retry"), _refill, path, name)


def lose(world: World, machine: str) -> None:
    """End a machine whose node the Kubernetes stand-in has lost."""
    for each in store.within(world, "compute", "projects/", "instances"):
        if each.document["id"] == machine:
            world.state(Losses).hows.setdefault(machine, "vanish")
            _take_back(world, each.path, machine)


def leaving(world: World) -> Mapping[str, str]:
    """Return how machines leave that have their notice or have ended lately, by id."""
    hows = world.state(Losses).hows
    return {name: hows[name] for name in list(hows)[-_MOST_SHOWN:]}
