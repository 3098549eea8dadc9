"""The Auto Scaling groups of node groups, described beside moto's own, with their activities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec_sandbox.aws.api.registry import Entry, inventory, operation
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

_MOST_ACTIVITIES = 100


@dataclass
class ScalingGroup:
    """One group, its activities newest first."""

    document: dict[str, Any]
    activities: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class ScalingGroups:
    """The groups of a region by name."""

    groups: dict[str, ScalingGroup] = field(default_factory=dict)


def add_activity(
    world: World,
    group: ScalingGroup,
    description: str,
    *,
    failure: str = "",
    zone: str = "",
    cause: str = "At the request of Amazon EKS.",
) -> None:
    """Record what the group did, or could not do."""
    moment = as_datetime(world.now())
    group.activities.insert(
        0,
        {
            "ActivityId": str(uuid4()),
            "AutoScalingGroupName": group.document["AutoScalingGroupName"],
            "Description": description,
            "Cause": cause,
            "StartTime": moment,
            "EndTime": moment,
            "StatusCode": "Failed" if failure else "Successful",
            "StatusMessage": failure,
            "Progress": 100,
            "Details": f'{{"Availability Zone":"{zone}"}}',
        },
    )
    del group.activities[_MOST_ACTIVITIES:]


@operation("autoscaling", "DescribeAutoScalingGroups")
def describe_auto_scaling_groups(call: Call) -> dict[str, Any]:
    """Add the node groups' Auto Scaling groups to moto's."""
    output = call.output()
    names = call.params.get("AutoScalingGroupNames")
    filters = call.params.get("Filters", [])
    output["AutoScalingGroups"] += [
        group.document
        for name, group in call.world.state(ScalingGroups, call.region).groups.items()
        if (not names or name in names) and all(_matches(group.document["Tags"], wish) for wish in filters)
    ]
    return output


def _matches(tags: list[dict[str, str]], wish: dict[str, Any]) -> bool:
    name, values = wish["Name"], wish["Values"]
    if name == "tag-key":
        return any(tag["Key"] in values for tag in tags)
    if name == "tag-value":
        return any(tag["Value"] in values for tag in tags)
    return any(f"tag:{tag['Key']}" == name and tag["Value"] in values for tag in tags)


@operation("autoscaling", "DescribeScalingActivities")
def describe_scaling_activities(call: Call) -> dict[str, Any]:
    """Return the activities of a node group's Auto Scaling group, or moto's."""
    groups = call.world.state(ScalingGroups, call.region).groups
    name = call.params.get("AutoScalingGroupName")
    if name is not None and name not in groups:
        return call.output()
    chosen = [groups[name]] if name else list(groups.values())
    activities = [activity for group in chosen for activity in group.activities]
    start = int(call.params.get("NextToken") or 0)
    end = start + int(call.params.get("MaxRecords") or _MOST_ACTIVITIES)
    token = {"NextToken": str(end)} if end < len(activities) else {}
    return {"Activities": activities[start:end], **token}


@inventory
def groups_of_nodes(world: World) -> Iterator[Entry]:
    """Yield the node groups' Auto Scaling groups."""
    for state in world.states(ScalingGroups).values():
        for name in state.groups:
            yield Entry("autoscaling", "group", name)
