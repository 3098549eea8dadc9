"""EventBridge Scheduler: what it refuses, and the calls of its schedules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sandbox.aws.support import Aws, refused, trust

GROUP = "arn:aws:scheduler:us-east-1:123456789012:schedule-group/g"
TARGET = "arn:aws:scheduler:::aws-sdk:eks:updateNodegroupConfig"
INPUT = {"ClusterName": "c", "NodegroupName": "n", "ScalingConfig": {"MinSize": 0, "DesiredSize": 0}}


def role(
    aws: Aws, name: str = "end", document: str = "", *, action: str = "eks:UpdateNodegroupConfig"
) -> str:
    iam = aws.client("iam")
    made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document or trust("scheduler"))
    statement = {"Effect": "Allow", "Action": action, "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=policy)
    aws.advance(60)
    return str(made["Role"]["Arn"])


def schedule(arn: str, **changes: Any) -> dict[str, Any]:
    target = {"Arn": TARGET, "RoleArn": arn, "Input": json.dumps(INPUT), **changes.pop("target", {})}
    return {
        "Name": "s",
        "GroupName": "g",
        "ScheduleExpression": "at(2100-01-01T00:00:00)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": target,
        **changes,
    }


@pytest.fixture
def end(aws: Aws) -> str:
    aws.client("scheduler").create_schedule_group(Name="g", Tags=[{"Key": "a", "Value": "b"}])
    return role(aws)


def test_a_name_in_use_is_a_conflict(aws: Aws, end: str) -> None:
    client = aws.client("scheduler")
    with refused("ConflictException", "already exists"):
        client.create_schedule_group(Name="g")
    client.create_schedule(**schedule(end))
    with refused("ConflictException", "already exists"):
        client.create_schedule(**schedule(end))


def test_groups_and_schedules_that_do_not_exist_are_not_found(aws: Aws, end: str) -> None:
    client = aws.client("scheduler")
    with refused("ResourceNotFoundException", "group"):
        client.create_schedule(**schedule(end, GroupName="other"))
    with refused("ResourceNotFoundException"):
        client.update_schedule(**schedule(end))
    with refused("ResourceNotFoundException"):
        client.get_schedule(GroupName="g", Name="s")
    with refused("ResourceNotFoundException"):
        client.get_schedule_group(Name="other")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ScheduleExpression": "at(tomorrow)"}, "Invalid Schedule Expression"),
        ({"ScheduleExpression": "at(2100-13-01T00:00:00)"}, "Invalid Schedule Expression"),
        ({"ScheduleExpressionTimezone": "Mars"}, "Invalid Schedule Expression"),
        ({"FlexibleTimeWindow": {"Mode": "FLEXIBLE"}}, "MaximumWindowInMinutes"),
        ({"target": {"Input": json.dumps({"clusterName": "c", "nodegroupName": "n"})}}, "missing following"),
        ({"target": {"Input": json.dumps({**INPUT, "Colour": "red"})}}, "Colour"),
        ({"target": {"Input": "{"}}, "JSON"),
        ({"target": {"Arn": "arn:aws:scheduler:::aws-sdk:eks:describeNodegroup"}}, "not supported"),
        ({"target": {"Arn": "arn:aws:scheduler:::aws-sdk:eks:UpdateNodegroupConfig"}}, "format"),
        ({"target": {"Arn": "arn:aws:scheduler:::aws-sdk:eks:makeCoffee"}}, "not a valid action"),
        ({"target": {"Arn": "arn:aws:scheduler:::aws-sdk:coffee:make"}}, "not a valid service"),
        ({"target": {"RetryPolicy": {"MaximumRetryAttempts": 186}}}, "185"),
    ],
)
def test_schedules_that_cannot_run_are_refused(
    aws: Aws, end: str, changes: dict[str, Any], words: str
) -> None:
    with refused("ValidationException", words):
        aws.client("scheduler").create_schedule(**schedule(end, **changes))


def test_the_role_must_exist_and_trust_the_scheduler_for_this_group(aws: Aws, end: str) -> None:
    client, refusal = aws.client("scheduler"), "must allow AWS EventBridge Scheduler to assume the role"
    with refused("ValidationException", refusal):
        client.create_schedule(**schedule(end.replace("role/end", "role/missing")))
    with refused("ValidationException", refusal):
        client.create_schedule(**schedule(role(aws, "other", trust("eks"))))
    document = json.loads(trust("scheduler"))
    condition = {"StringEquals": {"aws:SourceAccount": "123456789012", "aws:SourceArn": f"{GROUP}2"}}
    document["Statement"][0]["Condition"] = condition
    with refused("ValidationException", refusal):
        client.create_schedule(**schedule(role(aws, "third", json.dumps(document))))
    condition["StringEquals"]["aws:SourceArn"] = GROUP
    client.create_schedule(**schedule(role(aws, "fourth", json.dumps(document))))


def test_a_group_is_deleted_with_its_schedules_after_a_while(aws: Aws, end: str) -> None:
    client = aws.client("scheduler")
    client.create_schedule(**schedule(end))
    aws.control(durations={"scheduler-group": 3600})
    client.delete_schedule_group(Name="g")
    assert client.get_schedule_group(Name="g")["State"] == "DELETING"
    with refused("ConflictException", "being deleted"):
        client.create_schedule(**schedule(end, Name="t"))
    aws.advance(7200)
    with refused("ResourceNotFoundException"):
        client.get_schedule_group(Name="g")
    assert [entry for entry in aws.state() if entry.startswith("scheduler:")] == []


def test_the_tagging_api_and_the_lists_have_a_group(aws: Aws, end: str) -> None:
    client = aws.client("scheduler")
    client.create_schedule(**schedule(end))
    (row,) = client.list_schedule_groups(NamePrefix="g")["ScheduleGroups"]
    assert (row["Arn"], row["State"]) == (GROUP, "ACTIVE")
    assert client.list_tags_for_resource(ResourceArn=GROUP)["Tags"] == [{"Key": "a", "Value": "b"}]
    (short,) = client.list_schedules(GroupName="g")["Schedules"]
    assert "ScheduleExpression" not in short  # the model: a summary has the target's ARN only
    tagging = aws.client("resourcegroupstaggingapi")
    (found,) = tagging.get_resources(TagFilters=[{"Key": "a"}])["ResourceTagMappingList"]
    assert found["ResourceARN"] == GROUP


def test_an_update_replaces_what_it_leaves_out_by_the_default(aws: Aws, end: str) -> None:
    client = aws.client("scheduler")
    client.create_schedule(**schedule(end, Description="x", ActionAfterCompletion="DELETE"))
    client.update_schedule(**schedule(end))
    row = client.get_schedule(GroupName="g", Name="s")
    assert (row.get("Description", ""), row["ActionAfterCompletion"]) == ("", "NONE")
