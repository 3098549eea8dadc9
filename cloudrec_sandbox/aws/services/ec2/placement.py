"""Placement groups, which moto lacks.

Durations: placement-group (until available, and until gone); placement-release, for which a group stays in
use after its instances have terminated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import Entry, durations, inventory, operation
from cloudrec_sandbox.aws.services.ec2.filters import matching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

durations({"placement-group": 2, "placement-release": 20})

_STRATEGIES = ("cluster", "spread", "partition")


@dataclass
class Groups:
    """Rows as DescribePlacementGroups shows them, by name; when an instance was first seen terminated."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)


@operation("ec2", "CreatePlacementGroup")
def create(call: Call) -> dict[str, Any]:
    """Make a group, which is pending for a moment; refuse a name that is taken."""
    wanted, rows = call.params, call.world.state(Groups, call.region).rows
    name, strategy = wanted.get("GroupName"), wanted.get("Strategy", "cluster")
    if not name:
        raise AwsError("MissingParameter", "The request must contain the parameter groupName")
    if strategy not in _STRATEGIES:
        raise AwsError("InvalidParameterValue", f"Value ({strategy}) for parameter strategy is invalid.")
    if name in rows:
        raise AwsError("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")
    group_id = f"pg-{uuid4().hex[:17]}"
    rows[name] = {
        "GroupName": name,
        "State": "pending",
        "Strategy": strategy,
        "GroupId": group_id,
        "GroupArn": f"arn:aws:ec2:{call.region}:{call.account}:placement-group/{name}",
        "Tags": [
            tag
            for specification in wanted.get("TagSpecifications", [])
            for tag in specification.get("Tags", [])
        ],
    }
    if strategy == "partition":
        rows[name]["PartitionCount"] = wanted.get("PartitionCount", 2)
    call.world.after(call.world.duration("placement-group"), _be_available, call.region, name, group_id)
    return {"PlacementGroup": dict(rows[name])}


def _be_available(world: World, region: str, name: str, group_id: str) -> None:
    # The group may have been deleted since, and another one made with its name.
    row = world.state(Groups, region).rows.get(name)
    if row and row["GroupId"] == group_id and row["State"] == "pending":
        row["State"] = "available"


@operation("ec2", "DescribePlacementGroups")
def describe(call: Call) -> dict[str, Any]:
    """Return the requested groups; an unknown name or id is an error."""
    wanted, rows = call.params, call.world.state(Groups, call.region).rows
    found = list(rows.values())
    for parameter, member in (("GroupNames", "GroupName"), ("GroupIds", "GroupId")):
        if names := wanted.get(parameter):
            if missing := set(names) - {row[member] for row in rows.values()}:
                raise _unknown(min(missing))
            found = [row for row in found if row[member] in names]
    filters = {
        "group-name": lambda row: row["GroupName"],
        "group-arn": lambda row: row["GroupArn"],
        "state": lambda row: row["State"],
        "strategy": lambda row: row["Strategy"],
    }
    return {"PlacementGroups": matching(found, wanted.get("Filters", []), filters)}


@operation("ec2", "DeletePlacementGroup")
def delete(call: Call) -> dict[str, Any]:
    """Begin to delete a group; refuse it while one of its instances is not fully terminated."""
    name, rows = call.params["GroupName"], call.world.state(Groups, call.region).rows
    if name not in rows:
        raise _unknown(name)
    held = [_holds(call, instance) for instance in _instances(call.backend(), name)]
    if any(held):
        raise AwsError(
            "InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use and may not be deleted."
        )
    rows[name]["State"] = "deleting"
    call.world.after(call.world.duration("placement-group"), _finish, call.region, name)
    return {}


def _finish(world: World, region: str, name: str) -> None:
    world.state(Groups, region).rows.pop(name, None)


def _unknown(name: str) -> AwsError:
    return AwsError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")


def _instances(ec2: Any, name: str) -> Iterator[Any]:  # noqa: ANN401 - moto's own
    for reservation in ec2.reservations.values():
        yield from (instance for instance in reservation.instances if group_of(instance) == name)


def _holds(call: Call, instance: Any) -> bool:  # noqa: ANN401 - moto's instance
    """Return whether an instance keeps its group in use; a terminated one does for some seconds."""
    if instance.state != "terminated":
        return True
    ended = call.world.state(Groups, call.region).ended
    # moto has no moment of termination, so it counts from when it was first seen.
    since = ended.setdefault(instance.id, call.world.now())
    return call.world.now() < since + call.world.duration("placement-release")


def group_of(instance: Any) -> str:  # noqa: ANN401 - moto's instance
    """Return the placement group that an instance was started in; empty if none."""
    return str(getattr(instance.placement, "group_name", None) or "")


@inventory
def placement_groups(world: World) -> Iterator[Entry]:
    """Yield all placement groups."""
    for groups in world.states(Groups).values():
        for name, row in groups.rows.items():
            yield Entry("ec2", "placement-group", name, row["State"] == "deleting")
