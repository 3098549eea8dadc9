"""The end of a cluster, kept by Google Cloud itself: one Cloud Scheduler job for each possible GPU pool.

At the end's minute each job sets the size of its pool to zero, as the account of the cluster's end. The jobs
exist before the first GPU node, so the end holds although the guard was never installed, the image cannot be
pulled, or `cloudrec up` was killed. They are removed after the pools.

Why not max_run_duration: it ends a node, but the managed instance group of the pool makes the node again.

A pool of flex-start nodes is deleted instead: its autoscaler would make the nodes again while pods need them.

Cloud Scheduler has cron schedules only, without a year, so a job is due again a year later; `down` has
removed it by then. GKE refuses a change of a cluster during another one, so a refused call is repeated for
two hours. A job of a pool that was a candidate once stays until the cluster is removed: the pool may exist.

Cloud Scheduler is not in each region. A cluster elsewhere has its jobs in the first location, by name, of its
continent (`location`).
"""

from __future__ import annotations

import base64
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from google.api_core import exceptions as api

from cloudrec.engine.cost import times
from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES, Condition, Observed, Properties
from cloudrec.providers.base.driver import name_of
from cloudrec.providers.base.layout import shortened
from cloudrec.providers.base.offers import ON_DEMAND, SPOT
from cloudrec.providers.gcp.api import ids, labels
from cloudrec.providers.gcp.api.driver import GcpDriver
from cloudrec.providers.gcp.api.gke import CLUSTER
from cloudrec.providers.gcp.identity import ending, identity
from cloudrec.providers.gcp.identity.prepared import END
from cloudrec.providers.gcp.layout import TAG_REGION
from cloudrec.providers.gcp.offers import FLEX, RESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Difference, Resource
    from cloudrec.providers.base.offers import Placement
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout

    Job = Mapping[str, Any]  # of JSON

SCHEDULE = "end-schedule"
KINDS: Mapping[str, AbstractSet[str]] = {SCHEDULE: frozenset({CLUSTER, identity.ACCOUNT, ending.BINDING})}

RESIZE, DELETE = "POST", "DELETE"  # the HTTP methods of the calls that end a pool
_LONGEST_POOL = 40  # characters; GKE's limit
_SHORT: Mapping[str, str] = {SPOT: "spot", ON_DEMAND: "od", FLEX: "flex", RESERVED: "res"}
_LONGEST = 500  # characters of a description
_PAGE = 500  # jobs; the limit of one page
_SERVICE = "cloudscheduler"
_GKE = "https://container.googleapis.com/v1/"
_ZERO = base64.b64encode(b'{"nodeCount":0}').decode()
# RetryConfig: at most 5 retries, but "the job will be retried until both limits are reached".
_RETRY: Job = {
    "retryCount": 5,
    "maxRetryDuration": "7200s",
    "minBackoffDuration": "15s",
    "maxBackoffDuration": "60s",
    "maxDoublings": 2,
}
_UTC, _SET_SIZE = "Etc/UTC", ":setSize"
_DEADLINE = "60s"  # of one attempt; 15 seconds to 30 minutes
_YEAR = timedelta(days=365)
_CHANGED = ("description", "schedule", "timeZone", "httpTarget", "retryConfig", "attemptDeadline")


@dataclass(frozen=True, kw_only=True)
class EndProperties(Properties):
    """The requested properties of the jobs.

    Attributes:
        cluster: the path of the cluster.
        expires: the end of the cluster, ISO 8601.
        pools: pool -> the HTTP method of the call that ends it: RESIZE or DELETE.
        account: the e-mail address of the account whose permissions the calls have.
    """

    cluster: str
    expires: str
    pools: Mapping[str, str]
    account: str


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the jobs of all possible GPU pools; nothing for a cluster without an end."""
    if not keys(layout):
        return []
    pools = {pool_of(way): DELETE if way.capacity == FLEX else RESIZE for way in layout.places()}
    schedule = layout.resource(
        SCHEDULE,
        needs=(layout.key(CLUSTER), layout.key(identity.ACCOUNT, END), layout.key(ending.BINDING)),
        properties=EndProperties(
            cluster=layout.cluster_path,
            expires=layout.cluster.expires or "",
            pools=pools,
            account=layout.end_account,
        ),
        hourly_usd=times(len(pools), layout.prices.service("scheduler-job")),
    )
    return [schedule]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by kind."""
    return {SCHEDULE: EndScheduleDriver(gcp)}


def keys(layout: GcpLayout) -> tuple[str, ...]:
    """Return the key of the jobs; empty for a cluster without an end or without a possible GPU pool."""
    return (layout.key(SCHEDULE),) if layout.cluster.expires and layout.places() else ()


def pool_of(way: Placement) -> str:
    """Return the name of the GPU pool of a candidate."""
    zone = way.zone.rpartition("-")[2]
    return shortened(f"gpu-{way.instance_type}-{zone}-{_SHORT[way.capacity]}", _LONGEST_POOL)


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
    if region in offered:
        return region
    continent = region.partition("-")[0]
    near = [name for name in offered if name.partition("-")[0] == continent]
    return min(near or offered, default=region)


class EndScheduleDriver(GcpDriver[EndProperties]):
    """Handles the jobs of a cluster as one resource, by REST calls.

    The identity is the beginning of the jobs' paths: projects/P/locations/L/jobs/cloudrec-CLUSTER-REGION.
    Jobs have no labels: their description holds the tags.
    """

    kind = SCHEDULE
    changeable = frozenset({"cluster", "expires", "pools", "account"})

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the jobs that have the cluster's tags in their description."""
        found = self.gcp.or_none(lambda: self.gcp.repeat(self._ours)) or {}
        seen = [self._observe(identity, jobs) for identity, jobs in found.items()]
        return [each for each in seen if self.is_mine(each.tags, cluster)]

    def difference(self, resource: Resource[EndProperties], observed: Observed) -> Difference | None:
        """Compare the properties; further pools agree, since they were candidates once."""
        there = dict(observed.properties)
        wanted, pools = resource.properties.pools, there["pools"]
        if isinstance(pools, dict) and pools.items() >= wanted.items():
            there["pools"] = wanted
        return super().difference(resource, replace(observed, properties=there))

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if there is a job, else GONE."""
        found = self.gcp.or_none(lambda: self.gcp.repeat(self._ours)) or {}
        return (Condition.READY if identity in found else Condition.GONE), ""

    def make(self, resource: Resource[EndProperties], *, token: str, identities: Mapping[str, str]) -> str:
        """Create the first job. A second one of its name is refused; the API has no idempotency token."""
        del token, identities
        name = f"cloudrec-{resource.tags[TAG_CLUSTER]}-{self.gcp.region}"
        identity = f"{self._folder()}/{name}"
        self._wait(resource.properties.expires)
        first = min(resource.properties.pools)
        self._create(_job(resource, identity, first, resource.properties.pools[first]))
        return identity

    def complete(
        self, resource: Resource[EndProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Create the missing jobs, and change the others; the jobs of earlier candidates too."""
        del identities
        self._wait(resource.properties.expires)
        there = {_pool(job): job for job in self.gcp.repeat(self._ours).get(identity, ())}
        methods = {pool: _method(job) or RESIZE for pool, job in there.items()}
        for pool, method in sorted((methods | dict(resource.properties.pools)).items()):
            wanted = _job(resource, identity, pool, method)
            if pool in there:
                self._change(there[pool], wanted)
                continue
            try:
                self._create(wanted)
            except api.Conflict:  # a list may not show yet what was created
                self._patch(wanted)

    def remove(self, observed: Observed) -> None:
        """Delete the jobs."""
        for job in self.gcp.repeat(self._ours).get(observed.identity, ()):
            self._delete(job)

    def _create(self, job: Job) -> None:
        folder = job["name"].rpartition("/")[0]
        self.gcp.send(_SERVICE, "POST", f"/v1/{folder}", job)

    def _change(self, there: Job, wanted: Job) -> None:
        """Change a job in place if it differs; a paused one, or one that has begun its calls, is made again.

        The API does not promise that a change ends the repetitions of a call, and these would end the nodes
        that a cluster with a new end has.
        """
        if not _waits(there):
            self._delete(there)
            self._create(wanted)
        elif any(there.get(name) != wanted[name] for name in _CHANGED):
            self._patch(wanted)

    def _patch(self, wanted: Job) -> None:
        path = f"/v1/{wanted['name']}?updateMask={','.join(_CHANGED)}"
        self.gcp.send(_SERVICE, "PATCH", path, {name: wanted[name] for name in _CHANGED})

    def _delete(self, job: Job) -> None:
        with suppress(api.NotFound):  # a list may still show what was deleted
            self.gcp.send(_SERVICE, "DELETE", f"/v1/{job['name']}")

    def _wait(self, expires: str) -> None:
        """Wait while a schedule without a year would be due today: for an end in a year, a minute at most."""
        first = due(expires) - _YEAR
        left = first.timestamp() - time.time()
        if left > 0:
            self.gcp.clock.sleep(left + 1)

    def _folder(self) -> str:
        """Return the path of the jobs, which this process decides once; Forbidden if the API is disabled."""
        key = "scheduler location"
        if key not in self.gcp.cache:
            self.gcp.cache[key] = self._place()
        return f"projects/{self.gcp.project}/locations/{self.gcp.cache[key]}/jobs"

    def _place(self) -> str:
        url, region = f"/v1/projects/{self.gcp.project}/locations", self.gcp.region
        try:
            self.gcp.send(_SERVICE, "GET", f"{url}/{region}/jobs?pageSize=1")
        except (api.BadRequest, api.NotFound):  # Cloud Scheduler is not in each region
            return location(region, [row["locationId"] for row in self._rows(url, "locations")])
        return region

    def _ours(self) -> dict[str, list[Job]]:
        """Return the jobs of the clusters in this region, by identity."""
        found: dict[str, list[Job]] = {}
        for job in self._rows(f"/v1/{self._folder()}", "jobs"):
            if self.is_mine(_tags(job), None) and _pool(job):
                found.setdefault(_identity(job), []).append(job)
        return found

    def _rows(self, url: str, items: str) -> list[Job]:
        rows, token = list[Any](), ""
        while True:
            query = f"?pageSize={_PAGE}{f'&pageToken={token}' if token else ''}"
            answer = self.gcp.send(_SERVICE, "GET", f"{url}{query}")
            rows += answer.get(items, ())
            token = answer.get("nextPageToken", "")
            if not token:
                return rows

    def _observe(self, identity: str, jobs: Sequence[Job]) -> Observed:
        tags = _tags(jobs[0])
        return Observed(
            kind=SCHEDULE,
            name=name_of(tags, ids.name(identity)),
            identity=identity,
            condition=Condition.READY,
            properties={
                "cluster": _only({_cluster(job) for job in jobs}),
                "expires": _only({_end(job) for job in jobs}),
                "pools": {_pool(job): _method(job) for job in jobs},
                "account": _only({_account(job) for job in jobs}),
            },
            tags=tags,
            location=self.gcp.region,
            hourly_usd=times(len(jobs), self.gcp.prices.service("scheduler-job")),
        )


def _job(resource: Resource[EndProperties], identity: str, pool: str, method: str) -> Job:
    """Return the job of one pool."""
    wanted = resource.properties
    uri = f"{_GKE}{wanted.cluster}/nodePools/{pool}"
    body = {"headers": {"Content-Type": "application/json"}, "body": _ZERO} if method == RESIZE else {}
    return {
        "name": f"{identity}-{pool}",
        "description": labels.describe(resource.tags, _LONGEST),
        "schedule": cron(wanted.expires),
        "timeZone": _UTC,
        "attemptDeadline": _DEADLINE,
        "retryConfig": _RETRY,
        "httpTarget": {
            "uri": f"{uri}{_SET_SIZE}" if method == RESIZE else uri,
            "httpMethod": method,
            "oauthToken": {"serviceAccountEmail": wanted.account},
            **body,
        },
    }


def _only(found: set[str]) -> str:
    """Return the value that all jobs have; empty if they differ."""
    return found.pop() if len(found) == 1 else ""


def _tags(job: Job) -> dict[str, str]:
    return labels.described(job.get("description", ""))


def _identity(job: Job) -> str:
    """Return the beginning of the paths of all jobs of the cluster."""
    tags = _tags(job)
    folder = job["name"].rpartition("/")[0]
    return f"{folder}/cloudrec-{tags[TAG_CLUSTER]}-{tags.get(TAG_REGION, '')}"


def _pool(job: Job) -> str:
    """Return the pool that a job ends, from its name; empty for another name than cloudrec gives."""
    front = f"{_identity(job)}-"
    return str(job["name"]).removeprefix(front) if str(job["name"]).startswith(front) else ""


def _cluster(job: Job) -> str:
    """Return the cluster whose pool a job ends; empty if it was changed to call something else."""
    uri = str(job.get("httpTarget", {}).get("uri", "")).removesuffix(_SET_SIZE)
    tail = f"/nodePools/{_pool(job)}"
    return uri.removeprefix(_GKE).removesuffix(tail) if uri.endswith(tail) else ""


def _method(job: Job) -> str:
    """Return the HTTP method of a job's call; empty if it does not end the pool."""
    target = job.get("httpTarget", {})
    method, resizes = str(target.get("httpMethod", "")), str(target.get("uri", "")).endswith(_SET_SIZE)
    is_right = method == DELETE and not resizes
    is_right |= method == RESIZE and resizes and target.get("body") == _ZERO
    return method if is_right else ""


def _account(job: Job) -> str:
    return str(job.get("httpTarget", {}).get("oauthToken", {}).get("serviceAccountEmail", ""))


def _waits(job: Job) -> bool:
    """Return whether a job waits for its first call."""
    return job.get("state") == "ENABLED" and not job.get("lastAttemptTime")


def _end(job: Job) -> str:
    """Return the end that a job keeps; empty if it does not wait for it, or has another schedule."""
    expires = _tags(job).get(TAG_EXPIRES, "")
    try:
        is_kept = job.get("schedule") == cron(expires) and job.get("timeZone") == _UTC
    except ValueError:
        return ""
    return expires if is_kept and _waits(job) else ""
