"""EventBridge Scheduler's operations.

The limits and error shapes are those of botocore's model of the service. The rules of the target are from
the user guide, "Using universal targets": the ARN names a service and an operation in lower camel case,
operations that only read are refused, and Input has the operation's parameters in Pascal case, with the
required ones. moto's scheduler accepts groups twice and checks no target.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.services.scheduler import invocations, targets
from cloudrec_sandbox.aws.services.scheduler.state import (
    DEFAULT,
    Group,
    Schedules,
    absent,
    conflict,
    group_arn,
    invalid,
    schedule_arn,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

_MAX_GROUPS = 500  # quota "Schedule groups" of a region
_PAGE = 50
_NAME = re.compile(r"[0-9a-zA-Z\-_.]{1,64}")


@operation("scheduler", "CreateScheduleGroup")
def create_group(call: Call) -> dict[str, Any]:
    """Create a group; ConflictException for the name of another one."""
    name, groups = call.params["Name"], _groups(call)
    _check_name("name", name)
    if name in groups or name == DEFAULT:
        raise conflict(f"Schedule group {name} already exists.")
    if len(groups) >= _MAX_GROUPS:
        raise AwsError(
            "ServiceQuotaExceededException", "The quota of schedule groups is reached.", status=402
        )
    now = call.world.now()
    row = {
        "Arn": group_arn(call.region, name),
        "Name": name,
        "State": "ACTIVE",
        "CreationDate": now,
        "LastModificationDate": now,
    }
    groups[name] = Group(row=row, tags=_tags(call))
    return {"ScheduleGroupArn": row["Arn"]}


@operation("scheduler", "GetScheduleGroup")
def get_group(call: Call) -> dict[str, Any]:
    """Return a group."""
    return dict(_group(call, call.params["Name"]).row)


@operation("scheduler", "ListScheduleGroups")
def list_groups(call: Call) -> dict[str, Any]:
    """Return the groups whose names begin with NamePrefix, in pages."""
    front = call.params.get("NamePrefix", "")
    rows = [dict(group.row) for name, group in sorted(_groups(call).items()) if name.startswith(front)]
    return _page(call, "ScheduleGroups", rows)


@operation("scheduler", "DeleteScheduleGroup")
def delete_group(call: Call) -> dict[str, Any]:
    """Begin to delete a group with its schedules, which may still run until they are deleted."""
    group = _group(call, call.params["Name"])
    if group.row["State"] != "DELETING":
        group.row["State"] = "DELETING"
        call.world.after(call.world.duration("scheduler-group"), _forget, call.region, group.row["Name"])
    return {}


def _forget(world: World, region: str, name: str) -> None:
    world.state(Schedules, region).groups.pop(name, None)


@operation("scheduler", "CreateSchedule")
def create(call: Call) -> dict[str, Any]:
    """Create a schedule; ConflictException for the name of another one in the group."""
    name, group = call.params["Name"], _active(call)
    _check_name("name", name)
    if name in group.schedules:
        raise conflict(f"Schedule {name} already exists.")
    now = call.world.now()
    row = {**_row(call, group), "Name": name, "CreationDate": now, "LastModificationDate": now}
    group.schedules[name] = row
    invocations.plan(call.world, call.region, row)
    return {"ScheduleArn": row["Arn"]}


@operation("scheduler", "UpdateSchedule")
def update(call: Call) -> dict[str, Any]:
    """Replace a schedule: what the request leaves out has its default afterwards (the API reference)."""
    group = _active(call)
    before = _schedule(group, call.params["Name"])
    row = {**_row(call, group), "Name": before["Name"], "CreationDate": before["CreationDate"]}
    row["LastModificationDate"] = call.world.now()
    group.schedules[before["Name"]] = row
    invocations.plan(call.world, call.region, row)
    return {"ScheduleArn": row["Arn"]}


@operation("scheduler", "GetSchedule")
def get(call: Call) -> dict[str, Any]:
    """Return a schedule."""
    row = _schedule(_group(call, call.params.get("GroupName", DEFAULT)), call.params["Name"])
    return {name: value for name, value in row.items() if not name.startswith("_")}


@operation("scheduler", "DeleteSchedule")
def delete(call: Call) -> dict[str, Any]:
    """Delete a schedule."""
    group = _group(call, call.params.get("GroupName", DEFAULT))
    _schedule(group, call.params["Name"])
    del group.schedules[call.params["Name"]]
    return {}


@operation("scheduler", "ListSchedules")
def list_all(call: Call) -> dict[str, Any]:
    """Return a group's schedules in short, in pages."""
    name = call.params.get("GroupName")
    groups = [_group(call, name)] if name else list(_groups(call).values())
    rows = [
        {
            "Arn": row["Arn"],
            "Name": row["Name"],
            "GroupName": row["GroupName"],
            "State": row["State"],
            "Target": {"Arn": row["Target"]["Arn"]},
        }
        for group in groups
        for row in group.schedules.values()
        if row["Name"].startswith(call.params.get("NamePrefix", ""))
        and row["State"] == call.params.get("State", row["State"])
    ]
    return _page(call, "Schedules", rows)


@operation("scheduler", "ListTagsForResource")
def list_tags(call: Call) -> dict[str, Any]:
    """Return a group's tags."""
    return {"Tags": [{"Key": key, "Value": value} for key, value in _tagged(call).tags.items()]}


@operation("scheduler", "TagResource")
def tag(call: Call) -> dict[str, Any]:
    """Add tags to a group."""
    _tagged(call).tags.update(_tags(call))
    return {}


@operation("scheduler", "UntagResource")
def untag(call: Call) -> dict[str, Any]:
    """Remove tags from a group."""
    tags = _tagged(call).tags
    for key in call.params["TagKeys"]:
        tags.pop(key, None)
    return {}


def _row(call: Call, group: Group) -> dict[str, Any]:
    """Return the schedule that the request describes; AwsError for a request that the service refuses."""
    wish = call.params
    window = wish["FlexibleTimeWindow"]
    if window["Mode"] not in {"OFF", "FLEXIBLE"}:
        raise invalid("FlexibleTimeWindow.Mode must be OFF or FLEXIBLE.")
    if (window["Mode"] == "FLEXIBLE") != ("MaximumWindowInMinutes" in window):
        raise invalid("MaximumWindowInMinutes is for the mode FLEXIBLE, which requires it.")
    zone = wish.get("ScheduleExpressionTimezone", "UTC")
    invocations.moment(wish["ScheduleExpression"], zone)  # raises for one that cannot be parsed
    for name, choices in (("State", ("ENABLED", "DISABLED")), ("ActionAfterCompletion", ("NONE", "DELETE"))):
        if wish.get(name, choices[0]) not in choices:
            raise invalid(f"{name} must be one of {', '.join(choices)}.")
    return {
        "Arn": schedule_arn(call.region, group.row["Name"], wish["Name"]),
        "GroupName": group.row["Name"],
        "Description": wish.get("Description", ""),
        "ScheduleExpression": wish["ScheduleExpression"],
        "ScheduleExpressionTimezone": zone,
        "FlexibleTimeWindow": dict(window),
        "State": wish.get("State", "ENABLED"),
        "ActionAfterCompletion": wish.get("ActionAfterCompletion", "NONE"),
        "Target": targets.checked(call.world, group.row["Arn"], wish["Target"]),
        # The schedule's version: an invocation that was planned for an earlier one does not take place.
        "_version": call.world.now(),
    }


def _check_name(where: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid(
            f"1 validation error detected: Value '{name}' at '{where}' failed to satisfy constraint: "
            r"Member must satisfy regular expression pattern: ^[0-9a-zA-Z-_.]+$, of length 1 to 64"
        )


def _groups(call: Call) -> dict[str, Group]:
    return call.world.state(Schedules, call.region).groups


def _group(call: Call, name: str) -> Group:
    group = _groups(call).get(name)
    if group is None:
        raise absent(f"Schedule group {name} does not exist.")
    return group


def _active(call: Call) -> Group:
    group = _group(call, call.params.get("GroupName", DEFAULT))
    if group.row["State"] != "ACTIVE":
        raise conflict(f"Schedule group {group.row['Name']} is being deleted.")
    return group


def _schedule(group: Group, name: str) -> dict[str, Any]:
    if name not in group.schedules:
        raise absent(f"Schedule {name} does not exist.")
    return group.schedules[name]


def _tagged(call: Call) -> Group:
    return _group(call, call.params["ResourceArn"].rpartition("/")[2])


def _tags(call: Call) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in call.params.get("Tags", [])}


def _page(call: Call, name: str, rows: list[Mapping[str, Any]] | list[dict[str, Any]]) -> dict[str, Any]:
    start = int(call.params.get("NextToken") or 0)
    end = start + int(call.params.get("MaxResults") or _PAGE)
    more = {"NextToken": str(end)} if end < len(rows) else {}
    return {name: rows[start:end], **more}
