"""The end of a cluster, kept by Google Cloud itself: by jobs of Cloud Scheduler, or by a workflow.

Without a budget the end stays. Then one job for each possible GPU pool sets the size of its pool to zero at
the end's minute, as the account of the cluster's end. With a budget the guard moves the end. Then one job
starts a workflow each minute, which reads the end in a label of the cluster (`end_workflow`).

Both exist before the first GPU node, so the end holds although the guard was never installed, the image
cannot be pulled, or `cloudrec up` was killed. They are removed after the pools.

Why not max_run_duration: it ends a node, but the managed instance group of the pool makes the node again.

A pool of flex-start nodes is deleted instead: its autoscaler would make the nodes again while pods need them.

Cloud Scheduler has cron schedules only, without a year, so a job of a pool is due again a year later; `down`
has removed it by then. GKE refuses a change of a cluster during another one, so a refused call is repeated
for two hours. A pool that was a candidate once stays among them until the cluster is removed: it may exist.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from cloudrec.engine.cost import times
from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES, Condition, Observed, Properties
from cloudrec.providers.base.driver import name_of
from cloudrec.providers.base.layout import shortened
from cloudrec.providers.base.offers import ON_DEMAND, SPOT
from cloudrec.providers.base.protocol import END_SCHEDULE
from cloudrec.providers.gcp.api import gke, ids, labels
from cloudrec.providers.gcp.api.driver import GcpDriver
from cloudrec.providers.gcp.api.gke import CLUSTER
from cloudrec.providers.gcp.identity import ending, identity
from cloudrec.providers.gcp.identity.prepared import END
from cloudrec.providers.gcp.nodes import end_jobs, end_workflow
from cloudrec.providers.gcp.nodes.end_found import FoundEnd, is_intact
from cloudrec.providers.gcp.nodes.end_jobs import DELETE, RESIZE, STARTER
from cloudrec.providers.gcp.nodes.end_scheduler import SchedulerJobs
from cloudrec.providers.gcp.nodes.end_workflow import Program, Workflows
from cloudrec.providers.gcp.offers import FLEX, RESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Difference, Resource
    from cloudrec.providers.base.offers import Placement
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout
    from cloudrec.providers.gcp.nodes.end_jobs import Job
    from cloudrec.providers.gcp.nodes.end_workflow import Workflow

SCHEDULE = END_SCHEDULE
KINDS: Mapping[str, AbstractSet[str]] = {
    SCHEDULE: frozenset({CLUSTER, identity.ACCOUNT, identity.BINDING, ending.BINDING})
}

_LONGEST_POOL = 40  # characters; GKE's limit
_SHORT: Mapping[str, str] = {SPOT: "spot", ON_DEMAND: "od", FLEX: "flex", RESERVED: "res"}
_YEAR = timedelta(days=365)


@dataclass(frozen=True, kw_only=True)
class EndProperties(Properties):
    """The requested properties of the end.

    Attributes:
        cluster: the path of the cluster.
        expires: the end of the cluster, ISO 8601.
        pools: pool -> the HTTP method of the call that ends it: RESIZE or DELETE.
        account: the e-mail address of the account whose permissions the calls have.
        moves: whether a workflow reads the end in the cluster's label.
        limit: the latest end that the label can give, ISO 8601; empty for none.
    """

    cluster: str
    expires: str
    pools: Mapping[str, str]
    account: str
    moves: bool = False
    limit: str = ""


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the end for all possible GPU pools; nothing for a cluster without an end."""
    if not keys(layout):
        return []
    pools = {pool_of(way): DELETE if way.capacity == FLEX else RESIZE for way in layout.places()}
    moves, expires, limit = layout.is_end_movable, layout.cluster.expires or "", layout.cluster.end_limit
    job = layout.prices.service("scheduler-job")
    schedule = layout.resource(
        SCHEDULE,
        needs=(
            layout.key(CLUSTER),
            layout.key(identity.ACCOUNT, END),
            *identity.starter_keys(layout),
            layout.key(ending.BINDING),
        ),
        properties=EndProperties(
            cluster=layout.cluster_path,
            expires=end_workflow.rounded(expires) if moves else expires,
            pools=pools,
            account=layout.end_account,
            moves=moves,
            limit=end_workflow.rounded(limit) if moves and limit else "",
        ),
        hourly_usd=_sum(job, layout.prices.service("end-workflow")) if moves else times(len(pools), job),
    )
    return [schedule]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by kind."""
    return {SCHEDULE: EndScheduleDriver(gcp)}


def keys(layout: GcpLayout) -> tuple[str, ...]:
    """Return the key of the end; empty for a cluster without an end or without a possible GPU pool."""
    return (layout.key(SCHEDULE),) if layout.cluster.expires and layout.places() else ()


def pool_of(way: Placement) -> str:
    """Return the name of the GPU pool of a candidate."""
    zone = way.zone.rpartition("-")[2]
    return shortened(f"gpu-{way.instance_type}-{zone}-{_SHORT[way.capacity]}", _LONGEST_POOL)


class EndScheduleDriver(GcpDriver[EndProperties]):
    """Handles what ends a cluster as one resource, by REST calls.

    The identity is the beginning of the jobs' paths: projects/P/locations/L/jobs/cloudrec-CLUSTER-REGION.
    """

    kind = SCHEDULE
    changeable = frozenset({"cluster", "expires", "pools", "account", "moves", "limit"})

    def __init__(self, gcp: Gcp) -> None:
        super().__init__(gcp)
        self.jobs, self.workflows = SchedulerJobs(gcp), Workflows(gcp)

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the jobs and the workflows that have the cluster's tags."""
        found = self._ours()
        ends = self._labelled() if any(each.workflows for each in found.values()) else {}
        seen = [self._observe(identity, each, ends) for identity, each in found.items()]
        return [each for each in seen if self.is_mine(each.tags, cluster)]

    def difference(self, resource: Resource[EndProperties], observed: Observed) -> Difference | None:
        """Compare the properties; further pools agree, since they were candidates once."""
        there = dict(observed.properties)
        wanted, pools = resource.properties.pools, there["pools"]
        if isinstance(pools, dict) and pools.items() >= wanted.items():
            there["pools"] = wanted
        return super().difference(resource, replace(observed, properties=there))

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if there is a job or a workflow, else GONE."""
        return (Condition.READY if identity in self._ours() else Condition.GONE), ""

    def make(self, resource: Resource[EndProperties], *, token: str, identities: Mapping[str, str]) -> str:
        """Create the first job, or the workflow. A second one of its name is refused."""
        del token, identities
        asked, identity = resource.properties, end_jobs.identity_in(self.jobs.folder(), resource.tags)
        if asked.moves:
            self._deploy(resource, _program(asked, asked.pools))
            return identity
        self._wait(asked.expires)
        first = min(asked.pools)
        self.jobs.create(_job(resource, identity, first, asked.pools[first]))
        return identity

    def complete(
        self, resource: Resource[EndProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Make what is missing, and change the rest; the pools of earlier candidates stay."""
        del identities
        asked, found = resource.properties, self._all().get(identity, FoundEnd())
        pools = found.pools() | dict(asked.pools)
        if asked.moves:
            self._keep_workflow(resource, identity, found, _program(asked, pools))
        else:
            self._keep_jobs(resource, identity, found, pools)

    def remove(self, observed: Observed) -> None:
        """Delete the jobs and the workflows."""
        found = self._all().get(observed.identity, FoundEnd())
        for job in (*found.jobs, *found.starters):
            self.jobs.delete(job)
        for workflow in found.workflows:
            self.workflows.delete(workflow["name"])

    def _keep_jobs(
        self, resource: Resource[EndProperties], identity: str, found: FoundEnd, pools: Mapping[str, str]
    ) -> None:
        """Have a job for each pool, and then no workflow."""
        self._wait(resource.properties.expires)
        there = {end_jobs.pool(job): job for job in found.jobs}
        for pool, method in sorted(pools.items()):
            self.jobs.put(there.get(pool), _job(resource, identity, pool, method), end_jobs.waits)
        for job in found.starters:
            self.jobs.delete(job)
        for workflow in found.workflows:
            self.workflows.delete(workflow["name"])

    def _keep_workflow(
        self, resource: Resource[EndProperties], identity: str, found: FoundEnd, program: Program
    ) -> None:
        """Have the workflow with this program and the job that starts it, and then no others."""
        asked, source = resource.properties, program.source()
        path = self._path(resource, source)
        there = next((each for each in found.workflows if each["name"] == path), None)
        if there is not None and not is_intact(there, asked.account):
            self._replace(there)
            there = None
        if there is None:
            self._deploy(resource, program)
        wanted = end_jobs.starter(identity, resource.tags, workflow=path, account=asked.account)
        self.jobs.put(next(iter(found.starters), None), wanted, end_jobs.is_enabled)
        for job in found.jobs:
            self.jobs.delete(job)
        for workflow in found.workflows:
            if workflow["name"] != path:
                self.workflows.delete(workflow["name"])

    def _deploy(self, resource: Resource[EndProperties], program: Program) -> None:
        source, account = program.source(), resource.properties.account
        body = end_workflow.body_of(resource.tags, source, account)
        self.workflows.deploy(self._path(resource, source), body)

    def _replace(self, changed: Workflow) -> None:
        """Delete a workflow that others changed, and wait until its name is free."""
        self.workflows.delete(changed["name"])
        folder = changed["name"].rpartition("/")[0]
        while changed["name"] in {each["name"] for each in self.workflows.listed(folder)}:
            self.gcp.clock.sleep(self.poll_s)

    def _path(self, resource: Resource[EndProperties], source: str) -> str:
        folder = self.workflows.folder(self.jobs.offered)
        return f"{folder}/{end_workflow.name_of(resource.tags[TAG_CLUSTER], self.gcp.region, source)}"

    def _wait(self, expires: str) -> None:
        """Wait while a schedule without a year would be due today: for an end in a year, a minute at most."""
        first = end_jobs.due(expires) - _YEAR
        left = first.timestamp() - time.time()
        if left > 0:
            self.gcp.clock.sleep(left + 1)

    def _ours(self) -> dict[str, FoundEnd]:
        """Return what this region has, by identity; nothing while the API is disabled."""
        return self.gcp.or_none(lambda: self.gcp.repeat(self._all)) or {}

    def _all(self) -> dict[str, FoundEnd]:
        found: dict[str, FoundEnd] = {}
        for job in self.jobs.listed():
            if self.is_mine(end_jobs.tags(job), None) and (pool := end_jobs.pool(job)):
                end = found.setdefault(end_jobs.identity(job), FoundEnd())
                (end.starters if pool == STARTER else end.jobs).append(job)
        for workflow in self.gcp.or_none(self._listed) or ():
            tags = labels.decode(workflow.get("labels", {}))
            if self.is_mine(tags, None):
                identity = end_jobs.identity_in(self.jobs.folder(), tags)
                found.setdefault(identity, FoundEnd()).workflows.append(workflow)
        return found

    def _listed(self) -> list[Workflow]:
        return self.workflows.listed(self.workflows.folder(self.jobs.offered))

    def _labelled(self) -> dict[str, str]:
        """Return the ends in the labels of the clusters in this region, by path."""
        rows = self.gcp.or_none(lambda: gke.listed(self.gcp)) or ()
        return {
            f"projects/{self.gcp.project}/locations/{row.location}/clusters/{row.name}": labels.decode(
                row.resource_labels
            ).get(TAG_EXPIRES, "")
            for row in rows
        }

    def _observe(self, identity: str, found: FoundEnd, ends: Mapping[str, str]) -> Observed:
        tags, properties = found.observed(ends)
        job, workflow = (self.gcp.prices.service(name) for name in ("scheduler-job", "end-workflow"))
        count = len(found.jobs) + len(found.starters)
        return Observed(
            kind=SCHEDULE,
            name=name_of(tags, ids.name(identity)),
            identity=identity,
            condition=Condition.READY,
            properties=properties,
            tags=tags,
            location=self.gcp.region,
            hourly_usd=_sum(times(count, job), times(len(found.starters), workflow)),
        )


def _program(asked: EndProperties, pools: Mapping[str, str]) -> Program:
    """Return the requested program."""
    return Program(
        cluster=asked.cluster,
        expires=end_workflow.epoch(asked.expires),
        limit=end_workflow.epoch(asked.limit) if asked.limit else None,
        pools=pools,
    )


def _job(resource: Resource[EndProperties], identity: str, pool: str, method: str) -> Job:
    """Return the job of one pool."""
    asked = resource.properties
    return end_jobs.of_pool(
        identity,
        resource.tags,
        cluster=asked.cluster,
        pool=pool,
        method=method,
        expires=asked.expires,
        account=asked.account,
    )


def _sum(*prices: float | None) -> float | None:
    """Return the sum of prices; None if one is unknown."""
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None
