"""The executions of jobs: the call of a job's target, as its account, and its repetitions.

The schedule of the repetitions is RetryConfig's of google/cloud/scheduler/v1/job.proto.
"""

from __future__ import annotations

import base64
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api.errors import CODES, GcpError
from cloudrec_sandbox.gcp.resources import store
from cloudrec_sandbox.gcp.services import outbound
from cloudrec_sandbox.gcp.services.scheduler import checks, cron

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

_MIN_S, _MAX_S, _DOUBLINGS = 5.0, 3600.0, 5  # RetryConfig's defaults


@dataclass
class Executions:
    """The numbers of the jobs and of their schedules, since a new job may have the name of a deleted one."""

    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


def wait(world: World, resource: Resource, schedule: cron.Cron, *, past: float = 0.0) -> None:
    """Let a job wait for its next time after `past`; an earlier schedule of it is forgotten.

    The times of a schedule are those of the client's clock.
    """
    resource.hidden.setdefault("job", next(world.state(Executions).numbers))
    resource.hidden["schedule"] = next(world.state(Executions).numbers)
    due = schedule.after(max(world.client_now(), past))
    if due is None:
        return
    resource.document["scheduleTime"] = as_datetime(due).isoformat().replace("+00:00", "Z")
    resource.hidden["due"] = due
    world.after(world.until(due), execute, resource.path, resource.hidden["job"], resource.hidden["schedule"])


def execute(world: World, path: str, job: int, schedule: int) -> None:
    """Begin an execution, and wait for the next one."""
    resource = store.find(world, "cloudscheduler", path)
    if resource is None or (resource.hidden["job"], resource.hidden["schedule"]) != (job, schedule):
        return
    document = resource.document
    times = cron.parse(document["schedule"], document.get("timeZone", ""))
    wait(world, resource, times, past=resource.hidden["due"])
    if document["state"] == "ENABLED":
        attempt(world, path, job, world.now(), 0)


def attempt(world: World, path: str, job: int, since: float, number: int) -> None:
    """Make one call, and plan the next one if it fails."""
    resource = store.find(world, "cloudscheduler", path)
    if resource is None or resource.hidden["job"] != job or resource.document["state"] != "ENABLED":
        return
    document = resource.document
    document["lastAttemptTime"] = as_datetime(world.now()).isoformat().replace("+00:00", "Z")
    try:
        _call(world, document)
    except GcpError as error:
        document["status"] = {"code": CODES[error.code].number, "message": error.message}
        delay = _delay(document.get("retryConfig", {}), number, world.now() - since)
        if delay is not None:
            world.after(delay, attempt, path, job, since, number + 1)
    else:
        document["status"] = {}


def _delay(config: dict[str, Any], number: int, passed: float) -> float | None:
    """Return the seconds until the next attempt; None after the last one.

    "If specified with retry_count, the job will be retried until both limits are reached" (RetryConfig).
    """
    most = int(config.get("retryCount", 0))
    if not most or (number >= most and passed >= checks.seconds(config.get("maxRetryDuration"), 0.0)):
        return None
    least = checks.seconds(config.get("minBackoffDuration"), _MIN_S)
    longest = checks.seconds(config.get("maxBackoffDuration"), _MAX_S)
    doublings = int(config.get("maxDoublings", _DOUBLINGS))
    step = least * 2 ** min(number, doublings)
    return float(min(step * max(1, number - doublings + 1), longest))


def _call(world: World, document: dict[str, Any]) -> None:
    """Make the call of a job; GcpError if it fails."""
    target = document.get("httpTarget")
    if target is None:
        return  # a message of Pub/Sub or a call of App Engine, which this stand-in does not have
    outbound.send(
        world,
        target.get("httpMethod", "POST"),
        target["uri"],
        account=str(target.get("oauthToken", {}).get("serviceAccountEmail", "")),
        body=base64.b64decode(target.get("body", "")),
        headers=target.get("headers", {}),
    )
