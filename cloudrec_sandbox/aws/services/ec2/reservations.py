"""Capacity reservations and capacity blocks, which moto lacks.

`capacity_blocks` of /_control: how many instances can be bought, {"p5.48xlarge/us-east-1a": 8}; without an
entry there is one block of 4 instances in the region's first zone for every type that is sold in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import Entry, inventory, operation, setting
from cloudrec_sandbox.aws.services.ec2.filters import matching
from cloudrec_sandbox.aws.services.prices import on_demand
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

_SOLD = ("p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge")
_LOT = 4  # instances on offer unless set otherwise
_STARTS_AT = timedelta(hours=11, minutes=30)  # blocks begin at this time of a day, UTC
_DAYS_AHEAD = 1
# botocore's model: in steps of a day up to 14 days, then of 7 days up to 182 days.
_HOURS = [day * 24 for day in (*range(1, 15), *range(21, 183, 7))]
_GONE = ("cancelled", "expired")
_DISCOUNT = 0.75  # price of a block in parts of the on-demand price


@dataclass
class Reservations:
    """Rows as DescribeCapacityReservations shows them, and the blocks offered, by id."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    offers: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Blocks:
    """The blocks that /_control has put on sale, by "type/zone"."""

    left: dict[str, int] = field(default_factory=dict)


def _write(world: World, blocks: Mapping[str, Any]) -> None:
    for name in blocks:
        if name.count("/") != 1:
            raise ValueError(f"capacity_blocks {name!r} is not TYPE/ZONE")
    world.state(Blocks).left.update({name: int(number) for name, number in blocks.items()})


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
    if kind not in _SOLD:
        return {"CapacityBlockOfferings": []}
    start = _start(call, wanted)
    end = start + timedelta(hours=hours)
    latest = wanted.get("EndDateRange")
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
    return {"CapacityBlockOfferings": rows}


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
        "State": "scheduled",
        "StartDate": offered["StartDate"],
        "EndDate": offered["EndDate"],
        "EndDateType": "limited",
        "InstanceMatchCriteria": "targeted",
        "ReservationType": "capacity-block",
    }
    kept.rows[row["CapacityReservationId"]] = row
    for moment, state in ((offered["StartDate"], "active"), (offered["EndDate"], "expired")):
        delay = moment.timestamp() - call.world.now()
        call.world.after(delay, _become, call.region, row["CapacityReservationId"], state)
    return {"CapacityReservation": row, "CapacityBlocks": []}


def _become(world: World, region: str, name: str, state: str) -> None:
    row = world.state(Reservations, region).rows[name]
    if row["State"] not in _GONE:
        row["State"] = state


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
    try:
        return rows[name]
    except KeyError:
        raise AwsError(
            "InvalidCapacityReservationId.NotFound", f"The capacity reservation ID '{name}' was not found."
        ) from None


@inventory
def capacity_reservations(world: World) -> Iterator[Entry]:
    """Yield all reservations."""
    for kept in world.states(Reservations).values():
        for name, row in kept.rows.items():
            yield Entry("ec2", "capacity-reservation", name, row["State"] in _GONE)
