"""Spot machines of scale sets that Azure evicts, and machines whose node the Kubernetes stand-in has lost.

With the eviction policy Delete, an evicted machine is deleted and the scale set is smaller ("Eviction policy"
of "Azure Spot Virtual Machines for Virtual Machine Scale Sets": try-restore is another setting, which AKS's
pools do not have). Nothing makes it again. AKS shows the smaller count some time later, and the pool's state
is Succeeded (https://github.com/Azure/AKS/issues/2030, 5736).

Durations: spot-notice, from the event Preempt to the end ("Scheduled Events": at least 30 seconds);
aks-pool-count, until the pool shows the count of its scale set. Machines of no scale set are not evicted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm import operations
from cloudrec_sandbox.azure.arm.registry import book, durations
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.aks import nodes, pools, scale_sets
from cloudrec_sandbox.azure.services.compute import machines
from cloudrec_sandbox.core.capacity import traces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

durations({"aks-pool-count": 120})

_MOST_SHOWN = 200


@dataclass
class Losses:
    """How machines were lost, by id: "spot" from their notice on, "vanish" if they had none."""

    hows: dict[str, str] = field(default_factory=dict)


def changed(world: World, place: str, most: int | None, notice_s: float) -> None:
    """Give spot machines of a place their notice, so that `most` stay."""
    if most is None or not place.endswith("/spot"):
        return
    hows = world.state(Losses).hows
    staying = [
        (owner, machine)
        for owner, count in machines.holders(world, place)
        if (found := store(world).find(owner)) is not None and found.type == scale_sets.TYPE
        for machine in [each for each in scale_sets.machines_of(found) if each not in hows][:count]
    ]
    for owner, machine in staying[most:]:
        hows[machine] = "spot" if notice_s else "vanish"
        world.after(notice_s, _evict, owner, machine, place)


traces.declare(book, notice_s=30, place=machines.place, changed=changed)


def _evict(world: World, owner: str, machine: str, place: str) -> None:
    """Delete a machine of a scale set."""
    found = store(world).find(owner)
    if found is None or machine not in scale_sets.machines_of(found):
        return
    scale_sets.lose(world, found, machine, place)
    pool = _pool_of(world, owner)
    if pool is not None:
        world.after(world.duration("aks-pool-count"), _show_count, pool.id)


def _pool_of(world: World, owner: str) -> Resource | None:
    for pool in store(world).of_type(pools.TYPE):
        cluster = store(world).find(pool.path.parent)
        if cluster is not None and scale_sets.id_of(pool, nodes.group_name(cluster)).lower() == owner.lower():
            return pool
    return None


def _show_count(world: World, name: str) -> None:
    """Let a pool show how many machines its scale set has."""
    pool = store(world).find(name)
    cluster = store(world).find(pool.path.parent) if pool is not None else None
    # An operation sets the count itself.
    if pool is None or cluster is None or pool.properties.get("provisioningState") != operations.SUCCEEDED:
        return
    scale_set = store(world).find(scale_sets.id_of(pool, nodes.group_name(cluster)))
    if scale_set is not None:
        pool.properties["count"] = scale_set.document["sku"]["capacity"]


def lose(world: World, machine: str) -> None:
    """End a machine whose node the Kubernetes stand-in has lost."""
    for each in store(world).of_type(scale_sets.TYPE):
        if machine in scale_sets.machines_of(each):
            world.state(Losses).hows.setdefault(machine, "vanish")
            _evict(world, each.id, machine, "")
            return


def leaving(world: World) -> Mapping[str, str]:
    """Return how machines leave that have their notice or have ended lately, by id."""
    hows = world.state(Losses).hows
    return {name: hows[name] for name in list(hows)[-_MOST_SHOWN:]}
