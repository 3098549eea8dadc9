"""What EventBridge Scheduler keeps in a region."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import Entry, durations, inventory
from cloudrec_sandbox.aws.api.world import ACCOUNT
from cloudrec_sandbox.aws.services.tagging import tagged_resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.aws.api.world import World

# A one-time schedule invokes its target within the minute of its time (user guide, "Schedule types").
durations({"scheduler-precision": 30, "scheduler-group": 5})

DEFAULT = "default"


@dataclass
class Group:
    """A group of schedules.

    Attributes:
        row: the group as GetScheduleGroup returns it.
        tags: its tags.
        schedules: name -> the schedule as GetSchedule returns it.
    """

    row: dict[str, Any]
    tags: dict[str, str]
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Schedules:
    """The groups of a region by name, without the default one, which cloudrec does not use."""

    groups: dict[str, Group] = field(default_factory=dict)


@tagged_resources
def tagged(world: World, region: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the groups with their tags; a schedule has no tags."""
    for group in world.state(Schedules, region).groups.values():
        yield group.row["Arn"], group.tags


@inventory
def entries(world: World) -> Iterator[Entry]:
    """Yield all groups and schedules."""
    for kept in world.states(Schedules).values():
        for name, group in kept.groups.items():
            is_deleting = group.row["State"] == "DELETING"
            yield Entry("scheduler", "schedule-group", name, is_deleting)
            for schedule in group.schedules:
                yield Entry("scheduler", "schedule", f"{name}/{schedule}", is_deleting)


def group_arn(region: str, name: str) -> str:
    """Return a group's ARN."""
    return f"arn:aws:scheduler:{region}:{ACCOUNT}:schedule-group/{name}"


def schedule_arn(region: str, group: str, name: str) -> str:
    """Return a schedule's ARN."""
    return f"arn:aws:scheduler:{region}:{ACCOUNT}:schedule/{group}/{name}"


def invalid(message: str) -> AwsError:
    """Return the refusal of a request."""
    return AwsError("ValidationException", message, fields={"Message": message})


def absent(message: str) -> AwsError:
    """Return the refusal of a name that nothing has."""
    return AwsError("ResourceNotFoundException", message, status=404, fields={"Message": message})


def conflict(message: str) -> AwsError:
    """Return the refusal of a name in use, or of a group that is being deleted."""
    return AwsError("ConflictException", message, status=409, fields={"Message": message})
