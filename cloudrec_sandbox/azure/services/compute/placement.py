"""Proximity placement groups, and capacity reservations."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import NAMESPACE_URL, uuid5

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.regions import check_zones
from cloudrec_sandbox.azure.arm.registry import durations
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import region_of, store
from cloudrec_sandbox.azure.services.authorization import access
from cloudrec_sandbox.azure.services.compute import machines, sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

durations({"reservation-create": 30, "reservation-delete": 10})

_MODELS = "azure.mgmt.compute.models"
_SCALE_SETS = "Microsoft.Compute/virtualMachineScaleSets"
_POOLS = "Microsoft.ContainerService/managedClusters/agentPools"
APIS = ("2026-04-01", "2025-04-01", "2024-11-01", "2024-07-01")


class ComputeKind(Kind):
    """A type of Microsoft.Compute."""

    apis: ClassVar[Sequence[str]] = APIS
    malformed = "InvalidParameter"


@register
class PlacementGroups(ComputeKind):
    """Groups of machines that are close to each other: in one zone, which cannot change."""

    type = "Microsoft.Compute/proximityPlacementGroups"
    model = f"{_MODELS}:ProximityPlacementGroup"
    patch_model = f"{_MODELS}:ProximityPlacementGroupUpdate"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the zone, and the intended sizes."""
        zones = list(body.get("zones") or [])
        region = region_of(body)
        check_zones(call.path.text, zones, region)
        # A group's machines are close to each other, so in one zone, which is set at the group's creation.
        if len(zones) > 1:
            raise ArmError("InvalidParameter", "A proximity placement group can have one zone at most.")
        if old is not None and list(old.document.get("zones") or []) != zones:
            raise ArmError(
                "PropertyChangeNotAllowed",
                f"Changing property 'zones' of the proximity placement group {call.path.name} is not "
                "allowed.",
                status=HTTPStatus.CONFLICT,
            )
        intent = ((body.get("properties") or {}).get("intent") or {}).get("vmSizes") or []
        # azure-cli's `ppg create`, and the zone of azurerm_proximity_placement_group, which requires
        # allowed_vm_sizes.
        if zones and not intent:
            raise ArmError(
                "InvalidParameter", "The availability zone can be provided only when an intent is provided."
            )
        for name in intent:
            size = sizes.find(name)
            offered = None if size is None else sizes.zones(size, region)
            if offered is None or set(zones) - set(offered):
                raise ArmError(
                    "OverconstrainedZonalAllocationRequest",
                    f"Allocation failed: the VM size {name} of the intent is not in {region}, or not in its "
                    f"zones {', '.join(zones)}.",
                    status=HTTPStatus.CONFLICT,
                )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Fill in the default."""
        resource.properties.setdefault("proximityPlacementGroupType", "Standard")

    def mark(self, resource: Resource, state: str) -> None:
        """Ignore the state: the type shows none."""

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse while machines are in it."""
        if any(users_of(world, resource.id)):
            raise ArmError(
                "OperationNotAllowed",
                f"Proximity Placement Group '{resource.name}' cannot be deleted. Before deleting a Proximity "
                "Placement Group please ensure that it does not contain any Virtual Machine, Virtual Machine "
                "Scale Set or Availability Set.",
                status=HTTPStatus.CONFLICT,
            )

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document with the scale sets in it."""
        users = [{"id": each.id} for each in users_of(world, resource.id) if each.type == _SCALE_SETS]
        return {
            **resource.document,
            "properties": {**resource.properties, "virtualMachineScaleSets": users},
        }


def users_of(world: World, group: str) -> Iterator[Resource]:
    """Yield the scale sets and the node pools in a placement group."""
    for kind in (_SCALE_SETS, _POOLS):
        for each in store(world).of_type(kind):
            named = each.properties.get("proximityPlacementGroup") or {}
            id_ = named.get("id") or each.properties.get("proximityPlacementGroupID") or ""
            if str(id_).lower() == group.lower():
                yield each


@register
class ReservationGroups(ComputeKind):
    """Groups of reservations."""

    type = "Microsoft.Compute/capacityReservationGroups"
    model = f"{_MODELS}:CapacityReservationGroup"
    patch_model = f"{_MODELS}:CapacityReservationGroupUpdate"
    delete_time = "reservation-delete"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the zones."""
        region = region_of(body)
        check_zones(call.path.text, list(body.get("zones") or []), region)

    def mark(self, resource: Resource, state: str) -> None:
        """Ignore the state: the type shows none."""

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse while it has reservations."""
        if any(store(world).of_type(Reservations.type, resource.id)):
            raise ArmError(
                "OperationNotAllowed",
                f"Capacity reservation group '{resource.name}' cannot be deleted: it has capacity "
                "reservations.",
                status=HTTPStatus.CONFLICT,
            )

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document with its reservations."""
        rows = [{"id": each.id} for each in store(world).of_type(Reservations.type, resource.id)]
        return {**resource.document, "properties": {**resource.properties, "capacityReservations": rows}}


@register
class Reservations(ComputeKind):
    """Reservations of machines of one size in one zone: they use quota and stock from their creation."""

    type = "Microsoft.Compute/capacityReservationGroups/capacityReservations"
    model = f"{_MODELS}:CapacityReservation"
    patch_model = f"{_MODELS}:CapacityReservationUpdate"
    create_time = update_time = "reservation-create"
    delete_time = "reservation-delete"
    is_tracked = True

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the size, the quota and the stock."""
        sku, zones = body.get("sku") or {}, list(body.get("zones") or [])
        if old is not None and (
            old.document["sku"]["name"] != sku.get("name") or old.document.get("zones") != zones
        ):
            raise ArmError(
                "PropertyChangeNotAllowed",
                f"Changing the size or the zone of the capacity reservation {call.path.name} is not allowed.",
                status=HTTPStatus.CONFLICT,
            )
        shortage = machines.claim(
            call.world,
            call.path.text,
            size=str(sku.get("name")),
            region=region_of(body),
            zones=zones,
            count=int(sku.get("capacity") or 1),
        )
        if shortage is not None:
            raise ArmError(shortage.code, shortage.message, status=HTTPStatus.CONFLICT)

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Set its reservation id."""
        resource.properties["reservationId"] = str(uuid5(NAMESPACE_URL, resource.id))
        resource.properties.setdefault("platformFaultDomainCount", 1)

    def fail(self, world: World, resource: Resource, operation: Operation) -> None:
        """Release the machines."""
        machines.release(world, resource.id)

    def removed(self, world: World, resource: Resource) -> None:
        """Release the machines."""
        machines.release(world, resource.id)


def check_use(world: World, group: str, principal: str) -> None:
    """Refuse the use of a group by a cluster whose identity is no Contributor of its resource group.

    Source: azure-aks-docs, use-capacity-reservation-groups.md. Of Contributor's actions the one is checked
    that machines in a reservation need.
    """
    scope = group.partition("/providers/")[0]
    action = f"{ReservationGroups.type}/deploy/action"
    if not access.has(world, principal, action, scope):
        raise ArmError(
            "LinkedAuthorizationFailed",
            f"The client '{principal}' with object id '{principal}' does not have authorization to perform "
            f"action '{action}' over scope '{group}' or the scope is invalid. If access was recently "
            "granted, please refresh your credentials.",
            status=HTTPStatus.FORBIDDEN,
        )


def has_reservations(world: World, group: str) -> bool:
    """Return whether a group has a reservation: AKS uses no other group, and creates the pool without it."""
    return any(store(world).of_type(Reservations.type, group))
