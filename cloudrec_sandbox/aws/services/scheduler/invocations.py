"""When schedules run, and the calls that they make.

A one-time schedule runs within the minute of its time. A call that the target refuses is repeated with
growing pauses until the retry policy's attempts or age are used up (user guide, "Configuring a schedule's
retry policy"; the pauses are not documented, and are assumed to grow to a minute).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from botocore.serialize import create_serializer
from moto.core.utils import get_service_model

from cloudrec_sandbox.aws.api import protocol
from cloudrec_sandbox.aws.api.call import Call
from cloudrec_sandbox.aws.api.errors import AwsError, PassedOnError
from cloudrec_sandbox.aws.api.registry import chain
from cloudrec_sandbox.aws.services.iam import GLOBAL
from cloudrec_sandbox.aws.services.permissions import enforcement
from cloudrec_sandbox.aws.services.scheduler import targets
from cloudrec_sandbox.aws.services.scheduler.state import Schedules, invalid
from cloudrec_sandbox.core.http import HttpRequest

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.core.http import Reply

_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True)
class Invocation:
    """A planned run of a schedule: where it is, its version, and the time in seconds since the epoch."""

    region: str
    group: str
    name: str
    version: float
    due: float


def moment(expression: str, zone: str) -> float:
    """Return the time of a one-time schedule in seconds since the epoch; the stand-in has no other kind."""
    match = _AT.fullmatch(expression)
    try:
        where = ZoneInfo(zone)
        when = datetime.fromisoformat(match[1]) if match else None
    except (ValueError, KeyError, OSError) as error:
        raise invalid(f"Invalid Schedule Expression {expression}, time zone {zone}.") from error
    if when is None:
        if expression.startswith(("rate(", "cron(")):
            raise AwsError("NotImplemented", "this stand-in has one-time schedules only", status=501)
        raise invalid(f"Invalid Schedule Expression {expression}.")
    return when.replace(tzinfo=where).timestamp()


def plan(world: World, region: str, row: dict[str, Any]) -> None:
    """Put a schedule's invocation on the agenda. Its time is one of the client's clock."""
    left = world.until(moment(row["ScheduleExpression"], row["ScheduleExpressionTimezone"]))
    due = world.now() + left
    wait = left + world.duration("scheduler-precision")
    world.after(wait, _run, Invocation(region, row["GroupName"], row["Name"], row["_version"], due), 0)


def _run(world: World, of: Invocation, attempt: int) -> None:
    """Make the call, and plan another attempt if it is refused."""
    kept = world.state(Schedules, of.region).groups.get(of.group)
    row = kept.schedules.get(of.name) if kept else None
    if kept is None or row is None or row["_version"] != of.version or row["State"] != "ENABLED":
        return
    retries = row["Target"]["RetryPolicy"]
    is_old = world.now() - of.due >= retries["MaximumEventAgeInSeconds"]
    if not _succeeds(world, of.region, kept.row["Arn"], row["Target"]) and not (
        attempt >= retries["MaximumRetryAttempts"] or is_old
    ):
        pause = min(2.0**attempt, _LONGEST_PAUSE_S)
        world.after(pause, _run, of, attempt + 1)
        return
    if row["ActionAfterCompletion"] == "DELETE":
        del kept.schedules[of.name]


def _succeeds(world: World, region: str, group: str, target: dict[str, Any]) -> bool:
    """Make the target's call with the role's permissions; return whether the service accepted it."""
    if not targets.is_assumable(world, target["RoleArn"], group):
        return False
    service, action = targets.operation(target["Arn"])
    given = targets.parameters(target["Arn"], target.get("Input", "{}"))
    sts = world.backend("sts", GLOBAL)
    session = sts.assume_role(
        region_name=region,
        role_session_name="scheduler",
        role_arn=target["RoleArn"],
        policy=None,
        duration=3600,
        external_id=None,
    )
    call = _call(world, service, action, given, region=region, key=session.access_key_id)
    try:
        enforcement.refuse(call)
        reply = call.pass_on()
    except (AwsError, PassedOnError):
        return False
    return reply.status < 300  # noqa: PLR2004 - HTTP's successes


def _call(world: World, service: str, action: str, given: dict[str, Any], *, region: str, key: str) -> Call:
    """Return the call as the service would receive it."""
    model = get_service_model(service)
    shape = model.operation_model(action).input_shape
    for name, member in shape.members.items() if shape else ():
        if member.metadata.get("idempotencyToken"):
            given.setdefault(name, str(uuid4()))
    raw = create_serializer(str(model.protocol)).serialize_to_request(given, model.operation_model(action))
    body = raw["body"] if isinstance(raw["body"], bytes) else json.dumps(raw["body"]).encode()
    scope = f"{key}/20260101/{region}/{model.signing_name}/aws4_request"
    signature = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
    headers = {**raw["headers"], "Host": "localhost", "Authorization": signature}
    request = HttpRequest(method=raw["method"], target=raw["url_path"], headers=headers, body=body)
    target = protocol.identify(request)
    return Call(world, target, request, handlers=chain(service, action), last=_unanswered)


def _unanswered(call: Call) -> Reply:
    """Raise AwsError: only operations that the stand-in answers itself can be targets."""
    raise AwsError("NotImplemented", f"this stand-in has no target {call.action}", status=501)
