"""The end of a cluster, kept by AWS: EventBridge Scheduler scales the groups of GPU nodes to zero then.

The schedules exist before the first GPU node, and need neither an image nor the Kubernetes API, nor a machine
of the user: a cluster whose `up` was killed ends too. The guard in the cluster is the second line. A schedule
has no tags, so a group with the cluster's tags holds them: one schedule for each group of nodes that `up` may
create. The same group has a schedule that starts the nodes of a Capacity Block when it begins: the block is
paid for, whether or not a client is there. A one-time schedule calls within the minute, and again for a day
while EKS refuses because the group is being created or updated (EventBridge Scheduler's user guide, "Schedule
types" and "Retry policy").
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypedDict

from botocore.exceptions import ClientError

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_EXPIRES, Condition, Observed, Properties
from cloudrec.errors import PreflightError
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.api.driver import AwsDriver, as_list, as_map
from cloudrec.providers.base.driver import is_ours, name_of
from cloudrec.providers.base.protocol import END_SCHEDULE
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from types_boto3_scheduler import EventBridgeSchedulerClient
    from types_boto3_scheduler.type_defs import (
        FlexibleTimeWindowTypeDef,
        GetScheduleOutputTypeDef,
        TargetTypeDef,
    )

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws

END = END_SCHEDULE

_CALL = "scheduler:::aws-sdk:eks:updateNodegroupConfig"
# EKS requires a maxSize of at least 1. Universal targets have the parameters in Pascal case.
_NONE = {"MinSize": 0, "MaxSize": 1, "DesiredSize": 0}
_START = "-start"  # the end of the name of a schedule that starts the nodes
_AGE_S, _ATTEMPTS = 86400, 185  # the most that EventBridge Scheduler allows
_AT_ONCE = 8  # concurrent calls
_GONE_S = 600.0


@dataclass(frozen=True, kw_only=True)
class AwsEndProperties(Properties):
    """The requested properties of the schedules that end a cluster.

    Attributes:
        group: the name of the group of schedules, which is the cluster's name in EKS.
        expires: the end, ISO 8601.
        node_groups: the names of the groups of GPU nodes, sorted.
        role: the ARN of the role that scales them.
        starts: when the groups get their nodes, ISO 8601; empty if they have them at once.
        nodes: how many each gets then.
    """

    group: str
    expires: str
    node_groups: tuple[str, ...]
    role: str
    starts: str = ""
    nodes: int = 0


class _Schedule(TypedDict):
    """The arguments of CreateSchedule and UpdateSchedule."""

    GroupName: str
    Name: str
    ScheduleExpression: str
    FlexibleTimeWindow: FlexibleTimeWindowTypeDef
    Target: TargetTypeDef


class AwsEndDriver(AwsDriver[AwsEndProperties]):
    """Handles the schedules that end a cluster. The identity is the name of their group."""

    kind = END
    changeable = frozenset({"expires", "node_groups", "role", "starts", "nodes"})
    deadline_s = _GONE_S
    poll_s = 2.0

    @property
    def scheduler(self) -> EventBridgeSchedulerClient:
        """EventBridge Scheduler's client."""
        return self.aws.scheduler

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the groups by the prefix of their names, and keep those with the cluster's tag."""
        # The list has no tags: a call for each group reads them.
        pages = self.scheduler.get_paginator("list_schedule_groups").paginate
        rows = self.aws.rows(pages, lambda page: page.get("ScheduleGroups"), NamePrefix=eks.PREFIX)
        found = []
        for row in rows:
            try:
                answer = self.aws.read(self.scheduler.list_tags_for_resource, ResourceArn=row["Arn"])
            except ClientError as error:
                if not errors.is_absent(error):
                    raise
                continue  # deleted since
            tags = as_map(answer.get("Tags"))
            if is_ours(tags, cluster):
                is_deleting = row["State"] == "DELETING"
                found.append(
                    Observed(
                        kind=END,
                        name=name_of(tags, row["Name"]),
                        identity=row["Name"],
                        condition=Condition.DELETING if is_deleting else Condition.READY,
                        tags=tags,
                        location=self.aws.region,
                        created=row["CreationDate"].timestamp(),
                        hourly_usd=FREE,
                    )
                )
        return found

    def find(self, resource: Resource[AwsEndProperties]) -> Observed | None:
        """Find the group by its key, with the ends and targets of its schedules."""
        seen = super().find(resource)
        if seen is None or seen.condition is not Condition.READY:
            return seen
        return replace(seen, properties=self._observed(seen.identity, resource.properties))

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY, or DELETING; EventBridge Scheduler's error if the group does not exist."""
        row = self.aws.read(self.scheduler.get_schedule_group, Name=identity)
        return (Condition.DELETING if row["State"] == "DELETING" else Condition.READY), ""

    def make(self, resource: Resource[AwsEndProperties], *, token: str, identities: Mapping[str, str]) -> str:
        """Create the group, without schedules."""
        del identities
        name = resource.properties.group
        self.scheduler.create_schedule_group(Name=name, Tags=as_list(resource.tags), ClientToken=token)
        return name

    def complete(
        self, resource: Resource[AwsEndProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Create or replace the schedules that differ; a group that was a candidate once may exist."""
        del identities
        asked = resource.properties
        existing = self._schedules(identity)
        # First the tag: if this is interrupted, the next `up` sees that the schedules differ from it.
        _note(self.aws, identity, asked.expires)
        for name in sorted({*_names(asked), *existing}):
            # A start that is not requested any more is at a time when the group has its nodes already.
            if name.endswith(_START) and not asked.starts:
                continue
            wanted = _schedule(asked, identity, name)
            if name not in existing:
                self.scheduler.create_schedule(**wanted, ActionAfterCompletion="DELETE")
            elif _summary(existing[name]) != _summary(wanted):
                self.scheduler.update_schedule(**wanted, ActionAfterCompletion="DELETE")

    def remove(self, observed: Observed) -> None:
        """Begin to delete the group with its schedules."""
        self.scheduler.delete_schedule_group(Name=observed.identity)

    def _observed(self, group: str, asked: AwsEndProperties) -> dict[str, object]:
        """Return what the schedules agree on; a difference in one of them is a difference of the whole."""
        rows = self._schedules(group)
        starting = {name: row for name, row in rows.items() if name.endswith(_START)}
        rows = {name: row for name, row in rows.items() if name not in starting}
        late = [
            name
            for name in _names(asked)
            if name.endswith(_START)
            and (name not in starting or _summary(starting[name]) != _summary(_schedule(asked, group, name)))
        ]
        wrong = [
            name
            for name in {*asked.node_groups, *rows}
            if name not in rows or _summary(rows[name]) != _summary(_schedule(asked, group, name))
        ]
        ends = {_end(row["ScheduleExpression"]) for row in rows.values()} - {_moment(asked.expires)}
        return {
            "group": group,
            # A schedule that differs otherwise, such as in its target, counts as one without an end.
            "expires": asked.expires if not wrong and not ends else ", ".join(sorted(ends)) or "not set",
            "node_groups": tuple(sorted(rows.keys() & set(asked.node_groups))),
            "role": next((row["Target"]["RoleArn"] for row in rows.values()), asked.role),
            "starts": "not set" if late else asked.starts,
            "nodes": asked.nodes,
        }

    def _schedules(self, group: str) -> dict[str, GetScheduleOutputTypeDef]:
        """Return the schedules of a group by name."""
        pages = self.scheduler.get_paginator("list_schedules").paginate
        rows = self.aws.rows(pages, lambda page: page.get("Schedules"), GroupName=group)

        def read(name: str) -> GetScheduleOutputTypeDef | None:
            try:
                return self.aws.read(self.scheduler.get_schedule, GroupName=group, Name=name)
            except ClientError as error:
                if not errors.is_absent(error):
                    raise
                return None  # it has run, and was deleted

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = [*pool.map(read, [row["Name"] for row in rows])]
        return {row["Name"]: row for row in found if row is not None}


def move(aws: Aws, title: str, groups: Sequence[str], expires: str) -> None:
    """Move the schedules of groups of nodes, with the guard's few permissions.

    Those of groups that do not exist are moved too: EventBridge Scheduler would repeat their calls for a day,
    and end the nodes of a group that `up` creates meanwhile.

    Raises:
        PreflightError: there is no schedule of any of these groups.
    """
    cluster = f"{eks.PREFIX}{title}"
    _note(aws, cluster, expires)
    if not [name for name in groups if _moved(aws, cluster, name, expires)]:
        raise PreflightError(f"no group of GPU nodes of {cluster} has a schedule")


def _moved(aws: Aws, group: str, name: str, expires: str) -> bool:
    """Move one schedule; return whether it exists. All but its time stays as it is."""
    try:
        row = aws.read(aws.scheduler.get_schedule, GroupName=group, Name=name)
    except ClientError as error:
        if not errors.is_absent(error):
            raise
        return False  # it has run, and was deleted
    aws.scheduler.update_schedule(
        GroupName=group,
        Name=name,
        ScheduleExpression=f"at({_moment(expires)})",
        FlexibleTimeWindow=row["FlexibleTimeWindow"],
        Target=row["Target"],
        ActionAfterCompletion="DELETE",
    )
    return True


def _note(aws: Aws, group: str, expires: str) -> None:
    """Write the end into the tags of the group of schedules."""
    place = f"{aws.region}:{aws.account}:schedule-group/{group}"
    arn = f"arn:{aws.partition}:scheduler:{place}"
    aws.scheduler.tag_resource(ResourceArn=arn, Tags=as_list({TAG_EXPIRES: expires}))


def _names(asked: AwsEndProperties) -> list[str]:
    """Return the names of the schedules: that of each group of nodes, and of its start."""
    starts = [f"{name}{_START}" for name in asked.node_groups] if asked.starts else []
    return [*asked.node_groups, *starts]


def _schedule(asked: AwsEndProperties, group: str, name: str) -> _Schedule:
    """Return the schedule that scales one group of nodes to zero, or from zero if it is that of its start."""
    is_start = name.endswith(_START)
    full = {"MinSize": asked.nodes, "MaxSize": asked.nodes, "DesiredSize": asked.nodes}
    call = {
        "ClusterName": group,
        "NodegroupName": name.removesuffix(_START),
        "ScalingConfig": full if is_start else _NONE,
    }
    when = asked.starts if is_start else asked.expires
    return {
        "GroupName": group,
        "Name": name,
        "ScheduleExpression": f"at({_moment(when)})",  # in UTC without a time zone
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": f"arn:{asked.role.split(':', 2)[1]}:{_CALL}",
            "RoleArn": asked.role,
            "Input": json.dumps(call),
            "RetryPolicy": {"MaximumEventAgeInSeconds": _AGE_S, "MaximumRetryAttempts": _ATTEMPTS},
        },
    }


def _summary(row: _Schedule | GetScheduleOutputTypeDef) -> tuple[object, ...]:
    """Return what must agree in the wanted and the existing schedule."""
    target = row["Target"]
    return (
        row["ScheduleExpression"],
        row["FlexibleTimeWindow"]["Mode"],
        target["Arn"],
        target["RoleArn"],
        safe_json(target.get("Input") or "null"),
        target.get("RetryPolicy"),
    )


def _moment(expires: str) -> str:
    """Return an end as the expression `at` has it: in UTC, with seconds."""
    return f"{datetime.fromisoformat(expires).astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def _end(expression: str) -> str:
    return expression.removeprefix("at(").removesuffix(")")
