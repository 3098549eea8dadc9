"""The jobs of Cloud Scheduler that end a cluster, as JSON: one for each GPU pool, or the start of a workflow.

Jobs have no labels: their name and the tags in their description identify the cluster. Their path begins with
the identity of the end: projects/P/locations/L/jobs/cloudrec-CLUSTER-REGION.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES
from cloudrec.providers.gcp.api import labels
from cloudrec.providers.gcp.layout import TAG_REGION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Job = Mapping[str, Any]  # of JSON

RESIZE, DELETE = "POST", "DELETE"  # the HTTP methods of the calls that end a pool
STARTER = "workflow"  # the end of the name of the job that starts a workflow; a pool's begins with gpu-
CHANGED = ("description", "schedule", "timeZone", "httpTarget", "retryConfig", "attemptDeadline")
_LONGEST = 500  # characters of a description
_GKE = "https://container.googleapis.com/v1/"
_EXECUTIONS = "https://workflowexecutions.googleapis.com/v1/"
_ZERO = base64.b64encode(b'{"nodeCount":0}').decode()
_NOTHING = base64.b64encode(b"{}").decode()
# RetryConfig: at most 5 retries, but "the job will be retried until both limits are reached".
_RETRY: Job = {
    "retryCount": 5,
    "maxRetryDuration": "7200s",
    "minBackoffDuration": "15s",
    "maxBackoffDuration": "60s",
    "maxDoublings": 2,
}
# The next minute repeats it.
_RETRY_START: Job = {
    "retryCount": 1,
    "maxRetryDuration": "20s",
    "minBackoffDuration": "5s",
    "maxBackoffDuration": "10s",
    "maxDoublings": 1,
}
_UTC, _SET_SIZE, _EACH_MINUTE = "Etc/UTC", ":setSize", "* * * * *"
_DEADLINE = "60s"  # of one attempt; 15 seconds to 30 minutes


def due(expires: str) -> datetime:
    """Return the first whole minute at or after the end."""
    end = datetime.fromisoformat(expires).astimezone(UTC)
    minute = end.replace(second=0, microsecond=0)
    return minute if minute == end else minute + timedelta(minutes=1)


def cron(expires: str) -> str:
    """Return the schedule of the end, in UTC."""
    moment = due(expires)
    return f"{moment.minute} {moment.hour} {moment.day} {moment.month} *"


def location(region: str, offered: Sequence[str]) -> str:
    """Return the location of the jobs: the region, or one of its continent if it has no Cloud Scheduler.

    The first one by name is taken, so that each process finds the jobs; without one there, the first of all.
    """
    return region if region in offered else next(iter(near(region, offered)), region)


def near(region: str, offered: Sequence[str]) -> list[str]:
    """Return the locations in the order in which one is taken instead of a region."""
    continent = region.partition("-")[0]
    return sorted(offered, key=lambda name: (name.partition("-")[0] != continent, name))


def of_pool(
    identity: str,
    tags: Mapping[str, str],
    *,
    cluster: str,
    pool: str,
    method: str,
    expires: str,
    account: str,
) -> Job:
    """Return the job that ends one pool at the end's minute.

    Args:
        identity: of the end.
        tags: of the end.
        cluster: the path of the cluster.
        pool: the name of the pool.
        method: RESIZE or DELETE.
        expires: the end, ISO 8601.
        account: the e-mail address of the account of the call.
    """
    uri = f"{_GKE}{cluster}/nodePools/{pool}"
    body = {"headers": {"Content-Type": "application/json"}, "body": _ZERO} if method == RESIZE else {}
    return {
        "name": f"{identity}-{pool}",
        "description": labels.describe(tags, _LONGEST),
        "schedule": cron(expires),
        "timeZone": _UTC,
        "attemptDeadline": _DEADLINE,
        "retryConfig": _RETRY,
        "httpTarget": {
            "uri": f"{uri}{_SET_SIZE}" if method == RESIZE else uri,
            "httpMethod": method,
            "oauthToken": {"serviceAccountEmail": account},
            **body,
        },
    }


def starter(identity: str, tags: Mapping[str, str], *, workflow: str, account: str) -> Job:
    """Return the job that starts an execution of a workflow each minute.

    Args:
        identity: of the end.
        tags: of the end.
        workflow: the path of the workflow.
        account: the e-mail address of the account of the call.
    """
    return {
        "name": f"{identity}-{STARTER}",
        "description": labels.describe(tags, _LONGEST),
        "schedule": _EACH_MINUTE,
        "timeZone": _UTC,
        "attemptDeadline": _DEADLINE,
        "retryConfig": _RETRY_START,
        "httpTarget": {
            "uri": f"{_EXECUTIONS}{workflow}/executions",
            "httpMethod": "POST",
            "headers": {"Content-Type": "application/json"},
            "body": _NOTHING,
            "oauthToken": {"serviceAccountEmail": account},
        },
    }


def tags(job: Job) -> dict[str, str]:
    """Return the tags in a job's description."""
    return labels.described(job.get("description", ""))


def identity_in(folder: str, found: Mapping[str, str]) -> str:
    """Return the identity of a cluster's end from its tags; `folder` is the path of the jobs."""
    return f"{folder}/cloudrec-{found[TAG_CLUSTER]}-{found.get(TAG_REGION, '')}"


def identity(job: Job) -> str:
    """Return the beginning of the paths of all jobs of the cluster."""
    return identity_in(job["name"].rpartition("/")[0], tags(job))


def pool(job: Job) -> str:
    """Return the pool that a job ends, or STARTER, from its name; empty for a name that is not cloudrec's."""
    front = f"{identity(job)}-"
    return str(job["name"]).removeprefix(front) if str(job["name"]).startswith(front) else ""


def cluster(job: Job) -> str:
    """Return the cluster whose pool a job ends; empty if it was changed to call something else."""
    uri = str(job.get("httpTarget", {}).get("uri", "")).removesuffix(_SET_SIZE)
    tail = f"/nodePools/{pool(job)}"
    return uri.removeprefix(_GKE).removesuffix(tail) if uri.endswith(tail) else ""


def method(job: Job) -> str:
    """Return the HTTP method of a job's call; empty if it does not end the pool."""
    target = job.get("httpTarget", {})
    verb, resizes = str(target.get("httpMethod", "")), str(target.get("uri", "")).endswith(_SET_SIZE)
    is_right = verb == DELETE and not resizes
    is_right |= verb == RESIZE and resizes and target.get("body") == _ZERO
    return verb if is_right else ""


def account(job: Job) -> str:
    """Return the account of a job's call."""
    return str(job.get("httpTarget", {}).get("oauthToken", {}).get("serviceAccountEmail", ""))


def waits(job: Job) -> bool:
    """Return whether a job waits for its first call."""
    return is_enabled(job) and not job.get("lastAttemptTime")


def is_enabled(job: Job) -> bool:
    """Return whether a job makes its calls."""
    return bool(job.get("state") == "ENABLED")


def end(job: Job) -> str:
    """Return the end that a job keeps; empty if it does not wait for it, or has another schedule."""
    expires = tags(job).get(TAG_EXPIRES, "")
    try:
        is_kept = job.get("schedule") == cron(expires) and job.get("timeZone") == _UTC
    except ValueError:
        return ""
    return expires if is_kept and waits(job) else ""


def starts(job: Job) -> str:
    """Return the path of the workflow that a job starts each minute; empty if it starts none."""
    target = job.get("httpTarget", {})
    uri, tail = str(target.get("uri", "")), "/executions"
    is_right = is_enabled(job) and job.get("schedule") == _EACH_MINUTE and target.get("httpMethod") == "POST"
    is_right = is_right and uri.startswith(_EXECUTIONS) and uri.endswith(tail)
    return uri.removeprefix(_EXECUTIONS).removesuffix(tail) if is_right else ""
