"""Jobs of Cloud Scheduler v1: create, get, list, patch, delete, pause and resume, and the list of locations.

Written from google/cloud/scheduler/v1/cloudscheduler.proto, job.proto and target.proto of googleapis. Jobs
have no labels and no operations, and are there at once.

`scheduler_regions` of /_control: the regions that Cloud Scheduler is in; all of them at the start. A change
leaves jobs elsewhere as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest, setting
from cloudrec_sandbox.gcp.resources import paging, store
from cloudrec_sandbox.gcp.resources.places import REGIONS
from cloudrec_sandbox.gcp.services.scheduler import checks, firing

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

_PLACES = "/v1/projects/{project}/locations"
_JOBS = f"{_PLACES}/{{location}}/jobs"
_MASKED = re.compile(r"_([a-z])")


@dataclass
class SchedulerRegions:
    """The regions that the service is in."""

    names: list[str] = field(default_factory=lambda: sorted(REGIONS))


def _folder(call: Call) -> str:
    place = call.params["location"]
    if place not in call.world.state(SchedulerRegions).names:
        raise checks.invalid(
            f"Location '{place}' is not a valid location. Use ListLocations to list valid locations."
        )
    return f"projects/{call.project}/locations/{place}/jobs"


def _need(call: Call) -> Resource:
    path = f"{_folder(call)}/{call.params['job']}"
    found = store.find(call.world, "cloudscheduler", path)
    if found is None:
        raise GcpError("NOT_FOUND", "Job not found.")
    return found


def _moment(world: World) -> str:
    return as_datetime(world.now()).isoformat().replace("+00:00", "Z")


@rest(
    "cloudscheduler",
    "projects.locations.list",
    "GET",
    _PLACES,
    query=(*paging.QUERY, "filter"),
    permission="cloudscheduler.locations.list",
)
def locations(call: Call) -> dict[str, Any]:
    """Return the locations of the service."""
    rows = [
        {"name": f"projects/{call.project}/locations/{name}", "locationId": name}
        for name in call.world.state(SchedulerRegions).names
    ]
    items, token = paging.page(rows, call)
    return {"locations": items, **({"nextPageToken": token} if token else {})}


@rest(
    "cloudscheduler",
    "projects.locations.jobs.create",
    "POST",
    _JOBS,
    body=dict,
    permission="cloudscheduler.jobs.create",
)
def create(call: Call) -> dict[str, Any]:
    """Create a job, which waits for its next time."""
    path = checks.name_of(_folder(call), call.body)
    schedule = checks.job(call, call.body)
    if store.find(call.world, "cloudscheduler", path):
        raise GcpError("ALREADY_EXISTS", f"Job {path} already exists.")
    document = {name: call.body[name] for name in checks.FIELDS if call.body.get(name)}
    document |= {"name": path, "state": "ENABLED", "userUpdateTime": _moment(call.world)}
    resource = store.add(call.world, "cloudscheduler", "jobs", path, document)
    firing.wait(call.world, resource, schedule)
    return dict(document)


@rest(
    "cloudscheduler",
    "projects.locations.jobs.get",
    "GET",
    f"{_JOBS}/{{job}}",
    permission="cloudscheduler.jobs.get",
)
def get(call: Call) -> dict[str, Any]:
    """Return one job."""
    return dict(_need(call).document)


@rest(
    "cloudscheduler",
    "projects.locations.jobs.list",
    "GET",
    _JOBS,
    query=paging.QUERY,
    permission="cloudscheduler.jobs.list",
)
def list_(call: Call) -> dict[str, Any]:
    """Return the jobs of one location."""
    rows = store.listed(call.world, "cloudscheduler", f"{_folder(call)}/", "jobs")
    items, token = paging.page([dict(row.document) for row in rows], call)
    return {"jobs": items, **({"nextPageToken": token} if token else {})}


@rest(
    "cloudscheduler",
    "projects.locations.jobs.patch",
    "PATCH",
    f"{_JOBS}/{{job}}",
    body=dict,
    query=("updateMask",),
    permission="cloudscheduler.jobs.update",
)
def patch(call: Call) -> dict[str, Any]:
    """Change the fields of the mask. Attempts in progress continue: the model promises no more."""
    resource = _need(call)
    mask = [
        _MASKED.sub(lambda found: found[1].upper(), name)
        for name in call.query.get("updateMask", "").split(",")
        if name
    ]
    if unknown := sorted({name.partition(".")[0] for name in mask} - set(checks.FIELDS)):
        raise checks.invalid(f"The update mask has the invalid field '{unknown[0]}'.")
    fields = {name.partition(".")[0] for name in mask} or {
        name for name in call.body if name in checks.FIELDS
    }
    wanted = {name: value for name, value in resource.document.items() if name not in fields}
    wanted |= {name: call.body[name] for name in fields if call.body.get(name)}
    checks.known(call.body, (*wanted, *checks.FIELDS, "name"), "job")
    schedule = checks.job(call, wanted)
    resource.document.clear()
    resource.document.update(wanted, userUpdateTime=_moment(call.world))
    firing.wait(call.world, resource, schedule)
    return dict(resource.document)


@rest(
    "cloudscheduler",
    "projects.locations.jobs.delete",
    "DELETE",
    f"{_JOBS}/{{job}}",
    permission="cloudscheduler.jobs.delete",
)
def delete(call: Call) -> dict[str, Any]:
    """Delete a job; its attempts end."""
    store.remove(call.world, "cloudscheduler", _need(call).path)
    return {}


@rest(
    "cloudscheduler",
    "projects.locations.jobs.pause",
    "POST",
    f"{_JOBS}/{{job}}:pause",
    body=dict,
    permission="cloudscheduler.jobs.pause",
)
def pause(call: Call) -> dict[str, Any]:
    """Let a job make no calls."""
    resource = _need(call)
    if resource.document["state"] != "ENABLED":
        raise GcpError("FAILED_PRECONDITION", "Only an enabled job can be paused.")
    resource.document["state"] = "PAUSED"
    return dict(resource.document)


@rest(
    "cloudscheduler",
    "projects.locations.jobs.resume",
    "POST",
    f"{_JOBS}/{{job}}:resume",
    body=dict,
    permission="cloudscheduler.jobs.enable",
)
def resume(call: Call) -> dict[str, Any]:
    """Let a paused job make its calls again."""
    resource = _need(call)
    if resource.document["state"] != "PAUSED":
        raise GcpError("FAILED_PRECONDITION", "Only a paused job can be resumed.")
    resource.document["state"] = "ENABLED"
    firing.wait(call.world, resource, checks.job(call, resource.document))
    return dict(resource.document)


def _write(world: World, names: list[str]) -> None:
    if unknown := sorted(set(names) - set(REGIONS)):
        raise ValueError(f"unknown region {', '.join(unknown)}; there are: {', '.join(sorted(REGIONS))}")
    world.state(SchedulerRegions).names = sorted(names)


setting("scheduler_regions", read=lambda world: world.state(SchedulerRegions).names, write=_write)
