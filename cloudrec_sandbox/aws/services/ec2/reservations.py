"""Capacity reservations and capacity blocks, which moto lacks.

The rules are those of botocore's model of the operations and of EC2's user guide ("Find and purchase Capacity
Blocks", "Launch instances using Capacity Blocks", "How Capacity Blocks work"): up to 64 instances and 6
offers, an end at 11:30 UTC, payment within 12 hours, launches only while it is active, in its zone and by its
id, and no more instances than it has. EC2 ends the instances 30 minutes before a block ends.

`capacity_blocks` of /_control: how many instances can be bought, {"p5.48xlarge/us-east-1a": 8}; without an
entry there is one block of 4 instances in the region's first zone for every type that is sold in blocks.
`capacity_block_payment` of /_control: "processed" or "failed", the end of payments from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import Entry, durations, inventory, operation, setting
from cloudrec_sandbox.aws.services import capacity
from cloudrec_sandbox.aws.services.ec2.filters import matching
from cloudrec_sandbox.aws.services.prices import on_demand
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

durations({"capacity-block-payment": 30})

_SOLD = ("p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge")
_LOT = 4  # instances on offer unless set otherwise
_STARTS_AT = timedelta(hours=11, minutes=30)  # blocks begin at this time of a day, UTC
_DAYS_AHEAD = 1
# botocore's model: in steps of a day up to 14 days, then of 7 days up to 182 days.
_HOURS = [day * 24 for day in (*range(1, 15), *range(21, 183, 7))]
_GONE = ("cancelled", "expired", "payment-failed")
_MOST, _OFFERS = 64, 6  # instances of a block, and offers of an answer
_AHEAD = timedelta(weeks=8)  # blocks are sold so long in advance
_TAKEN_BACK_S = 30 * 60.0  # before a block ends, EC2 ends its instances
_DISCOUNT = 0.75  # price of a block in parts of the on-demand price


@dataclass
class Reservations:
    """Rows as DescribeCapacityReservations shows them, and the blocks offered, by id."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    offers: dict[str, dict[str, Any]] = field(default_factory=dict)
    used: dict[str, list[str]] = field(default_factory=dict)  # reservation -> its instances


@dataclass
class Blocks:
    """The blocks that /_control has put on sale, by "type/zone"."""

    left: dict[str, int] = field(default_factory=dict)
    payment: str = "processed"


def _write(world: World, blocks: Mapping[str, Any]) -> None:
    for name in blocks:
        if name.count("/") != 1:
            raise ValueError(f"capacity_blocks {name!r} is not TYPE/ZONE")
    world.state(Blocks).left.update({name: int(number) for name, number in blocks.items()})


def _write_payment(world: World, outcome: str) -> None:
    if outcome not in ("processed", "failed"):
        raise ValueError(f"capacity_block_payment {outcome!r} is not processed or failed")
    world.state(Blocks).payment = outcome


setting("capacity_block_payment", read=lambda world: world.state(Blocks).payment, write=_write_payment)
setting("capacity_blocks", read=lambda world: dict(world.state(Blocks).left), write=_write)


@operation("ec2", "DescribeCapacityBlockOfferings")
def offer(call: Call) -> dict[str, Any]:
    """Return blocks of the requested type, number and length, at most one for each zone."""
    wanted = call.params
    hours, count = wanted["CapacityDurationHours"], wanted.get("InstanceCount", 1)
    kind = wanted.get("InstanceType")
    if hours not in _HOURS:
        raise AwsError(
            "InvalidParameterValue", f"Value ({hours}) for parameter capacityDurationHours is invalid."
        )
    if not 1 <= count <= _MOST:
        raise AwsError("InvalidParameterValue", f"Value ({count}) for parameter instanceCount is invalid.")
    if kind is not None and not capacity.exists(kind):
        raise AwsError("InvalidParameterValue", f"Value ({kind}) for parameter instanceType is invalid.")
    latest = wanted.get("EndDateRange")
    earliest = wanted.get("StartDateRange")
    if latest is not None and earliest is not None and _aware(latest) <= _aware(earliest):
        raise AwsError("InvalidParameterValue", "EndDateRange must be later than StartDateRange.")
    if kind not in _SOLD:
        return {"CapacityBlockOfferings": []}
    start = _start(call, wanted)
    end = start + timedelta(hours=hours)
    if start > as_datetime(call.world.now()) + _AHEAD:
        return {"CapacityBlockOfferings": []}
    if latest is not None and end > _aware(latest):
        return {"CapacityBlockOfferings": []}
    rows = []
    for zone, left in _on_sale(call, kind).items():
        if left < count:
            continue
        row = {
            "CapacityBlockOfferingId": f"cb-{uuid4().hex[:17]}",
            "InstanceType": kind,
            "AvailabilityZone": zone,
            "InstanceCount": count,
            "StartDate": start,
            "EndDate": end,
            "CapacityBlockDurationHours": hours,
            "UpfrontFee": f"{on_demand(kind, call.region) * _DISCOUNT * hours * count:.2f}",
            "CurrencyCode": "USD",
            "Tenancy": "default",
        }
        call.world.state(Reservations, call.region).offers[row["CapacityBlockOfferingId"]] = row
        rows.append(row)
    return {"CapacityBlockOfferings": rows[:_OFFERS]}


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _start(call: Call, wanted: Mapping[str, Any]) -> datetime:
    earliest = as_datetime(call.world.now()) + timedelta(days=_DAYS_AHEAD)
    if "StartDateRange" in wanted:
        earliest = max(earliest, _aware(wanted["StartDateRange"]))
    start = earliest.replace(hour=0, minute=0, second=0, microsecond=0) + _STARTS_AT
    return start if start >= earliest else start + timedelta(days=1)


def _on_sale(call: Call, kind: str) -> dict[str, int]:
    sold = {
        name.partition("/")[2]: left
        for name, left in call.world.state(Blocks).left.items()
        if name.startswith(f"{kind}/{call.region}")
    }
    return sold or {f"{call.region}a": _LOT}


@operation("ec2", "PurchaseCapacityBlock")
def purchase(call: Call) -> dict[str, Any]:
    """Buy an offered block: a reservation that is scheduled and becomes active at its start."""
    kept = call.world.state(Reservations, call.region)
    offered = kept.offers.pop(call.params["CapacityBlockOfferingId"], None)
    if offered is None:
        raise AwsError(
            "InvalidCapacityBlockOfferingId.NotFound",
            f"The capacity block offering '{call.params['CapacityBlockOfferingId']}' does not exist.",
        )
    # A bought block is no longer on sale.
    blocks = call.world.state(Blocks).left
    key = f"{offered['InstanceType']}/{offered['AvailabilityZone']}"
    blocks[key] = blocks.get(key, _LOT) - offered["InstanceCount"]
    row = _row(call, offered) | {
        "State": "payment-pending",
        "StartDate": offered["StartDate"],
        "EndDate": offered["EndDate"],
        "EndDateType": "limited",
        "InstanceMatchCriteria": "targeted",
        "ReservationType": "capacity-block",
    }
    name = row["CapacityReservationId"]
    kept.rows[name] = row
    now, end = call.world.now(), offered["EndDate"].timestamp()
    fee = float(offered["UpfrontFee"])
    call.world.after(call.world.duration("capacity-block-payment"), _pay, call.region, name, fee)
    call.world.after(offered["StartDate"].timestamp() - now, _become, call.region, name, "active")
    call.world.after(end - _TAKEN_BACK_S - now, _take_back, call.region, name)
    call.world.after(end - now, _become, call.region, name, "expired")
    return {"CapacityReservation": dict(row), "CapacityBlocks": []}


def _pay(world: World, region: str, name: str, fee: float) -> None:
    row = world.state(Reservations, region).rows[name]
    if world.state(Blocks).payment == "failed":
        row["State"] = "payment-failed"
        return
    if row["State"] == "payment-pending":
        row["State"] = "scheduled"
    if world.bill is not None:
        world.bill.once("capacity-block", name, fee)


def _take_back(world: World, region: str, name: str) -> None:
    """End the instances of a block, and admit no more."""
    kept = world.state(Reservations, region)
    kept.rows[name]["AvailableInstanceCount"] = 0
    ec2 = world.backend("ec2", region)
    for instance in kept.used.pop(name, []):
        if ec2.get_instance(instance).state != "terminated":
            ec2.terminate_instances([instance])


def _become(world: World, region: str, name: str, state: str) -> None:
    row = world.state(Reservations, region).rows[name]
    if row["State"] not in _GONE:
        row["State"] = state


def fault(world: World, region: str, data: Mapping[str, Any], *, kind: str, zone: str) -> AwsError | None:
    """Return why an instance cannot be launched in the reservation that the parameters name.

    None if it can, or if they name none. The codes are those of "Error codes for the Amazon EC2 API".
    """
    name = target(data)
    if not name:
        return None
    row = world.state(Reservations, region).rows.get(name)
    if row is None:
        return _missing(name)
    if row["State"] != "active":
        return AwsError(
            "InvalidCapacityReservationState", f"The Capacity Reservation '{name}' is {row['State']}."
        )
    if (row["InstanceType"], row["AvailabilityZone"]) != (kind, zone):
        return AwsError(
            "InvalidParameterValue",
            f"The Capacity Reservation '{name}' is for {row['InstanceType']} in {row['AvailabilityZone']},"
            f" and not for {kind} in {zone}.",
        )
    if row["AvailableInstanceCount"] < 1:
        return AwsError(
            "ReservationCapacityExceeded",
            f"The requested reservation '{name}' does not have sufficient compatible and available capacity"
            " for this request.",
        )
    return None


def target(data: Mapping[str, Any]) -> str:
    """Return the reservation that a launch template names; empty for none."""
    named = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    return str(named.get("CapacityReservationId") or "")


def use(world: World, region: str, name: str, instance: str) -> None:
    """Count an instance in a reservation."""
    kept = world.state(Reservations, region)
    kept.used.setdefault(name, []).append(instance)
    kept.rows[name]["AvailableInstanceCount"] -= 1


def leave(world: World, region: str, instance: str) -> bool:
    """Return an instance to its reservation; return whether it had one."""
    kept = world.state(Reservations, region)
    for name, instances in kept.used.items():
        if instance in instances:
            instances.remove(instance)
            kept.rows[name]["AvailableInstanceCount"] += 1
            return True
    return False


def is_prepaid(world: World, region: str, instance: str) -> bool:
    """Return whether an instance runs in a block, which is paid for in advance."""
    kept = world.state(Reservations, region)
    return any(
        instance in instances and kept.rows[name]["ReservationType"] == "capacity-block"
        for name, instances in kept.used.items()
    )


def idle(world: World, region: str) -> Iterator[tuple[str, str, int]]:
    """Yield each active reservation that is no block, with its type and its number of unused instances."""
    for name, row in world.state(Reservations, region).rows.items():
        if row["State"] == "active" and row["ReservationType"] == "default":
            yield name, row["InstanceType"], row["AvailableInstanceCount"]


def _row(call: Call, wanted: Mapping[str, Any]) -> dict[str, Any]:
    name = f"cr-{uuid4().hex[:17]}"
    return {
        "CapacityReservationId": name,
        "OwnerId": call.account,
        "CapacityReservationArn": f"arn:aws:ec2:{call.region}:{call.account}:capacity-reservation/{name}",
        "InstanceType": wanted["InstanceType"],
        "InstancePlatform": call.params["InstancePlatform"],
        "AvailabilityZone": wanted["AvailabilityZone"],
        "Tenancy": "default",
        "TotalInstanceCount": wanted["InstanceCount"],
        "AvailableInstanceCount": wanted["InstanceCount"],
        "EbsOptimized": False,
        "EphemeralStorage": False,
        "CreateDate": as_datetime(call.world.now()),
        "Tags": [
            tag
            for specification in call.params.get("TagSpecifications", [])
            for tag in specification.get("Tags", [])
        ],
    }


@operation("ec2", "CreateCapacityReservation")
def create(call: Call) -> dict[str, Any]:
    """Create a reservation, which is active at once."""
    wanted = call.params
    if "AvailabilityZone" not in wanted:
        raise AwsError("MissingParameter", "The request must contain the parameter availabilityZone")
    row = _row(call, wanted) | {
        "State": "active",
        "StartDate": as_datetime(call.world.now()),
        "EndDateType": wanted.get("EndDateType", "unlimited"),
        "InstanceMatchCriteria": wanted.get("InstanceMatchCriteria", "open"),
        "ReservationType": "default",
    }
    call.world.state(Reservations, call.region).rows[row["CapacityReservationId"]] = row
    return {"CapacityReservation": row}


@operation("ec2", "DescribeCapacityReservations")
def describe(call: Call) -> dict[str, Any]:
    """Return the requested reservations, or all."""
    rows, wanted = call.world.state(Reservations, call.region).rows, call.params
    found = [_find(rows, name) for name in wanted.get("CapacityReservationIds") or list(rows)]
    filters = {
        "state": lambda row: row["State"],
        "instance-type": lambda row: row["InstanceType"],
        "availability-zone": lambda row: row["AvailabilityZone"],
        "reservation-type": lambda row: row["ReservationType"],
    }
    return {"CapacityReservations": matching(found, wanted.get("Filters", []), filters)}


@operation("ec2", "CancelCapacityReservation")
def cancel(call: Call) -> dict[str, Any]:
    """Cancel a reservation; a block that has been paid cannot be cancelled."""
    rows = call.world.state(Reservations, call.region).rows
    row = _find(rows, call.params["CapacityReservationId"])
    # botocore's model: a Capacity Block cannot be changed or cancelled.
    if row["ReservationType"] == "capacity-block":
        raise AwsError("InvalidState", "Capacity Blocks can't be cancelled.")
    row["State"] = "cancelled"
    return {"Return": True}


def _find(rows: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    if name not in rows:
        raise _missing(name)
    return rows[name]


def _missing(name: str) -> AwsError:
    return AwsError(
        "InvalidCapacityReservationId.NotFound", f"The capacity reservation ID '{name}' was not found."
    )


@inventory
def capacity_reservations(world: World) -> Iterator[Entry]:
    """Yield all reservations."""
    for kept in world.states(Reservations).values():
        for name, row in kept.rows.items():
            yield Entry("ec2", "capacity-reservation", name, row["State"] in _GONE)
