"""Scale sets: the machines of a pool in Compute, in the cluster's own resource group."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import Resource, region_of, store
from cloudrec_sandbox.azure.services.aks import subnets
from cloudrec_sandbox.azure.services.aks.refusals import stock_out
from cloudrec_sandbox.azure.services.compute import machines
from cloudrec_sandbox.azure.services.network import interfaces

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.core.world import World

TYPE = "Microsoft.Compute/virtualMachineScaleSets"
SPOT = "Spot"
OF_POOL = "aks-managed-poolName"  # a tag of each scale set that AKS makes


@register
class ScaleSets(Kind):
    """Scale sets: those of AKS, which only AKS changes, and those of users."""

    type = TYPE
    apis = ("2026-04-01", "2025-04-01", "2024-11-01")
    model = "azure.mgmt.compute.models:VirtualMachineScaleSet"
    name_rule = r"[\w.-]{1,64}"
    delete_time = "scale-set-delete"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Refuse a change of AKS's; check the size, the quota and the stock of a user's."""
        if old is not None and OF_POOL in (old.document.get("tags") or {}):
            raise ArmError(
                "OperationNotAllowed",
                f"{call.path.name} is a scale set of AKS: change its agent pool instead",
            )
        sku, properties = body.get("sku") or {}, body.get("properties") or {}
        profile = properties.get("virtualMachineProfile")
        if not sku.get("name") or profile is None:
            raise ArmError(
                "InvalidParameter", "Required parameter 'sku' or 'virtualMachineProfile' is missing."
            )
        shortage = machines.claim(
            call.world,
            call.path.text,
            size=str(sku["name"]),
            region=region_of(body),
            zones=list(body.get("zones") or []),
            spot=profile.get("priority") == SPOT,
            count=int(sku.get("capacity") or 0),
        )
        if shortage is not None:
            raise ArmError(shortage.code, shortage.message, status=HTTPStatus.CONFLICT)

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Take the machines' addresses in their subnets."""
        count = int(resource.document["sku"].get("capacity") or 0)
        network = resource.properties["virtualMachineProfile"].get("networkProfile") or {}
        interfaces.detach(call.world, resource.id)
        for interface in network.get("networkInterfaceConfigurations") or []:
            for row in (interface.get("properties") or {}).get("ipConfigurations") or []:
                subnet = str(((row.get("properties") or {}).get("subnet") or {}).get("id") or "")
                interfaces.attach(call.world, subnet, resource.id, count)

    def removed(self, world: World, resource: Resource) -> None:
        """Release the machines; their interfaces linger."""
        machines.release(world, resource.id)
        interfaces.detach(world, resource.id, after=world.duration("subnet-linger"))


def id_of(pool: Resource, group: str) -> str:
    """Return the id of a pool's scale set."""
    path = pool.path
    number = int(hashlib.sha256(path.parent.lower().encode()).hexdigest(), 16) % 10**8
    place = f"/subscriptions/{path.subscription}/resourceGroups/{group}"
    return f"{place}/providers/{TYPE}/aks-{pool.name}-{number:08d}-vmss"


def fit(world: World, pool: Resource, group: str) -> None:
    """Resize a pool's scale set to the pool's count; ArmError if there are too few machines.

    In a stock-out, the scale set keeps the machines that there are, and they cost money: 71 of 75 nodes
    joined in https://github.com/Azure/AKS/issues/1561.
    """
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
        partly=True,
    )
    if short is not None:
        scale_set.document["sku"]["capacity"] = machines.held(world, name)
        raise stock_out(short, name)
    # Nodes that start must reach the API server, and those that run already have.
    if count > scale_set.document["sku"]["capacity"]:
        subnets.check_egress(world, pool)
    if properties.get("vnetSubnetID"):
        interfaces.attach(world, properties["vnetSubnetID"], name, count)
    scale_set.document["sku"]["capacity"] = count
    scale_set.changed_at = world.now()


def machines_of(scale_set: Resource) -> list[str]:
    """Return the ids of a scale set's machines, the oldest first; a number is not used twice."""
    ids: list[str] = scale_set.facts.setdefault("machines", [])
    count = int(scale_set.document["sku"].get("capacity") or 0)
    del ids[count:]
    for _ in range(count - len(ids)):
        number = scale_set.facts.get("next", 0)
        scale_set.facts["next"] = number + 1
        ids.append(f"{scale_set.name}{number:06d}")
    return ids


def lose(world: World, scale_set: Resource, machine: str, place: str) -> None:
    """End a machine that the scale set wants; `place` is its place in `capacity`, empty for any."""
    machines_of(scale_set).remove(machine)
    scale_set.document["sku"]["capacity"] -= 1
    scale_set.changed_at = world.now()
    machines.lose(world, scale_set.id, place)
    interfaces.lose(world, scale_set.id)


def _made(world: World, name: str, pool: Resource) -> Resource:
    """Return a pool's scale set, without machines yet."""
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
            OF_POOL: pool.name,
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
