"""Placement policies, and reservations of machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.cloud.compute_v1.types.compute import Reservation, ResourcePolicy

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.resources import store
from cloudrec_sandbox.gcp.resources.operations import Failure
from cloudrec_sandbox.gcp.services.compute import changes, collections, references
from cloudrec_sandbox.gcp.services.compute.capacity import machines
from cloudrec_sandbox.gcp.services.compute.collections import Collection

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

_KINDS = (
    "groupPlacementPolicy",
    "snapshotSchedulePolicy",
    "instanceSchedulePolicy",
    "diskConsistencyGroupPolicy",
    "workloadPolicy",
)
_MOST_TOGETHER = 1500

POLICIES = Collection(name="resourcePolicies", noun="resourcePolicy", scope="region", message=ResourcePolicy)
RESERVATIONS = Collection(name="reservations", noun="reservation", scope="zone", message=Reservation)


def _check_policy(call: Call, document: dict[str, Any]) -> None:
    del call
    given = [kind for kind in _KINDS if kind in document]
    if len(given) != 1:
        raise _invalid("groupPlacementPolicy", ", ".join(given), "Exactly one kind of policy must be given.")
    group = document.get("groupPlacementPolicy", {})
    if group.get("vmCount") is not None and not 1 <= group["vmCount"] <= _MOST_TOGETHER:
        raise _invalid(
            "groupPlacementPolicy.vmCount", group["vmCount"], f"Must be from 1 to {_MOST_TOGETHER}."
        )
    if group.get("availabilityDomainCount") and group.get("collocation"):
        text = "Only one of collocation and availabilityDomainCount may be given."
        raise _invalid("groupPlacementPolicy", "COLLOCATED", text)
    document["status"] = "READY"


def _check_reservation(call: Call, document: dict[str, Any]) -> None:
    holds = document.get("specificReservation", {})
    properties = holds.get("instanceProperties", {})
    name = str(properties.get("machineType", ""))
    if not holds.get("count") or machines.find(name, call.params["zone"]) is None:
        raise _invalid(
            "specificReservation.instanceProperties.machineType",
            name,
            f"A count is needed, and a machine type that zone {call.params['zone']} offers.",
        )
    document.setdefault("specificReservationRequired", False)
    document["status"] = "READY"


def reserve(world: World, path: str) -> Failure | None:
    """Claim the machines of a reservation; return the failure if there are too few."""
    holds = store.need(world, "compute", path).document["specificReservation"]
    # The machines count as used from now on, whether or not a pool runs in them.
    shortage = machines.claim(
        world,
        path,
        project=path.split("/")[1],
        zone=path.split("/")[3],
        machine_type=holds["instanceProperties"]["machineType"],
        spot=False,
        count=int(holds["count"]),
        disk_gb=0,
    )
    return Failure(shortage.code, shortage.message) if shortage else None


def unreserve(world: World, path: str) -> None:
    """Release the machines."""
    machines.release(world, path)


def _invalid(field: str, value: object, why: str) -> GcpError:
    return GcpError("INVALID_ARGUMENT", f"Invalid value for field 'resource.{field}': '{value}'. {why}")


collections.reads(POLICIES)
changes.inserts(POLICIES, _check_policy)
changes.deletes(POLICIES)
collections.reads(RESERVATIONS)
changes.inserts(RESERVATIONS, _check_reservation, reserve)
changes.deletes(RESERVATIONS, finish=unreserve)


@collections.view("reservations")
def in_use(world: World, resource: Resource) -> dict[str, Any]:
    """Return how many of the machines are in use."""
    holds = resource.document["specificReservation"]
    used = str(machines.reserved(world, resource.path))
    return {"specificReservation": {**holds, "inUseCount": used, "assuredCount": holds["count"]}}


@references.guard("reservations")
def machines_run(world: World, resource: Resource) -> str:
    """Return the user of a reservation, which prevents its deletion while machines run in it."""
    return f"{resource.path}/instances" if machines.reserved(world, resource.path) else ""
