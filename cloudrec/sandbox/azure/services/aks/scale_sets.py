"""Scale sets: what a pool's nodes are in Compute, in the cluster's own resource group."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.azure.errors import ArmError
from cloudrec.sandbox.azure.kinds import Kind
from cloudrec.sandbox.azure.registry import resource as register
from cloudrec.sandbox.azure.services.aks.refusals import stock_out
from cloudrec.sandbox.azure.services.compute import machines
from cloudrec.sandbox.azure.services.network import interfaces
from cloudrec.sandbox.azure.store import Resource, store

if TYPE_CHECKING:
    from cloudrec.sandbox.azure.call import Call
    from cloudrec.sandbox.world import World

TYPE = "Microsoft.Compute/virtualMachineScaleSets"
SPOT = "Spot"


@register
class ScaleSets(Kind):
    """Scale sets, which AKS alone makes here."""

    type = TYPE
    apis = ("2026-04-01", "2025-04-01", "2024-11-01")
    model = "azure.mgmt.compute.models:VirtualMachineScaleSet"
    name_rule = r"[\w.-]{1,64}"
    delete_time = "scale-set-delete"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Nobody but AKS makes any."""
        raise ArmError(
            "OperationNotAllowed", "this stand-in has scale sets of AKS alone: change the agent pool instead"
        )

    def removed(self, world: World, resource: Resource) -> None:
        """Let others have the machines; the interfaces linger."""
        machines.release(world, resource.id)
        interfaces.detach(world, resource.id, after=world.duration("subnet-linger"))


def id_of(pool: Resource, group: str) -> str:
    """The id of a pool's scale set."""
    path = pool.path
    number = int(hashlib.sha256(path.parent.lower().encode()).hexdigest(), 16) % 10**8
    place = f"/subscriptions/{path.subscription}/resourceGroups/{group}"
    return f"{place}/providers/{TYPE}/aks-{pool.name}-{number:08d}-vmss"


def fit(world: World, pool: Resource, group: str) -> None:
    """Make a pool's scale set what the pool says; ArmError where so many machines cannot be had."""
    name, properties = id_of(pool, group), pool.properties
    count = int(properties["count"])
    zones = properties.get("availabilityZones") or []
    scale_set = store(world).find(name) or _made(world, name, pool)
    short = machines.claim(
        world,
        name,
        size=properties["vmSize"],
        region=scale_set.location,
        zones=zones,
        spot=properties.get("scaleSetPriority") == SPOT,
        count=count,
        placed=bool(properties.get("proximityPlacementGroupID")),
    )
    if short is not None:
        raise stock_out(short, name)
    if properties.get("vnetSubnetID"):
        interfaces.attach(world, properties["vnetSubnetID"], name, count)
    scale_set.document["sku"]["capacity"] = count
    scale_set.changed_at = world.now()


def _made(world: World, name: str, pool: Resource) -> Resource:
    """A pool's scale set without machines yet."""
    cluster = store(world).find(pool.path.parent)
    properties = pool.properties
    spot = properties.get("scaleSetPriority") == SPOT
    document: dict[str, Any] = {
        "id": name,
        "name": name.rpartition("/")[2],
        "type": TYPE,
        "location": cluster.location if cluster else "",
        "tags": {
            **(properties.get("tags") or {}),
            "aks-managed-poolName": pool.name,
            "aks-managed-orchestrator": f"Kubernetes:{properties['orchestratorVersion']}",
        },
        "sku": {"name": properties["vmSize"], "tier": "Standard", "capacity": 0},
        "properties": {
            "provisioningState": "Succeeded",
            "virtualMachineProfile": {
                "priority": properties.get("scaleSetPriority") or "Regular",
                **({"evictionPolicy": properties["scaleSetEvictionPolicy"]} if spot else {}),
            },
        },
    }
    if zones := properties.get("availabilityZones"):
        document["zones"] = list(zones)
    if group := properties.get("proximityPlacementGroupID"):
        document["properties"]["proximityPlacementGroup"] = {"id": group}
    if group := properties.get("capacityReservationGroupID"):
        document["properties"]["virtualMachineProfile"]["capacityReservation"] = {
            "capacityReservationGroup": {"id": group}
        }
    made = Resource(id=name, type=TYPE, document=document, made_at=world.now(), changed_at=world.now())
    store(world).add(made)
    return made
