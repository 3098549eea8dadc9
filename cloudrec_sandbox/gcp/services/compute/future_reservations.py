"""Future reservations in calendar mode: requested, approved, fulfilled at their start, over at their end.

Sources: google-cloud-compute's FutureReservation and its members; "About future reservation requests in
calendar mode" and "Create a future reservation request in calendar mode" (a specific reservation that is
deleted automatically, dense, 1 to 90 days, 1 to 80 machines with GPUs). A request without machines on the
calendar (`calendar` of /_control) is declined. The reservation exists from the approval on, and has machines
from the start on (`reservation_name`). Requests in another mode are refused: this stand-in has none.

Duration: future-reservation-review, until a request is approved or declined.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from google.cloud.compute_v1.types.compute import FutureReservation

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations
from cloudrec_sandbox.gcp.resources import checks, store
from cloudrec_sandbox.gcp.services.compute import changes, collections
from cloudrec_sandbox.gcp.services.compute.capacity import machines
from cloudrec_sandbox.gcp.services.compute.capacity.advice import Calendar
from cloudrec_sandbox.gcp.services.compute.collections import Collection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

durations({"future-reservation-review": 60})

REQUESTS = Collection(
    name="futureReservations", noun="futureReservation", scope="zone", message=FutureReservation
)
_SHORTEST, _LONGEST, _MOST = timedelta(days=1), timedelta(days=90), 80


def _check(call: Call, document: dict[str, Any]) -> None:
    """Refuse what is no request in calendar mode; fill in its status."""
    wanted: Mapping[str, tuple[object, ...]] = {
        "reservationMode": ("CALENDAR",),
        "deploymentType": ("DENSE", None),
        "planningStatus": ("SUBMITTED", "DRAFT"),
        "autoDeleteAutoCreatedReservations": (True,),
        "specificReservationRequired": (True,),
    }
    for name, allowed in wanted.items():
        if document.get(name) not in allowed:
            raise _invalid(name, document.get(name), f"Calendar mode needs {allowed[0]}.")
    if bool(document.get("reservationName")) == bool(document.get("namePrefix")):
        raise _invalid("reservationName", "", "Either reservationName or namePrefix must be given.")
    checks.name(document.get("reservationName") or document.get("namePrefix"), "resource.reservationName")
    asked = document.get("specificSkuProperties", {})
    name = str(asked.get("instanceProperties", {}).get("machineType", ""))
    machine = machines.find(name, call.params["zone"])
    if machine is None or not machine.accelerator:
        raise _invalid(
            "specificSkuProperties.instanceProperties.machineType",
            name,
            f"A machine type with GPUs is needed that zone {call.params['zone']} offers.",
        )
    if not 1 <= int(asked.get("totalCount", 0)) <= _MOST:
        raise _invalid(
            "specificSkuProperties.totalCount", asked.get("totalCount"), f"Must be from 1 to {_MOST}."
        )
    start, end = _window(document)
    if (
        start <= datetime.fromtimestamp(call.world.client_now(), UTC)
        or not _SHORTEST <= end - start <= _LONGEST
    ):
        raise _invalid(
            "timeWindow",
            document["timeWindow"],
            f"It must begin later, and have {_SHORTEST.days} to {_LONGEST.days} days.",
        )
    is_draft = document["planningStatus"] == "DRAFT"
    document["status"] = {"procurementStatus": "DRAFTING" if is_draft else "PENDING_APPROVAL"}


def _window(document: Mapping[str, Any]) -> tuple[datetime, datetime]:
    window = document.get("timeWindow", {})
    try:
        start = datetime.fromisoformat(window["startTime"])
        length = window.get("duration", {}).get("seconds")
        end = start + timedelta(seconds=int(length)) if length else datetime.fromisoformat(window["endTime"])
    except (KeyError, ValueError) as error:
        raise _invalid("timeWindow", window, "It needs a start and an end or a duration.") from error
    return start, end


def _submitted(world: World, path: str) -> None:
    world.after(world.duration("future-reservation-review"), reviewed, path)


def reviewed(world: World, path: str) -> None:
    """Approve a request, with a reservation that has no machines yet; or decline it."""
    request = store.find(world, "compute", path)
    if request is None or request.document["status"]["procurementStatus"] != "PENDING_APPROVAL":
        return
    document, zone = request.document, path.split("/")[3]
    asked = document["specificSkuProperties"]
    kind, count = asked["instanceProperties"]["machineType"].rpartition("/")[2], int(asked["totalCount"])
    left = world.state(Calendar).left
    if left.get(f"{kind}/{zone}", 0) < count:
        document["status"]["procurementStatus"] = "DECLINED"
        return
    left[f"{kind}/{zone}"] -= count
    name = document.get("reservationName") or f"{document['namePrefix']}-0001"
    made = f"{path.rpartition('/futureReservations/')[0]}/reservations/{name}"
    held: dict[str, Any] = {
        "name": name,
        "specificReservation": {"count": str(count), "instanceProperties": asked["instanceProperties"]},
        "specificReservationRequired": True,
        "zone": document["zone"],
        "status": "CREATING",  # Reservation.Status has no INACTIVE, which the text of reservation_name has
    }
    store.identify(world, held, made, "compute#reservation")
    store.add(world, "compute", "reservations", made, held)
    document["status"] |= {
        "procurementStatus": "APPROVED",
        "autoCreatedReservations": [store.link(made)],
    }
    start, end = _window(document)
    world.after(world.until(start.timestamp()), fulfilled, path, made)
    world.after(world.until(end.timestamp()), over, made)


def fulfilled(world: World, path: str, made: str) -> None:
    """Give the reservation its machines."""
    request, held = store.find(world, "compute", path), store.find(world, "compute", made)
    if request is None or held is None:
        return
    held.document["status"] = "READY"
    count = request.document["specificSkuProperties"]["totalCount"]
    request.document["status"] |= {"procurementStatus": "FULFILLED", "fulfilledCount": str(count)}


def over(world: World, made: str) -> None:
    """Delete the reservation: no machine can be made in it any more."""
    store.remove(world, "compute", made)


def _invalid(field: str, value: object, why: str) -> GcpError:
    return GcpError("INVALID_ARGUMENT", f"Invalid value for field 'resource.{field}': '{value}'. {why}")


collections.reads(REQUESTS)
changes.inserts(REQUESTS, _check, _submitted)
