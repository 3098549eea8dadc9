"""The targets of schedules: which call, with which parameters, by which role.

Sources: the user guide, "Using universal targets" and "Confused deputy prevention in EventBridge Scheduler";
the retry policy's limits are those of botocore's model.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from botocore.model import ListShape, StructureShape
from moto.core.utils import get_service_model

from cloudrec_sandbox.aws.api.world import ACCOUNT
from cloudrec_sandbox.aws.services.iam import role_of, trusts
from cloudrec_sandbox.aws.services.permissions.policies import Wish, allows
from cloudrec_sandbox.aws.services.scheduler.state import invalid

if TYPE_CHECKING:
    from botocore.model import Shape

    from cloudrec_sandbox.aws.api.errors import AwsError
    from cloudrec_sandbox.aws.api.world import World

_UNIVERSAL = re.compile(r"arn:aws:scheduler:::aws-sdk:([a-z0-9]+):([a-z][A-Za-z0-9]+)")
_READS = ("get", "describe", "list", "poll", "receive", "search", "scan", "query", "select", "read")
_AGE, _ATTEMPTS = (60, 86400), (0, 185)
_SERVICE = "scheduler.amazonaws.com"


def checked(world: World, group: str, target: dict[str, Any]) -> dict[str, Any]:
    """Return a target with its defaults; ValidationException for one that the service refuses.

    Args:
        world: the account.
        group: the ARN of the schedule's group.
        target: the request's Target.
    """
    operation(target["Arn"])
    if not is_assumable(world, target["RoleArn"], group):
        raise invalid(
            "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."
        )
    parameters(target["Arn"], target.get("Input", "{}"))
    retries = {
        "MaximumEventAgeInSeconds": _AGE[1],
        "MaximumRetryAttempts": _ATTEMPTS[1],
        **target.get("RetryPolicy", {}),
    }
    for name, (least, most) in (("MaximumEventAgeInSeconds", _AGE), ("MaximumRetryAttempts", _ATTEMPTS)):
        if not least <= retries[name] <= most:
            raise invalid(f"RetryPolicy.{name} must be from {least} to {most}.")
    return {**target, "RetryPolicy": retries}


def operation(arn: str) -> tuple[str, str]:
    """Return the service and the operation of a universal target's ARN, by botocore's names."""
    match = _UNIVERSAL.fullmatch(arn)
    if match is None:
        raise invalid(f"Provided Arn is not in correct format. Arn: {arn}")  # templated targets: not here
    service, action = match.groups()
    if action.startswith(_READS):
        raise invalid(f"{arn} reads only; the API is not supported for universal targets.")
    try:
        names = get_service_model(service).operation_names
    except Exception as error:  # botocore has an exception for each of the causes
        raise invalid(f"{service} is not a valid service.") from error
    wanted = action[0].upper() + action[1:]
    if wanted not in names:
        raise invalid(f"{action} is not a valid action of {service}.")
    return service, wanted


def parameters(arn: str, text: str) -> dict[str, Any]:
    """Return an Input's parameters by the names of the service's model."""
    service, action = operation(arn)
    try:
        given = json.loads(text)
    except ValueError as error:
        raise _not_json("Input is not valid JSON") from error
    shape = get_service_model(service).operation_model(action).input_shape
    if not isinstance(given, dict) or shape is None:
        raise _not_json("Input is not an object")
    found: dict[str, Any] = _named(shape, given)
    return found


def _named(shape: Shape, value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a value of JSON with the members' own names in place of those in Pascal case."""
    if isinstance(shape, StructureShape):
        members = {_pascal(name): (name, member) for name, member in shape.members.items()}
        missing = [
            _pascal(name)
            for name in shape.required_members
            if _pascal(name) not in value and not shape.members[name].metadata.get("idempotencyToken")
        ]
        if missing:
            raise _not_json(f"missing following field(s): {', '.join(missing)}")
        if unknown := sorted(value.keys() - members.keys()):
            raise _not_json(f"unknown field(s): {', '.join(unknown)}")
        return {members[key][0]: _named(members[key][1], each) for key, each in value.items()}
    if isinstance(shape, ListShape):
        return [_named(shape.member, each) for each in value]
    return value


def _pascal(name: str) -> str:
    return name[0].upper() + name[1:]


def _not_json(reason: str) -> AwsError:
    return invalid(f"Invalid RequestJson provided. Reason {reason}.")


def is_assumable(world: World, arn: str, group: str) -> bool:
    """Return whether the service may assume a role for the schedules of a group."""
    role = role_of(world, arn)
    if role is None or not trusts(role, _SERVICE):
        return False
    facts = {"aws:sourceaccount": [ACCOUNT], "aws:sourcearn": [group]}
    return allows([role.assume_role_policy_document], Wish(action="sts:AssumeRole", facts=facts))
